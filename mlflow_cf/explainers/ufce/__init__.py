"""UFCE: what a user is ready to change, searched alone, in pairs and in triples."""

from mlflow_cf.explainers.ufce.ufce import UFCE

__all__ = ["UFCE"]
