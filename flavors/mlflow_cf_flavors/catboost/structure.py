"""CatBoost models, opened into structures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from mlflow_cf.features import FeatureSpace
from mlflow_cf.structures import Link, NotOpenedError, Structure
from mlflow_cf_flavors.catboost.columns import CatBoostColumns, opened
from mlflow_cf_flavors.catboost.export import Model, objective_of
from mlflow_cf_flavors.catboost.trees import catboost_forest
from mlflow_cf_flavors.sklearn.sources import Source, raw_columns
from mlflow_cf_flavors.sums import TreeModel

_EXPONENTS: Final = ("Poisson", "Tweedie")  # a regressor's answers are exponentials of its raw scores
_LINKS: Final[dict[str, Link]] = {"MultiClass": "softmax", "MultiClassOneVsAll": "identity"}  # others: two classes


def compile_catboost(model: Model, table: CatBoostColumns, space: FeatureSpace, rows: pd.DataFrame) -> Structure:
    """Compile a model, which takes the columns of `table`, for the features of `space`."""
    del rows  # the export has all that is needed
    return catboost_trees(model, raw_columns(space, table.names), space).compile(space)


def catboost_trees(model: Model, sources: Sequence[Source], space: FeatureSpace) -> TreeModel:
    """Return the trees of a model that takes `sources`, which come from the features of `space`.

    Raises:
        NotOpenedError: statistics of categories, features of text, or an objective whose answers are no raw scores.
    """
    link = _link(model)
    facts, columns = opened(model, sources, space)
    return TreeModel(columns, catboost_forest(facts, link))


def _link(model: Model) -> Link:
    from catboost import CatBoostRegressor

    objective = objective_of(model)
    if isinstance(model, CatBoostRegressor) and objective in _EXPONENTS:  # the plain class answers raw scores
        raise NotOpenedError(f"CatBoost's objective {objective}")
    if not len(model.classes_):
        return "identity"
    return _LINKS.get(objective, "softmax" if len(model.classes_) > 2 else "sigmoid")
