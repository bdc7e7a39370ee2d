"""MD-PSO: a swarm over the most telling features, in boxes around the row."""

from mlflow_cf.explainers.mdpso.mdpso import MDPSO

__all__ = ["MDPSO"]
