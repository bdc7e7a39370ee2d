"""CSCF: ordered plans of actions with their costs and consequences; SCF: the same without discounts."""

from mlflow_cf.explainers.cscf.cscf import CSCF, SCF

__all__ = ["CSCF", "SCF"]
