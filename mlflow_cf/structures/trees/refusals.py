"""Which candidates of a row some of many models of trees refuses; see the kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlflow_cf.features import Floats
from mlflow_cf.structures.kernels.own_paths import OwnPaths
from mlflow_cf.structures.kernels.refusals import RefusalRoom, begin_refusals, find_refused
from mlflow_cf.structures.kernels.trees import Trees
from mlflow_cf.structures.structure import Encoded, Flags


class TreeRefusals:
    """The models of an ensemble, each with as many raw scores, about candidates of one row; see `Refusals`."""

    def __init__(self, trees: Trees, row: Sequence[Encoded], weights: Floats, may: float) -> None:
        """Set up for a row of cells (1,) per feature.

        Args:
            trees: of all models, each of which adds to one raw score.
            row: as said.
            weights: (k,) of a model's raw scores; may: from which score on it may accept.
        """
        models = len(trees.base) // len(weights)
        paths = OwnPaths.of(trees, models)
        owner = np.maximum(trees.nodes.outputs, 0) // len(weights)
        member = np.argsort(owner, kind="stable")
        self._trees = trees
        self._room = RefusalRoom(
            paths=paths,
            row=np.column_stack(row).astype(np.int32),
            X=np.empty(trees.walk.start[-1], dtype=np.int32),
            score=np.empty(models),
            weights=np.tile(weights, models),
            may=np.array([may]),
            member=member,
            start=np.searchsorted(owner[member], np.arange(models + 1)),
            order=np.arange(models),
            refusals=np.zeros(models, dtype=np.int64),
        )
        begin_refusals(trees, self._room)
        self._room.order[:] = np.argsort(self._room.score, kind="stable")  # those first that lack most

    def refused(self, encoded: Sequence[Encoded], most: int) -> Flags:
        """Return which of the first (n,) of m candidates some model refuses: all m, or until so many are not."""
        cells = np.column_stack(encoded).astype(np.int32)
        refused = np.empty(len(cells), dtype=np.bool_)
        return refused[: find_refused(cells, self._trees, self._room, most, refused)]

    @property
    def refusing(self) -> list[int]:
        """The models that have refused candidates, the last one first."""
        room = self._room
        found: list[int] = room.order[room.refusals[room.order] > 0].tolist()
        return found
