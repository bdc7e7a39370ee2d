"""The search among moves: what is nearest, for linear models and networks with one layer of rectified units."""
