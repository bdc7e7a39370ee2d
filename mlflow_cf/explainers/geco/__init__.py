"""GeCo, by draws as in its paper and by exact sweeps of opened models."""

from mlflow_cf.explainers.geco.geco import GeCo

__all__ = ["GeCo"]
