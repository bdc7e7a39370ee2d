"""Explained models beside all models that are logged: what is asked for, when, and what is logged."""
