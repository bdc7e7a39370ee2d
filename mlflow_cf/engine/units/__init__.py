"""Pairs of changes of models with one layer of units, whose scores are made as they are needed."""
