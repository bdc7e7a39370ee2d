"""The explainers: one file and one class per method, and the table of their names."""

from mlflow_cf.explainers.exact import Exact
from mlflow_cf.explainers.explainer import Candidates, Explainer
from mlflow_cf.explainers.geco.geco import GeCo
from mlflow_cf.explainers.nearest_row import NearestRow
from mlflow_cf.explainers.random_search import RandomSearch

EXPLAINERS: dict[str, type[Explainer]] = {
    GeCo.name: GeCo,
    Exact.name: Exact,
    NearestRow.name: NearestRow,
    RandomSearch.name: RandomSearch,
}

__all__ = ["EXPLAINERS", "Candidates", "Exact", "Explainer", "GeCo", "NearestRow", "RandomSearch"]
