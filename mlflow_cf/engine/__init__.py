"""Exact search: best first over boxes of candidates."""
