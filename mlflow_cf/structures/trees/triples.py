"""All changes of three features of a row of trees; see the kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.trees import Trees, find_comparands
from mlflow_cf.structures.kernels.triple_grid import (
    COMPLETE,
    AskedTriples,
    FoundTriples,
    Grid,
    GridChanges,
    TripleRoom,
)
from mlflow_cf.structures.kernels.triples import list_triples
from mlflow_cf.structures.pair_tables import Numbers
from mlflow_cf.structures.structure import Flags
from mlflow_cf.structures.trees.forest import Ints


class _Question(NamedTuple):
    """A grid of values, `order`ed (n,) by feature and cell, and the workspace of kernels that are asked about it."""

    order: Numbers
    grid: Grid
    room: TripleRoom


def find_triples(
    trees: Trees, cells: Ints, changes: GridChanges, asked: AskedTriples, known: Floats
) -> FoundTriples | None:
    """Return candidates of three changes; see `SupportsTriples`.

    Args:
        trees: the trees; cells: (n,) of every value of the grid, numbered over all features.
        changes, asked, known: as there.
    """
    question = _question(trees, cells, changes, asked)
    if question is None:
        return None
    found = FoundTriples.room(known.copy())
    if list_triples(asked, question.grid, trees, question.room, found) != COMPLETE:
        return None
    count = found.counts[0]
    return found._replace(at=question.order[found.at[:count]], far=found.far[:count], sure=found.sure[:count])


def _question(trees: Trees, cells: Ints, changes: GridChanges, asked: AskedTriples) -> _Question | None:
    """Return the grid and a workspace; None where the trees do not tell."""
    features, order = trees.features, np.argsort(cells, kind="stable")
    feature = np.searchsorted(features.start, cells[order], side="right") - 1
    cell = (cells[order] - features.start[feature]).astype(np.intp)
    missing = features.ordered[feature] & (cell + 1 == np.diff(features.start)[feature])
    if missing.any() or (asked.models > 1 and (trees.nodes.outputs < 0).any()):  # or leaves that all models share
        return None
    grid = _grid(trees, cell, feature, changes, order)
    return _Question(order, grid, TripleRoom.of(trees, int(np.diff(grid.start).max()), asked.models))


def _grid(trees: Trees, cell: Numbers, feature: Numbers, changes: GridChanges, order: Numbers) -> Grid:
    """Return the grid of cells (n,) in order, each of a feature (n,); `order`: the values that have them."""
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    own, cost = place[changes.own], changes.cost[order]
    changed = np.ones(len(order), dtype=np.bool_)
    changed[own] = False
    start = np.searchsorted(feature, np.arange(len(own) + 1))
    sizes = np.diff(trees.features.start) + 1
    offset = np.append(0, sizes.cumsum())
    counts = np.bincount(cell + offset[feature], minlength=offset[-1])
    X = np.empty(trees.walk.start[-1], np.int32)
    find_comparands(cell[own].astype(np.int32)[None], trees.walk, X)
    return Grid(
        start=start,
        cell=cell,
        cost=cost,
        peak=changes.peak[order],
        own=own,
        least=np.minimum.reduceat(np.where(changed, cost, np.inf), start[:-1]),
        ascending=_ascending(cost, feature, own) & _ascending(changes.peak[order], feature, own),
        before=counts.cumsum() - counts - start[:-1].repeat(sizes),
        offset=offset[:-1],
        X=X,
    )


def _ascending(cost: Floats, feature: Numbers, own: Numbers) -> Flags:
    """Return (d,) of which features values cost no less the farther they are from the own one in order."""
    step = np.diff(cost)
    left = np.arange(1, len(cost)) <= own[feature[1:]]
    wrong = np.where(left, step > 0, step < 0) & (feature[1:] == feature[:-1])
    ascending = np.ones(len(own), dtype=np.bool_)
    ascending[feature[1:][wrong]] = False
    return ascending
