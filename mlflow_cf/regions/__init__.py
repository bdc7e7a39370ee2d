"""Regions: boxes of rows around a counterfactual, each row of which is proved to be one too."""

from mlflow_cf.regions.widen import Side, widen

__all__ = ["Side", "widen"]
