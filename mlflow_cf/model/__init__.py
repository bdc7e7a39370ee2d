"""The logged model as the rest of the package sees it.

These are the names that a flavor of another package needs: `Flavor` says which functions its module has, `OpenModel`
what its `open` returns.
"""

from mlflow_cf.model.flavors import Flavor
from mlflow_cf.model.judge import CodedCalls, Label, OpenModel, ScoreKind
from mlflow_cf.model.steps import ModelStep

__all__ = ["CodedCalls", "Flavor", "Label", "ModelStep", "OpenModel", "ScoreKind"]
