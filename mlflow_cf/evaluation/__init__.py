"""How good explanations are: measured row by row, summarised, logged, and compared."""
