"""Rows that models learn from, and draws of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.policy.survival import WHERE

GIVE: Final = 'pass retrained models instead: {"models": [URI or model, ...]}'
DRAWS: Final = 100  # until some rows have every class
Places = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Rows:
    """What models are fitted to.

    Attributes:
        data: (n, d) rows in the model's own raw columns: a table, or an array where the owner has one.
        labels: (n,) training target.
    """

    data: pd.DataFrame | NDArray[Any]
    labels: NDArray[Any]

    def take(self, places: Places) -> Rows:
        """Return some of the rows, with their labels."""
        data = self.data
        some = data.iloc[places].reset_index(drop=True) if isinstance(data, pd.DataFrame) else data[places]
        return Rows(some, self.labels[places])


def learned_from(data: pd.DataFrame | NDArray[Any], labels: ArrayLike | None) -> Rows:
    """Return the rows (n, d) and labels (n,) that models are retrained on.

    Raises:
        InputError: no labels, missing ones, or not one per row.
    """
    if labels is None:
        raise InputError(WHERE, "models are retrained on labels, and there are none", f"pass labels, or {GIVE}")
    known = np.asarray(labels)
    if known.shape != (len(data),):
        raise InputError("labels", f"{known.shape} labels for {len(data)} rows", "pass one label per row of data")
    if missing := int(pd.isna(known).sum()):
        fact = f"{missing:,} of {len(known):,} are missing, and models are retrained on them"
        raise InputError("labels", fact, f"leave out these rows of data, or {GIVE}")
    return Rows(data, known)


class Draws:
    """Rows that are drawn for one model after the other, each with every class.

    Attributes:
        again: how often rows had to be drawn again.
    """

    def __init__(self, labels: NDArray[Any], classes: NDArray[Any] | None, rng: np.random.Generator) -> None:
        """Draw from rows with `labels` (n,); `classes` are those that every draw must have, None without."""
        self.again, self._rng, self._count = 0, rng, len(labels)
        self._codes = None if classes is None else np.searchsorted(classes, labels.astype(str))
        self._classes = 0 if classes is None else len(classes)

    def bootstraps(self, share: float = 0.5) -> Iterator[Places]:
        """Yield a share as many rows as there are, drawn with replacement, without end."""
        size = max(2, math.ceil(self._count * share))
        while True:
            yield self._whole(lambda: [self._rng.integers(self._count, size=size)])[0]

    def parts(self, share: float) -> Iterator[Places]:
        """Yield a share of the rows, each at most once, without end."""
        size = math.ceil(self._count * share)
        while True:
            yield self._whole(lambda: [self._rng.permutation(self._count)[:size]])[0]

    def pairs(self) -> Iterator[list[Places]]:
        """Yield both halves of the rows, of one order of them after the other, without end."""
        while True:
            yield self._whole(lambda: np.array_split(self._rng.permutation(self._count), 2))

    def halves(self) -> Iterator[Places]:
        """Yield one half of the rows and then the other, of one order of them after the other, without end."""
        return chain.from_iterable(self.pairs())

    def _whole(self, draw: Any) -> list[Places]:
        """Return what is drawn, once every part of it has every class.

        Raises:
            InputError: a class is so rare that none has.
        """
        for _ in range(DRAWS):
            parts: list[Places] = draw()
            codes = self._codes
            if codes is None or all(len(np.unique(codes[part])) == self._classes for part in parts):
                return parts
            self.again += 1
        fact = f"{DRAWS} draws of {len(parts[0]):,} of {self._count:,} rows lacked a class each time"
        raise InputError("labels", fact, f"pass more rows of the rare class, or {GIVE}")
