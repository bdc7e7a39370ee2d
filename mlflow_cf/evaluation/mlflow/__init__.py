"""Evaluations in MLflow: its evaluator, runs and logged models."""
