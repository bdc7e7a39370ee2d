"""Many rows at a time: what a single change does to each of a block of rows, without a loop of Python over the rows."""
