"""Linear models and networks, opened."""
