"""Models that answer at an address."""
