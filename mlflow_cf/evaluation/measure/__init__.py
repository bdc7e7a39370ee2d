"""Explanations of a table measured: rows, groups, explainers side by side."""
