"""CE-OCL, by programs of its own and by best-first search; where favourable rows lie."""

from mlflow_cf.explainers.ceocl.ceocl import CEOCL

__all__ = ["CEOCL"]
