"""Served explanations watched over time: windows, drift against a reference, and what people did with the advice."""
