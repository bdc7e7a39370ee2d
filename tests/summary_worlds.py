"""Common changes of the rows of small random tables, written out a second time, and what enumeration finds."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from checker import Checker
from worlds import GRADES, table

from mlflow_cf.model.judge import OpenModel

NUMBERS = ("age", "income", "rooms")
Aim = tuple[str, str, Any]


def rank(name: str, value: Any) -> float:
    return float(GRADES.index(value) if name == "grade" else value)


def turned_into(row: dict[str, Any], change: tuple[Aim, ...]) -> dict[str, Any]:
    new = dict(row)
    for name, bound, value in change:
        if bound == "equal":
            new[name] = value
        elif row[name] is not None and (name != "grade" or row[name] in GRADES):
            short = rank(name, row[name]) < rank(name, value)
            new[name] = value if short == (bound == "at_least") else row[name]
    return new


def words(change: tuple[Aim, ...]) -> str:
    parts = []
    for name, bound, value in change:
        beyond = {"equal": "", "at_least": " or more", "at_most": " or less"}[bound]
        beyond = beyond.replace("more", "higher").replace("less", "lower") if name == "grade" else beyond
        goal = ("yes" if value else "no") if isinstance(value, bool) else f"{value:g}" if name in NUMBERS else value
        parts.append(f"{name} to {goal}{beyond}")
    return " and ".join(parts)


def every_change(frame: pd.DataFrame, rows: Sequence[dict[str, Any]]) -> Iterator[tuple[Aim, ...]]:
    """Yield all changes of one or two features to values of the background."""
    aims: list[Aim] = []
    for name in frame.columns:
        values = [value.item() if isinstance(value, np.generic) else value for value in frame[name].dropna().unique()]
        ordered = name in NUMBERS or name == "grade"
        bounds = ["at_least", "at_most"] if ordered else ["equal"]
        if name == "grade" and any(row[name] not in GRADES for row in rows):
            bounds.append("equal")
        aims.extend((name, bound, value) for bound in bounds for value in values)
    yield from ((aim,) for aim in aims)
    yield from ((one, two) for one, two in combinations(aims, 2) if one[0] != two[0])


def turned_by(
    frame: pd.DataFrame, rows: Sequence[dict[str, Any]], model: OpenModel, checker: Checker, wanted: Any = "yes"
) -> dict[tuple[Aim, ...], int]:
    """Return which rows each change turns lawfully, as the bits of a number; none that turns nothing."""
    tried = [
        (change, at, new)
        for change in every_change(frame, rows)
        for at, row in enumerate(rows)
        if (new := turned_into(row, change)) != row and checker.accepts(row, new)
    ]
    found: dict[tuple[Aim, ...], int] = {}
    labels = model.decide(table([new for _, _, new in tried], frame)) if tried else []
    for (change, at, _), label in zip(tried, labels, strict=True):
        if label == wanted:
            found[change] = found.get(change, 0) | 1 << at
    return found


def most_covered(masks: Sequence[int], most: int) -> int:
    """Return how many bits so many of the numbers have together at most, by looking at all choices."""
    kinds = set(masks)
    kept = [one for one in kinds if not any(one != other and one & other == one for other in kinds)]
    best = 0
    for chosen in combinations(kept, min(most, len(kept))):
        together = 0
        for one in chosen:
            together |= one
        best = max(best, together.bit_count())
    return best
