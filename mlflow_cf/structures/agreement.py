"""What several models of trees may all accept, by sets of changed features; see the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.agreement import list_agreed
from mlflow_cf.structures.kernels.agreement_state import BOUNDS, LISTED, SETS, Agreeing, AgreementRoom, RowChanges
from mlflow_cf.structures.kernels.leaf_masks import LeafMasks
from mlflow_cf.structures.kernels.triple_grid import GridChanges
from mlflow_cf.structures.model_leaves import ModelLeaves

Codes = NDArray[np.intp]
DEEPEST: Final = 8  # features of a set
FOUND: Final = 512  # candidates that are listed at once: the nearest of them tells how near the others must be
MOST_PAIRS: Final = 2**17  # of values of two features that some models accept: 2 MB
MOST_KINDS: Final = 2**18  # of two features, in a plane of scores: 2 MB
PLANES: Final = 4  # of models' scores of such pairs that are made before pairs are looked at
SOME: Final = 16  # values of a feature that are looked at before all others, where there are so many times more:
MANY: Final = 4  # of Credit, whose amounts take 500 values, three-change rows take a fifth, others the same


def together(leaves: Sequence[ModelLeaves]) -> LeafMasks:
    """Return the leaves of several structures over the same features as those of one."""
    parts = [part.masks for part in leaves]
    words = np.cumsum([0, *(part.first[-1] for part in parts)]).tolist()
    sizes = np.cumsum([0, *(len(part.accepts) for part in parts)]).tolist()
    moved = zip(parts, words, sizes, strict=False)
    first, tree, tested, where = zip(
        *((part.first[:-1] + at, part.tree + at, part.tested + at, part.where + begin) for part, at, begin in moved),
        strict=True,
    )
    return LeafMasks(
        first=np.append(np.concatenate(first), words[-1]),
        tree=np.concatenate(tree),
        several=np.concatenate([part.several for part in parts]),
        tested=np.concatenate(tested, axis=1).astype(np.int32),
        split=np.concatenate([part.split for part in parts]),
        value=np.concatenate([part.value for part in parts]),
        span=np.concatenate([part.span for part in parts], axis=1),
        spanned=np.concatenate([part.spanned for part in parts]),
        base=np.concatenate([part.base for part in parts]),
        kinds=np.concatenate([part.kinds for part in parts]),
        where=np.concatenate(where),
        accepts=np.concatenate([part.accepts for part in parts]),
    )


class ListedSets(NamedTuple):
    """Candidates of sets of changed features that several models may all accept.

    Attributes:
        at: (n, k) places of the values that features of a set take, among those of the grid.
        next: the first set that was not looked at; bounds: how many bounds of models were made.
        whole: whether all candidates of the sets before that are there; else one has more than there is room or time
            for.
    """

    at: Codes
    next: int
    bounds: int
    whole: bool


class AskedSets(NamedTuple):
    """What is asked.

    Attributes:
        features: (s, k) sets of features that change; the others keep the row's own value.
        may: (models,) from which score on each may accept.
        c: weight of the largest peak in a distance.
        some: whether only some of the values are looked at.
    """

    features: Codes
    may: Floats
    c: float
    some: bool


class Agreement:
    """Several models about candidates of one row.

    Attributes:
        many: whether features take many more values than the some of them that can be looked at alone.
    """

    def __init__(self, masks: LeafMasks, kind: NDArray[np.int32], start: Codes, changes: GridChanges) -> None:
        """Set up for a row.

        Args:
            masks: the leaves of the models.
            kind: (models, n) which values of a feature each cannot tell apart, of all in the grid.
            start: (d + 1,) the first value of each feature there.
            changes: what values cost, and which are the row's own.
        """
        features = len(start) - 1
        owner, changed = np.repeat(np.arange(features), np.diff(start)), np.ones(kind.shape[1], dtype=np.bool_)
        changed[changes.own] = False
        order = np.lexsort((changes.cost, owner))
        order = order[changed[order]]
        begin, least = np.searchsorted(owner[order], np.arange(features + 1)), np.full(features, np.inf)
        np.minimum.at(least, owner[order], changes.cost[order])
        row = RowChanges(kind, changes.own, changes.cost, changes.peak, order, begin, order, begin, least)
        self._whole = Agreeing(row, masks, _room(masks, kind.shape[1]))
        each = [
            np.unique(np.linspace(at, stop - 1, SOME).astype(np.intp))
            for at, stop in pairwise(begin.tolist())
            if at < stop
        ]
        some = np.concatenate([order[:0], *(order[places] for places in each)])
        few = row._replace(tried=some, begin=np.searchsorted(owner[some], np.arange(features + 1)))
        self._some = self._whole._replace(row=few)
        self.many = len(order) > MANY * len(some)

    def listed(self, asked: AskedSets, first: int, limit: float, most: int) -> ListedSets:
        """Return candidates that all models may accept, set after set from the `first` one on, until they are many.

        Args:
            asked: the sets, and what models accept.
            first: as said.
            limit: how far candidates are at most.
            most: bounds, at most.
        """
        of = self._some if asked.some else self._whole
        room, found = of.room, np.empty((FOUND, asked.features.shape[1]), dtype=np.int64)
        room.may[:], room.within[:] = asked.may, (limit, asked.c)
        room.tally[SETS], room.tally[BOUNDS] = first, 0
        whole = list_agreed(asked.features, of, most, found)
        return ListedSets(found[: room.tally[LISTED]], int(room.tally[SETS]), int(room.tally[BOUNDS]), whole == 1)


def _room(masks: LeafMasks, values: int) -> AgreementRoom:
    """Return arrays for a row with so many values."""
    models, levels, words, kinds = len(masks.base), DEEPEST + 1, int(masks.first[-1]), masks.kinds.ravel()
    numbers = partial(np.zeros, dtype=np.int64)
    return AgreementRoom(
        may=np.empty(models),
        within=np.empty(2),
        asked=np.arange(models),
        begun=np.zeros(models, dtype=np.bool_),
        near=numbers(masks.kinds.shape),
        offset=(kinds.cumsum() - kinds).reshape(masks.kinds.shape),
        cost=np.empty(kinds.sum()),
        reach=np.empty_like(masks.accepts),
        fixed=np.empty((levels, words), dtype=np.uint64),
        held=numbers((levels, models)),
        free=np.empty(words, dtype=np.uint64),
        rest=np.empty(models),
        ready=numbers(models),
        known=numbers((models, int(kinds.max()))),
        feature=numbers(levels),
        least=np.zeros(levels + 1),
        spent=np.zeros(levels + 1),
        peak=np.zeros(levels + 1),
        next=numbers(levels),
        node=numbers(levels),
        survivor=numbers((levels, values)),
        places=numbers(values),
        scores=np.zeros(int(kinds.max()) + 1),
        many=numbers(levels),
        pairs=np.empty((MOST_PAIRS, 2), dtype=np.int64),
        planes=np.empty((PLANES, min((int(kinds.max()) + 1) ** 2, MOST_KINDS))),
        width=numbers(PLANES),
        tally=numbers(7),
    )
