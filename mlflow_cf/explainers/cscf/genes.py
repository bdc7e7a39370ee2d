"""Sequences of actions as numbers in [0, 1] (CSCF section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlflow_cf.explainers.cscf.possible import Possible
from mlflow_cf.features import Floats
from mlflow_cf.plans.kernels import Ints

ACTIVE = 0.5  # an action is done if its order key is not larger


@dataclass(frozen=True, eq=False)
class Ordered:
    """Sequences of actions.

    Attributes:
        actions: (m, t) their numbers, -1 behind the last; values: (m, t) their values, 0 there.
    """

    actions: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.actions)

    def take(self, rows: Ints) -> Ordered:
        """Return some of the sequences."""
        return Ordered(self.actions[rows], self.values[rows])


def decoded(genes: Floats, possible: Possible, most: int) -> Ordered:
    """Return what genes (m, 2n) mean: n order keys and n value keys; of more than `most` steps the first.

    Active actions run by ascending order key, ties by number.
    """
    n = len(possible)
    keys, active = genes[:, :n], genes[:, :n] <= ACTIVE
    order = np.argsort(np.where(active, keys, 2.0), axis=1, kind="stable")[:, :most]
    done = np.take_along_axis(active, order, axis=1)
    values = possible.values(order, np.take_along_axis(genes[:, n:], order, axis=1))
    return Ordered(np.where(done, order, -1), np.where(done, values, 0.0))


def encoded(sequences: Ordered, possible: Possible) -> Floats:
    """Return genes (m, 2n) that mean these sequences."""
    m, n = len(sequences), len(possible)
    keys, shares = np.ones((m, n)), np.full((m, n), 0.5)
    for place in range(sequences.actions.shape[1]):
        rows = np.flatnonzero(sequences.actions[:, place] >= 0)
        actions = sequences.actions[rows, place]
        keys[rows, actions] = ACTIVE * (place + 1) / (sequences.actions.shape[1] + 1)
        shares[rows, actions] = possible.shares(actions, sequences.values[rows, place])
    return np.concatenate([keys, shares], axis=1)
