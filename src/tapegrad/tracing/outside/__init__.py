"""What a function reaches without being passed it, and what it leaves there: arrays that are lent
to it, numbers that it finds and sets anew, values that it keeps, and traced ones left behind."""
