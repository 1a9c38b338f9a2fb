"""Declarations of answers: the functions that replace a library's while a program is traced.

    @stands_for("skimage.exposure")
    def adjust_gamma(image, gamma=1, gain=1): ...

SciPy's and pandas' functions are declared with these names and no others, so functions of any other
library can be declared in the same way. This module exports tools to declare an answer, to note
what it reads of objects, to run the user's own code inside it as the user's, and to refuse calls.
The modules beside it have the parts of an answer: `arrays`, proxies of arrays and how NumPy's
functions treat them; `primitives`, operations that can be on a tape; `tapes`, tapes and how
functions are traced to them; `runs`, the run that is traced; `loops`, of which one round is traced;
`solvers` and `sparsity`, functions of the user's that are called again and again; `tables`, Series
and DataFrames.
"""

from tapegrad.extending.declaring import Carrier as Carrier
from tapegrad.extending.declaring import Untraced as Untraced
from tapegrad.extending.declaring import answering as answering
from tapegrad.extending.declaring import answers_of as answers_of
from tapegrad.extending.declaring import any_traced as any_traced
from tapegrad.extending.declaring import as_parameter as as_parameter
from tapegrad.extending.declaring import declare_method as declare_method
from tapegrad.extending.declaring import held as held
from tapegrad.extending.declaring import held_in as held_in
from tapegrad.extending.declaring import is_traced as is_traced
from tapegrad.extending.declaring import note_memory as note_memory
from tapegrad.extending.declaring import read as read
from tapegrad.extending.declaring import refusal as refusal
from tapegrad.extending.declaring import seen as seen
from tapegrad.extending.declaring import stands_for as stands_for
from tapegrad.extending.declaring import taken_by as taken_by
from tapegrad.observe.answers.answers import as_called as as_called
from tapegrad.observe.answers.answers import declare as declare
from tapegrad.observe.answers.answers import declare_calls as declare_calls
from tapegrad.observe.answers.answers import declare_late as declare_late
from tapegrad.observe.answers.answers import declare_operands as declare_operands
from tapegrad.observe.observer import observed as observed
from tapegrad.observe.observer import unobserved as unobserved
from tapegrad.observe.program.source import at_line as at_line
