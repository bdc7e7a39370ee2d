"""Versions compared on the same rows."""
