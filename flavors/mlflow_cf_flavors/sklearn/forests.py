"""Many trees that are asked one by one.

To hand over its trees, or to check a table for each of them anew, takes a model longer than to ask them: of one row, a
forest of 100 trees takes 4.5 ms, and its trees .3.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from mlflow_cf_flavors.answers import Floats
from mlflow_cf_flavors.sklearn.arrays import agree, is_plain

Estimator = Any  # scikit-learn carries no types
Ask = Callable[[Any], Any]

_MEANS: Final = frozenset(
    {
        "BaggingClassifier",
        "BaggingRegressor",
        "ExtraTreesClassifier",
        "ExtraTreesRegressor",
        "RandomForestClassifier",
        "RandomForestRegressor",
    }
)
_BOOSTED: Final = "AdaBoostClassifier"
_CALIBRATED: Final = "_CalibratedClassifier"
# where models of other ones have these
_MEMBERS: Final = {
    "CalibratedClassifierCV": "calibrated_classifiers_",
    "StackingClassifier": "estimators_",
    "StackingRegressor": "estimators_",
    "VotingClassifier": "estimators_",
    "VotingRegressor": "estimators_",
}
_TREES: Final = frozenset(
    {"DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"}
)


@dataclass(frozen=True, eq=False)
class MeanOfTrees:
    """Rows -> the mean of what trees say, to the last bit as a forest adds it up on one thread.

    Attributes:
        trees: what scikit-learn calls the `tree_` of each.
        features: (k,) the columns that each reads; None: all.
        classes: how many shares there are; 0: a value.
    """

    trees: tuple[Any, ...]
    features: tuple[NDArray[np.intp] | None, ...]
    classes: int

    @classmethod
    def of(cls, model: Estimator) -> MeanOfTrees:
        """Return the mean of the trees of a forest, or of a bagging ensemble."""
        trees = tuple(each.tree_ for each in model.estimators_)
        every = list(range(model.n_features_in_))
        chosen = [each if list(each) != every else None for each in getattr(model, "estimators_features_", ())]
        return cls(trees, tuple(chosen or [None] * len(trees)), getattr(model, "n_classes_", 0))

    def __call__(self, rows: Any) -> Floats:
        """Return the shares (n, classes), or the values (n,), of rows (n, d) in single precision."""
        total = np.zeros((rows.shape[0], max(self.classes, 1)))
        for tree, some in zip(self.trees, self.features, strict=True):
            total += tree.predict(rows if some is None else rows[:, some])[:, : total.shape[1]]
        total /= len(self.trees)
        return total if self.classes else total[:, 0]


@dataclass(frozen=True, eq=False)
class VotesOfTrees:
    """Rows -> the shares of an AdaBoostClassifier, to the last bit as it adds up the votes of its trees.

    Attributes:
        trees: what scikit-learn calls the `tree_` of each; weights: (trees,) of their votes.
        classes: how many there are.
    """

    trees: tuple[Any, ...]
    weights: Floats
    classes: int

    @classmethod
    def of(cls, model: Estimator) -> VotesOfTrees:
        """Return the votes of an AdaBoostClassifier's trees."""
        return cls(tuple(each.tree_ for each in model.estimators_), model.estimator_weights_, model.n_classes_)

    def __call__(self, rows: Any) -> Floats:
        """Return the shares (n, classes) of rows (n, d) in single precision."""
        from sklearn.utils.extmath import softmax

        total, one = np.zeros((rows.shape[0], self.classes)), np.arange(self.classes)
        for tree, weight in zip(self.trees, self.weights.tolist(), strict=False):
            voted = tree.predict(rows).argmax(axis=1)[:, None] == one
            total += np.where(voted, weight, -1 / (self.classes - 1) * weight)
        total /= self.weights.sum()
        if self.classes > 2:
            return np.asarray(softmax(total / (self.classes - 1), copy=False))
        total[:, 0] *= -1
        lead = total.sum(axis=1)
        return np.asarray(softmax(np.column_stack((-lead, lead)) / 2, copy=False))


@dataclass(frozen=True, eq=False)
class TreeByTree:
    """Table -> what many trees say of it together.

    Attributes:
        ask: the call of the model that they belong to, for tables that it must look at.
        together: rows in single precision -> what they say.
        columns: how many a table has; trees do not look.
        missing: whether they take missing numbers; in a sparse table they take none.
    """

    ask: Ask
    together: MeanOfTrees | VotesOfTrees
    columns: int
    missing: bool

    @property
    def __name__(self) -> str:
        """The name of that call, by which ensembles know what it answers."""
        return self.ask.__name__

    def __call__(self, table: Any) -> Floats:
        """Return the shares (n, classes), or the values (n,), of a table."""
        rows = self._read(table)
        return np.asarray(self.ask(table)) if rows is None else self.together(rows)

    def _read(self, table: Any) -> Any:
        """Return a table as trees read it; None where the model may refuse it."""
        if not is_plain(table, self.columns):
            return None
        with np.errstate(over="ignore"):
            rows = table.astype(np.float32)
        compressed = sparse.issparse(rows)
        known = np.isfinite(rows.data if compressed else rows)
        if self.missing and not compressed and not known.all():
            known |= np.isnan(rows)
        return rows if known.all() else None


def by_tree(model: Estimator, ask: Ask, select: Callable[[Any], Any], rows: pd.DataFrame | None) -> Ask:
    """Return what answers as a fitted model does whose trees are asked one by one; `ask` itself where there are none.

    Args:
        model: the estimator; ask: its `predict_proba`, or `predict`.
        select: rows -> what it takes.
        rows: some rows, on which both are compared to the last bit; None: nothing is compared.
    """
    if rows is None:
        return ask
    found = _of_trees(model, ask.__name__) or _of_members(model, ask.__name__)
    if found is None:
        return ask
    own = found.ask if isinstance(found, TreeByTree) else ask  # on one thread: others add up in any order
    return found if agree(found, own, select, rows) else ask


def _of_trees(model: Estimator, name: str) -> TreeByTree | None:
    """Return what answers as a method of a model does, tree by tree; None if it is not known to consist of trees."""
    from sklearn.utils import get_tags

    if not _is_known(model):
        return None
    columns = int(model.n_features_in_)
    if type(model).__name__ == _BOOSTED:
        return TreeByTree(getattr(model, name), VotesOfTrees.of(model), columns, missing=False)
    alone, first = copy(model), model.estimators_[0]
    alone.n_jobs = 1
    missing = get_tags(first).input_tags.allow_nan and first.monotonic_cst is None
    return TreeByTree(getattr(alone, name), MeanOfTrees.of(model), columns, missing)


def _of_members(model: Estimator, name: str) -> Ask | None:
    """Return what answers as a method of a model does, its members tree by tree; None if none of them has trees."""
    place = _MEMBERS.get(type(model).__name__)
    if place is None or not _of_sklearn(model, frozenset(_MEMBERS)):
        return None
    members = [_quick(member) for member in getattr(model, place)]
    if all(one is other for one, other in zip(members, getattr(model, place), strict=True)):
        return None
    found = copy(model)
    setattr(found, place, members)
    ask: Ask = getattr(found, name)
    return ask


def _quick(member: Estimator) -> Estimator:
    """Return a copy of a member whose own method asks its trees one by one; itself if it is not made of trees."""
    inside = getattr(member, "estimator", None)
    if type(member).__name__ == _CALIBRATED and (quick := _quick(inside)) is not inside:
        found = copy(member)
        found.estimator = quick
        return found
    name = "predict_proba" if hasattr(member, "predict_proba") else "predict"
    trees = None if isinstance(member, str) else _of_trees(member, name)
    if trees is None:
        return member
    found = copy(member)
    setattr(found, name, trees)  # in place of the method of its class
    return found


def _is_known(model: Estimator) -> bool:
    """Whether a model is one of scikit-learn's, of trees that know all of its classes."""
    if not _of_sklearn(model, _MEANS | {_BOOSTED}) or getattr(model, "n_outputs_", 1) != 1:
        return False
    classes = getattr(model, "n_classes_", 0)
    return all(_of_sklearn(tree, _TREES) and getattr(tree, "n_classes_", 0) == classes for tree in model.estimators_)


def _of_sklearn(model: Estimator, names: frozenset[str]) -> bool:
    return type(model).__module__.startswith("sklearn.") and type(model).__name__ in names
