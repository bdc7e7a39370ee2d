"""The search among moves: what is nearest, for networks with one layer of rectified units."""
