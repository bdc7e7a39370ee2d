"""Our explainers pass the tests that `mlflow_cf.testing` has for everybody's."""

from mlflow_cf import GeCo, NearestRow, RandomSearch
from mlflow_cf.testing import ExplainerSuite


class TestGeCo(ExplainerSuite):
    def explainer(self):
        return GeCo()


class TestNearestRow(ExplainerSuite):
    def explainer(self):
        return NearestRow()


class TestRandomSearch(ExplainerSuite):
    def explainer(self):
        return RandomSearch()
