"""What is called in the place of functions that don't ask their arguments, and what tracers hand on
to the front end. Who answers declares it here; the observer puts answers on a frame's stack, and
where a run isn't observed names are swapped."""
