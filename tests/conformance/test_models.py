"""Our kinds of models pass the tests that `mlflow_cf.testing` has for everybody's."""

from mlflow_cf.testing import KINDS, ModelSuite


class TestSklearn(ModelSuite):
    kind = KINDS["sklearn"]


class TestXGBoost(ModelSuite):
    kind = KINDS["xgboost"]


class TestLightGBM(ModelSuite):
    kind = KINDS["lightgbm"]


class TestPyfunc(ModelSuite):
    kind = KINDS["pyfunc"]


class TestFunction(ModelSuite):
    kind = KINDS["function"]
