"""For tests of the pure part: the outside world as a value. Not in the wheel."""
