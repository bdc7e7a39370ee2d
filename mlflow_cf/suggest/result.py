"""Suggested constraints, each with the rows for and against it and the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import pandas as pd

from mlflow_cf import cards
from mlflow_cf.suggest.chance import FALSE_ALARMS

SuggestionKind = Literal[
    "immutable", "increasing", "range", "step", "order", "equal", "one_hot", "dependency", "implication"
]


@dataclass(frozen=True)
class Suggestion:
    """One constraint that a reviewer may want.

    Attributes:
        kind: what it was found as.
        features: those it is about.
        constraint: the constraint as a dict that `Constraints` reads; of a step ``{"features": {f: {"step": s}}}``,
            which `wrap` takes as its own argument.
        support: rows that speak for it; `exceptions`: rows against it. Missing values are neither.
        reason: one sentence.
        active: whether `to_yaml` writes it as a constraint; else it is written as a comment.
    """

    kind: SuggestionKind
    features: tuple[str, ...]
    constraint: Mapping[str, Any]
    support: int
    exceptions: int
    reason: str
    active: bool

    def __str__(self) -> str:
        shown = "; ".join(f"{key}: {value}" for key, value in self.constraint.items())
        return f"{shown}  ({self.support:,} for, {self.exceptions:,} against: {self.reason})"


@dataclass(frozen=True)
class Suggestions(Sequence[Suggestion]):
    """Constraints to be reviewed; nothing applies them.

    Attributes:
        found: the suggestions, in the order of the file.
        rows: rows that were looked at; `total`: rows of the table.
        seed: drew the rows where they are not all.
        skipped: columns that were not looked at -> why.
        notes: what else a reviewer should know, such as columns that look like keys.
    """

    found: tuple[Suggestion, ...]
    rows: int
    total: int
    seed: int
    skipped: Mapping[str, str]
    notes: tuple[str, ...]

    @overload
    def __getitem__(self, index: int) -> Suggestion: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Suggestion, ...]: ...
    def __getitem__(self, index: int | slice) -> Suggestion | tuple[Suggestion, ...]:
        return self.found[index]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[Suggestion]:
        return iter(self.found)

    @property
    def summary(self) -> str:
        """What was looked at, as one sentence."""
        part = f"{self.rows:,} rows" if self.rows == self.total else f"{self.rows:,} of {self.total:,} rows, drawn"
        drawn = "" if self.rows == self.total else f" with seed {self.seed}"
        active = sum(each.active for each in self.found)
        return (
            f"{len(self)} suggestions from {part}{drawn}: {active} without exceptions or known by name, "
            f"{len(self) - active} as comments. Relations among independent columns are suggested with a probability "
            f"of at most {FALSE_ALARMS:.0%} a table."
        )

    def __str__(self) -> str:
        named = [f"{name}: not looked at, {why}" for name, why in self.skipped.items()]
        return "\n".join([self.summary, *map(str, self.found), *self.notes, *named])

    def _repr_html_(self) -> str:
        """Return the suggestions as a table for notebooks, with what was not looked at."""
        rest = [*self.notes, *(f"{name}: not looked at, {why}" for name, why in self.skipped.items())]
        return cards.page(cards.told(self.summary), cards.table(self.to_frame()), cards.items(rest))

    def to_frame(self) -> pd.DataFrame:
        """Return one line per suggestion: kind, features, constraint, support, exceptions, reason, active."""
        columns = ["kind", "features", "constraint", "support", "exceptions", "reason", "active"]
        lines = [
            (each.kind, ", ".join(each.features), str(dict(each.constraint)), each.support, each.exceptions,
             each.reason, each.active)
            for each in self.found
        ]  # fmt: skip
        return pd.DataFrame(lines, columns=columns)

    def to_yaml(self) -> str:
        """Return a commented file that `Constraints.read` reads as it stands; every line below its figures."""
        from mlflow_cf.suggest.text import yaml_of  # noqa: PLC0415  it needs the types of this file

        return yaml_of(self)
