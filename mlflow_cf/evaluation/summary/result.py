"""What a summary says: the common changes that were chosen, and how many rows others could turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd

from mlflow_cf import cards
from mlflow_cf.features import Level
from mlflow_cf.words.result import Proof
from mlflow_cf.words.sentences import counted


@dataclass(frozen=True)
class Cohort:
    """A common change, and the rows that it turns and no change before it does.

    Attributes:
        text: the change, such as ``utilisation to 30 or less``.
        changes: ``{"feature": .., "at_most": 30}``, or ``at_least``, or ``equal``; one or two.
        turned: how many rows it turns; share: of all rows that miss the target.
        distance: mean distance of these rows from what they become.
        by_group: share of the rows of each group that it turns.
    """

    text: str
    changes: tuple[Mapping[str, Level | None], ...]
    turned: int
    share: float
    distance: float
    by_group: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the cohort as plain JSON values."""
        return {**vars(self), "changes": [dict(change) for change in self.changes], "by_group": dict(self.by_group)}


@dataclass(frozen=True)
class Cohorts:
    """The common changes in the order in which they were chosen.

    Attributes:
        items: the changes with their rows; no row is in two of them.
        rows: how many rows miss the target; groups: how many in each group.
        most: how many changes were wanted at most.
        bound: share of the rows that no choice of so many changes of the family can exceed.
        proof: ``optimal``: no such choice turns more rows than these; ``bounded``: none exceeds the bound; ``none``:
            nothing is known but that no more than all rows can be turned.
        greedy: share of the rows that the changes turn which are chosen one by one, each for the most rows that are
            left; `items` are others only where they turn more.
        family: the changes that were compared, in words.
    """

    items: tuple[Cohort, ...]
    rows: int
    groups: Mapping[str, int] = field(default_factory=dict)
    most: int = field(default=0, compare=False)
    bound: float = 0.0
    proof: Proof = "optimal"
    greedy: float = 0.0
    family: str = field(default="", compare=False)

    @property
    def covered(self) -> float:
        """Share of the rows that miss the target which one of the changes turns; 0 where no row misses it."""
        return sum(item.turned for item in self.items) / self.rows if self.rows else 0.0

    @property
    def by_group(self) -> dict[str, float]:
        """Share of the rows of each group that one of the changes turns."""
        return {name: sum(item.by_group[name] for item in self.items) for name in self.groups}

    @property
    def guarantee(self) -> str:
        """What is proved of the choice, as a sentence."""
        several = counted(self.most, "change")
        if self.proof == "none":
            return f"how many rows a choice of {several} of the family could turn is not known"
        known = "the optimum" if self.proof == "optimal" else "a bound"
        return f"no choice of {several} of the family turns more than {self.bound:.1%} ({known})"

    def to_frame(self) -> pd.DataFrame:
        """Return one line per change: change, turned, share, covered (so far), distance, and a share per group."""
        lines = [(item.text, item.turned, item.share, item.distance, *item.by_group.values()) for item in self.items]
        columns = ["change", "turned", "share", "distance", *self.groups]
        table = pd.DataFrame(lines, columns=columns).astype({"change": "str", "turned": "int64"})
        so_far = list(accumulate(item.turned for item in self.items))
        table.insert(3, "covered", np.array(so_far, dtype=np.float64) / max(self.rows, 1))
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return the cohorts as plain JSON values."""
        return {
            "rows": self.rows,
            "covered": self.covered,
            "groups": dict(self.groups),
            "by_group": self.by_group,
            "items": [item.to_dict() for item in self.items],
            "most": self.most,
            "bound": self.bound,
            "proof": self.proof,
            "greedy": self.greedy,
            "family": self.family,
        }

    def __str__(self) -> str:
        lines = [f"{item.text}: {counted(item.turned, 'row')} ({item.share:.1%})" for item in self.items]
        said = [self.guarantee, f"family: {self.family}"] if self.family else []
        return "\n  ".join([self._head, *lines, *said])

    def _repr_html_(self) -> str:
        """Return a small table for notebooks."""
        said = [self.guarantee, f"family: {self.family}"] if self.family else []
        return cards.page(cards.told(self._head), cards.table(self.to_frame()), *map(cards.told, said))

    @property
    def _head(self) -> str:
        head = f"{counted(len(self.items), 'common change')} {'turn' if len(self.items) != 1 else 'turns'}"
        return f"{head} {self.covered:.1%} of {counted(self.rows, 'row')} that miss the target"
