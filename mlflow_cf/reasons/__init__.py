"""Reasons of a decision: what each feature group contributes to the shortfall against reference rows."""
