"""The explainers: one file and one class per method, and the table of their names."""

from mlflow_cf.explainers.ceocl import CEOCL
from mlflow_cf.explainers.exact import Exact
from mlflow_cf.explainers.explainer import AnyExplainer, Candidates, Explainer, Learner, PlannedStep, Search, learns
from mlflow_cf.explainers.geco.geco import GeCo
from mlflow_cf.explainers.learned import Facts, Learned
from mlflow_cf.explainers.nearest_row import NearestRow
from mlflow_cf.explainers.random_search import RandomSearch

EXPLAINERS: dict[str, type[AnyExplainer]] = {
    GeCo.name: GeCo,
    Exact.name: Exact,
    CEOCL.name: CEOCL,
    NearestRow.name: NearestRow,
    RandomSearch.name: RandomSearch,
}

__all__ = [
    "CEOCL",
    "EXPLAINERS",
    "AnyExplainer",
    "Candidates",
    "Exact",
    "Explainer",
    "Facts",
    "GeCo",
    "Learned",
    "Learner",
    "NearestRow",
    "PlannedStep",
    "RandomSearch",
    "Search",
    "learns",
]
