"""The explanations that a report shows: of many rows a sample, kept while they are measured, so that memory is flat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.words.result import Explanation

MOST: Final = 1_000  # rows that are shown
LAST: Final = ("already", "skipped", "busy")  # shown where there is room left: nothing was to be found out of them


@dataclass(frozen=True, eq=False)
class Kept:
    """One explanation that is kept.

    Attributes:
        line: the number of its line among those that are measured; place: that of its row in the table.
        explanation: what was found.
    """

    line: int
    place: int
    explanation: Explanation


class Shown:
    """Keeps explanations: those of rows that miss the target first, each as likely as the others; for one thread.

    Which ones is decided by the seed and the number of rows, however they are divided into parts.
    """

    def __init__(self, rows: int, seed: int, most: int = MOST) -> None:
        """Set up for so many rows in all, of which at most so many are kept."""
        self._lots = np.random.default_rng(seed).permutation(rows)
        self._most, self._lines = most, 0
        self._kept: list[Kept] = []

    def keep(self, places: pd.Index[Any], explanations: Sequence[Explanation]) -> None:
        """Take the explanations of the next rows, which stand at these places of the table."""
        for place, one in zip(places.tolist(), explanations, strict=True):
            self._kept.append(Kept(self._lines, int(place), one))
            self._lines += 1
        if len(self._kept) > self._most:
            self._kept = sorted(self._kept, key=self._rank)[: self._most]

    def _rank(self, one: Kept) -> tuple[bool, int]:
        return one.explanation.status in LAST, int(self._lots[one.place])

    @property
    def items(self) -> list[Kept]:
        """What is kept, in the order of the rows."""
        return sorted(self._kept, key=lambda one: one.line)
