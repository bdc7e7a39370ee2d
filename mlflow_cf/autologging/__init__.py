"""Explained models beside every model that is logged: what is asked for, where MLflow is listened to, what is logged."""
