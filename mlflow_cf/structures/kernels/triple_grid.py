"""What kernels are asked about all changes of three features, what they find, and the arrays that they work in."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.structures.kernels.own_paths import OwnPaths
from mlflow_cf.structures.kernels.trees import Trees

Array = NDArray[Any]
LIMIT, BEST = range(2)  # of `TripleRoom.limit`
COMPLETE, TOO_MANY = range(2)
MOST_PLANE: Final = 2**18  # cells of a plane that trees tell apart, 1 MB
EVENTS: Final = 2**15  # where boxes start or end, 800 KB; 100 trees of Adult and Credit have some thousand
MOST_LISTED: Final = 2**12  # candidates
WORD: Final = 64  # cells of a feature whose tests are tables, at most: a bit for each


class Grid(NamedTuple):
    """The cells that features of a row may take, ascending within a feature, the row's own among them.

    Attributes:
        start: (d + 1,) where those of every feature start.
        cell: (n,) the cells; cost, peak: (n,) what each adds to the distance, 0 for the row's own.
        own: (d,) which one is the row's own; least: (d,) what a change costs at least.
        ascending: (d,) whether the cells cost more, and may add more as largest change, the farther they are from the
            row's own in this order.
        before, offset: how many cells of a feature come before each of its cells; see `pairs.TriedCells`.
        X: (columns,) the row's comparands, see `Walk`.
    """

    start: Array
    cell: Array
    cost: Array
    peak: Array
    own: Array
    least: Array
    ascending: Array
    before: Array
    offset: Array
    X: Array


class GridChanges(NamedTuple):
    """What the values (n,) of a grid cost, column after column.

    Attributes:
        own: (d,) which value of every column is the row's own.
        cost, peak: (n,) what each adds to the distance.
    """

    own: Array
    cost: Array
    peak: Array


class AskedTriples(NamedTuple):
    """What is asked of triples of features.

    Attributes:
        features: (s, 3) the triples, the nearest first.
        weights: (k,) of the raw scores.
        may, sure: from which score on a candidate may meet the targets, and certainly does; with several models, from
            which score of each.
        c: of the largest change, in the distance.
        limit: candidates are no farther.
        most: so many cells of grids are looked at, at most.
        beyond: candidates are farther than this.
        joins: whether the nearest of cells that trees cannot tell apart stands for all of them; else all are listed.
        models: how many models the trees are of, each with as many of the raw scores, one after the other.
    """

    features: Array
    weights: Array
    may: float
    sure: float
    c: float
    limit: float
    most: int
    beyond: float = -1.0
    joins: bool = True
    models: int = 1


class FoundTriples(NamedTuple):
    """What was found.

    Attributes:
        at: (f, 3) the cells of candidates, each numbered among all of the grid.
        far: (f,) how far each is; sure: (f,) whether it certainly meets the targets, and needs all three changes.
        top: (count,) how far the nearest candidates of distinct changed sets are, ascending; those known before
            among them.
        counts: (2,) how many candidates there are, and how many cells were looked at.
        complete: (1,) how far candidates are of which none is left out because there was no room; inf: all.
    """

    at: Array
    far: Array
    sure: Array
    top: Array
    counts: Array
    complete: Array

    @classmethod
    def room(cls, top: Array) -> FoundTriples:
        """Return arrays for `MOST_LISTED` candidates; `top`: what is known before."""
        at, counts = np.empty((MOST_LISTED, 3), dtype=np.int64), np.zeros(2, dtype=np.int64)
        far, sure = np.empty(MOST_LISTED), np.empty(MOST_LISTED, dtype=np.bool_)
        return cls(at, far, sure, top, counts, np.array([np.inf]))


class TripleRoom(NamedTuple):
    """Workspace for three features at a time: the axes of a grid of planes, of rows, and of columns.

    Attributes:
        value: (nodes,) the values of leaves, as whole numbers.
        way: (levels, 7) stack of nodes: each with start and stop of the cells of every axis that lead to it;
            mask: (levels, 3) one bit per cell, where tests are tables.
        runs: (3, WORD + 2) starts and stops of the cells of a leaf on every axis.
        event: (e, 7) the plane where a box starts or ends, later the next event there; the value; start and stop of the
            rows and of the columns; whose model's it is; head: (largest,) the first event of every plane.
        axes: (3,) which features; first, size: (3,) where the cells of every axis start among those of all features,
            and how many there are; later how many trees tell apart.
        joined: (3, largest + 1) whether a box starts or ends at a cell, later the number of what starts there among
            what trees tell apart.
        cell, cost, peak: (3, largest) of these the nearest cells, as in `Grid`; run: (3, largest, 2) start and stop of
            all cells that these stand for.
        own: (3,) which one is the row's own; least: (3,) what the others cost at least.
        edges: (models, rows * columns) what is added at every row of the present plane, compared with the row before.
        beside, plane: (models, rows * columns) scores of the plane that leaves the first feature as it is, and of the
            present one; column: (largest,) sums of `edges` down to a row.
        span: (largest, 3) start and stop of the cells of every row of a plane that are looked at, and by how much their
            largest score exceeds what is needed, that of the model where it does so least.
        need: (2, models) from which score on a candidate may meet the targets, and certainly does.
        limit: (2,) how far candidates of three features are at most, and how far the nearest certain one is.
        paths: of the row; order: (models,) in which they are asked.
    """

    value: Array
    way: Array
    mask: Array
    runs: Array
    event: Array
    head: Array
    axes: Array
    first: Array
    size: Array
    joined: Array
    cell: Array
    cost: Array
    peak: Array
    run: Array
    own: Array
    least: Array
    edges: Array
    beside: Array
    plane: Array
    column: Array
    span: Array
    need: Array
    limit: Array
    paths: OwnPaths
    order: Array

    @classmethod
    def of(cls, trees: Trees, largest: int, models: int = 1) -> TripleRoom:
        """Return arrays for trees of so many models, for features of so many cells, and for `EVENTS` of each model."""
        levels = trees.deepest + 2
        planes = np.empty((3, models, min(largest**2, MOST_PLANE)), dtype=np.int32)
        cost, peak = np.empty((2, 3, largest))
        axes, first, size, own = np.empty((4, 3), dtype=np.int64)
        return cls(
            value=np.empty(len(trees.nodes.tests), dtype=np.int32),
            way=np.empty((levels, 7), dtype=np.int64),
            mask=np.empty((levels, 3), dtype=np.uint64),
            runs=np.empty((3, WORD + 2), dtype=np.int32),
            event=np.empty((models * EVENTS, 7), dtype=np.int32),
            head=np.empty(largest, dtype=np.int32),
            axes=axes,
            first=first,
            size=size,
            joined=np.empty((3, largest + 1), dtype=np.int32),
            cell=np.empty((3, largest), dtype=np.int64),
            cost=cost,
            peak=peak,
            run=np.empty((3, largest, 2), dtype=np.int64),
            own=own,
            least=np.empty(3),
            edges=planes[0],
            beside=planes[1],
            plane=planes[2],
            column=np.empty(largest, dtype=np.int32),
            span=np.empty((largest, 3), dtype=np.int64),
            need=np.empty((2, models), dtype=np.int64),
            limit=np.empty(2),
            paths=OwnPaths.of(trees, models),
            order=np.arange(models),
        )
