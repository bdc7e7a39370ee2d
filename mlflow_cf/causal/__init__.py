"""Causal equations: numbers that follow other features, by a function that is given or learned."""
