"""What all sets of levers of a row can do, as a sequence, a table or a picture."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, overload

import pandas as pd
from markupsafe import Markup

from mlflow_cf.features import FeatureSpace
from mlflow_cf.words.result import LeverSet
from mlflow_cf.words.sentences import counted

SHOWN: Final = 12  # sets in a text
CELL, LEFT, TOP, RIGHT = 22, 8, 10, 560  # pixels of the picture; RIGHT at least
LETTER: Final = 7  # pixels of a letter at most, on average
COLOURS: Final = {
    "found": "#2a7f62",
    "implied": "#a9d6c5",
    "infeasible": "#a8b0b8",
    "not_found": "#e8c468",
    "budget": "#e8c468",
}
WORDS: Final = {
    "implied": "a smaller set works",
    "infeasible": "nothing works (proved)",
    "not_found": "nothing was found",
    "budget": "not searched to the end",
}


@dataclass(frozen=True, eq=False, repr=False)
class Levers(Sequence[LeverSet]):
    """What each set of levers can do for one row, in the order in which they were asked for.

    Attributes:
        items: the sets.
        space: the model's features.
        already: whether the row is predicted as wanted, so that nothing was searched.
    """

    items: tuple[LeverSet, ...]
    space: FeatureSpace = field(repr=False)
    already: bool = False

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, at: int) -> LeverSet: ...

    @overload
    def __getitem__(self, at: slice) -> Levers: ...

    def __getitem__(self, at: int | slice) -> LeverSet | Levers:
        return Levers(self.items[at], self.space, self.already) if isinstance(at, slice) else self.items[at]

    @property
    def smallest(self) -> tuple[LeverSet, ...]:
        """The sets with an answer of their own, nearest first."""
        found = [one for one in self.items if one.counterfactual is not None]
        return tuple(sorted(found, key=lambda one: (one.distance or 0.0, len(one.features))))

    def to_frame(self) -> pd.DataFrame:
        """Return one line per set: features, status, distance, probability, proof, and its changes in words."""
        lines = [
            (" + ".join(one.features), one.status, one.distance, record["probability"], one.proof or "", _words(one))
            for one in self.items
            for record in [one.to_dict()]
        ]
        columns = ["features", "status", "distance", "probability", "proof", "changes"]
        numbers = {"distance": "float64", "probability": "float64"}
        return pd.DataFrame(lines, columns=columns).astype(numbers)

    def __repr__(self) -> str:
        return f"Levers({self.summary})"

    @property
    def summary(self) -> str:
        """How many sets there are of each status: ``78 sets: 5 found, 21 implied, 52 infeasible``."""
        if self.already:
            return "the row is predicted as wanted already"
        statuses = [one.status for one in self.items]
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
        return f"{counted(len(self), 'set')}: {counts}"

    def __str__(self) -> str:
        ordered = [*self.smallest, *(one for one in self.items if one.counterfactual is None)]
        lines = [f"{' + '.join(one.features)}: {_words(one)}" for one in ordered if one.status != "implied"]
        return "\n  ".join([self.summary, *lines[:SHOWN], *(["..."] if len(lines) > SHOWN else [])])

    def _repr_html_(self) -> str:
        """Return a picture for notebooks: a line per set, a column per feature, filled where the set has it."""
        from mlflow_cf import cards  # noqa: PLC0415  templates that no server needs

        lines = [*self.smallest, *(one for one in self.items if one.status not in ("found", "implied"))]
        picture = Markup(_picture(lines)) if lines else Markup()  # noqa: S704  names are escaped there
        return cards.page(cards.told(self.summary), picture)


def _words(one: LeverSet) -> str:
    """Return what a set can do: its changes, or why there are none."""
    if one.counterfactual is not None:
        return f"{one.counterfactual.text} (distance {one.distance:.3g}, {one.proof})"
    if one.by:
        return f"{' + '.join(one.by)} works by itself" if len(one.by) == 1 else f"{' + '.join(one.by)} work"
    return f"{WORDS[one.status]}{f': {one.reason}' if one.reason else ''}"


def _picture(lines: Sequence[LeverSet]) -> str:
    """Return a matrix of sets and features as SVG, with what each set can do beside it."""
    names = list(dict.fromkeys(name for one in lines for name in one.features))
    head = TOP + LETTER * max(map(len, names))  # names stand upright above their columns
    right = max(RIGHT, 2 * TOP + LETTER * max(len(_words(one)) for one in lines))
    width, height = LEFT + CELL * len(names) + right, head + CELL * len(lines) + TOP
    style = 'font-family="sans-serif" font-size="12" fill="currentColor"'
    parts = [f'<svg width="{width}" height="{height}" {style}>']
    for place, name in enumerate(names):
        x = LEFT + CELL * place + CELL // 2 + 4
        parts.append(f'<text transform="translate({x},{head - 6}) rotate(-90)">{html.escape(name)}</text>')
    for number, one in enumerate(lines):
        y = head + CELL * number
        for place, name in enumerate(names):
            fill = COLOURS[one.status] if name in one.features else "none"
            x, size = LEFT + CELL * place, CELL - 3
            parts.append(f'<rect x="{x}" y="{y}" width="{size}" height="{size}" fill="{fill}" stroke="#cccccc"/>')
        x = LEFT + CELL * len(names) + TOP
        parts.append(f'<text x="{x}" y="{y + CELL - 8}">{html.escape(_words(one))}</text>')
    return "".join([*parts, "</svg>"])
