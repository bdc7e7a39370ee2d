"""The nearest counterfactuals of a decision tree, proved: the yardstick for every search.

Why this is exact, and the same as trying every single change and every pair of changes: a leaf of the tree accepts a
row iff every feature has one of the values that the splits on the way to the leaf let through, so a leaf is a box, one
set of values per feature. With constraints that speak of one feature at a time and a distance that adds up over
features, the cheapest way into a box is the cheapest admissible value per feature, taken on its own, and 0 where the
row's own value is inside already. A row favourable after changing k features lies in some favourable box, and the row
this search puts into that box changes some of these k features only and is not farther. So the minimum over the boxes
that need at most one change is what an exhaustive search over single changes finds, at most two: over pairs (up to 2
million per row of Credit), without limit: over everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from cases.data_sets import FAVOURABLE, Case
from cases.independent import allowed, change, spreads
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

Bools = NDArray[np.bool_]
LIMITS = (1, 2, None)  # single changes, pairs, any number of changes


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest counterfactual within a number of changes: its distance and row; infinite and None: none exists."""

    distance: float
    row: dict[str, Any] | None


@dataclass(frozen=True, eq=False)
class Boxes:
    """The favourable leaves of a tree.

    Attributes:
        values: feature -> its values (v,) in the background and in the rows to explain.
        observed: feature -> (v,) whether the background has the value, so that it may be proposed.
        inside: feature -> (leaves, v) whether the value is inside the leaf's box.
        spread: feature -> divisor of a change.
        constraints: as users write them.
    """

    values: Mapping[str, NDArray[Any]]
    observed: Mapping[str, Bools]
    inside: Mapping[str, Bools]
    spread: Mapping[str, float]
    constraints: Mapping[str, Sequence[str]]

    @classmethod
    def build(cls, case: Case) -> Boxes:
        """Read the favourable boxes from the fitted tree of `case`."""
        together = pd.concat([case.background, case.rejected], ignore_index=True)
        values = {name: np.unique(together[name].to_numpy()) for name in map(str, together)}
        observed = {name: pd.Index(values[name]).isin(case.background[name].unique()) for name in values}
        inside = _favourable_boxes(case.model, values, case.background.iloc[[0]])
        return cls(values, observed, inside, spreads(case.background), case.constraints)

    def nearest(self, x0: Mapping[str, Any]) -> list[Nearest]:
        """Return the nearest counterfactual of the row `x0` for each of LIMITS."""
        cost, choice = zip(*(self._cheapest(name, x0[name]) for name in self.values), strict=True)
        costs = np.column_stack(cost)
        needed = (costs > 0).sum(axis=1)
        distance = costs.sum(axis=1) / len(self.values)
        found = []
        for limit in LIMITS:
            within = distance if limit is None else np.where(needed <= limit, distance, np.inf)
            leaf = int(within.argmin())
            row = {name: self.values[name][picked[leaf]] for name, picked in zip(self.values, choice, strict=True)}
            found.append(Nearest(float(within[leaf]), row if np.isfinite(within[leaf]) else None))
        return found

    def _cheapest(self, name: str, own: Any) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """Return (leaves,) the smallest admissible change of a feature that enters each box, and its value's place."""
        values = self.values[name]
        cost = change(self.spread[name], own, values)
        may = (self.observed[name] & allowed(self.constraints, name, own, values)) | (cost == 0)
        order = np.flatnonzero(may)
        order = order[np.argsort(cost[order], kind="stable")]
        reached = self.inside[name][:, order]
        first = reached.argmax(axis=1)  # nearest value first, so the first one inside is the cheapest
        entered = reached[np.arange(len(reached)), first]
        return np.where(entered, cost[order][first], np.inf), order[first]


def _favourable_boxes(model: Pipeline, values: Mapping[str, NDArray[Any]], base: pd.DataFrame) -> dict[str, Bools]:
    """Walk down the tree and keep, for every feature, the values that reach each favourable leaf."""
    tree = model[-1].tree_
    favourable = model[-1].classes_[tree.value[:, 0].argmax(axis=1)] == FAVOURABLE
    slices, owner, prepared = _prepared(model[:-1], values, base)
    leaves = []
    stack = [(0, np.ones(sum(map(len, values.values())), dtype=np.bool_))]
    while stack:
        node, mask = stack.pop()
        if tree.children_left[node] < 0:
            leaves += [mask] if favourable[node] else []
            continue
        column = int(tree.feature[node])
        part = slices[owner[column]]
        left = prepared[part, column] <= tree.threshold[node]
        for child, passes in ((tree.children_left[node], left), (tree.children_right[node], ~left)):
            narrowed = mask.copy()
            narrowed[part] &= passes
            stack.append((child, narrowed))
    inside = np.array(leaves).reshape(len(leaves), -1)
    return {name: np.ascontiguousarray(inside[:, part]) for name, part in slices.items()}


def _prepared(
    preparation: Pipeline, values: Mapping[str, NDArray[Any]], base: pd.DataFrame
) -> tuple[dict[str, slice], dict[int, str], NDArray[np.float64]]:
    """Show every value of every feature, the others as in `base`, to the preparation in front of the tree.

    Returns the place of each feature among the values, the feature behind each prepared column, and the prepared rows
    as the tree reads them: cast to float32, compared as float64.
    """
    slices: dict[str, slice] = {}
    owner: dict[int, str] = {}
    parts: list[NDArray[np.float64]] = []
    for name, known in values.items():
        rows = base.iloc[np.zeros(len(known), dtype=np.intp)].assign(**{name: known})
        part = np.asarray(preparation.transform(rows)).astype(np.float32).astype(np.float64)
        start = sum(len(earlier) for earlier in parts)
        slices[name] = slice(start, start + len(part))
        # a column belongs to the feature that moves it; a column that none moves is in no split
        owner.update((int(column), name) for column in np.flatnonzero(np.ptp(part, axis=0)))
        parts.append(part)
    return slices, owner, np.concatenate(parts)
