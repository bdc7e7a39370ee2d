"""An explanation computed again, and held against what was answered."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pandas as pd

from mlflow_cf.audit.record import Record, digest, digested_answer, row_values, table_of
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Rows

Verdict = Literal["identical", "cut", "different"]
# The model's own numbers for the row, which libraries round otherwise in a table of another size.
OF_THE_TABLE: Final = ("prediction", "probability")
ABSENT: Final = "nothing"


@dataclass(frozen=True)
class Difference:
    """One value that is not what was answered: where it stands in the record of the reply, then and now."""

    path: str
    answered: Any
    computed: Any

    def __str__(self) -> str:
        return f"{self.path}: was {self.answered!r}, is {self.computed!r}"


@dataclass(frozen=True)
class Replay:
    """What came of computing an explanation again.

    Attributes:
        verdict: ``identical``; ``different``; ``cut`` where it differs and the clock had ended the search, so that it
            cannot be expected to be identical.
        differences: what differs.
        notes: what else is to be known: another artifact, other libraries.
    """

    verdict: Verdict
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        differences = [{"path": d.path, "answered": d.answered, "computed": d.computed} for d in self.differences]
        return {"verdict": self.verdict, "differences": differences, "notes": list(self.notes)}


def replay(record: Record, explained: ExplainedModel, rows: Rows | None = None) -> Replay:
    """Compute a recorded explanation again.

    Query, seed and evaluations are those of the record. There is no clock, unless it was the clock that ended the
    search: then the same limit holds again.

    Args:
        record: what was answered.
        explained: the model that answered it, or another one to compare with.
        rows: the row among others, where the record holds its digest alone.

    Raises:
        InputError: the row is not at hand, does not fit the model, or the query goes beyond its policy.
    """
    table = _row(record, explained, rows)
    query = {**record.asked.query, "seed": record.answer["seed"], "max_evaluations": record.asked.max_evaluations}
    (again,) = explained.request(table, {"counterfactual": query}, timed=record.cut == "clock")
    computed = digested_answer(again.to_dict()) if record.digested else again.to_dict()
    tolerance = explained.model.tolerance if record.asked.rows > 1 else 0.0
    found = tuple(
        difference
        for difference in differences("", dict(record.answer), json.loads(json.dumps(computed)))
        if not (difference.path in OF_THE_TABLE and _near(difference, tolerance))
    )
    verdict: Verdict = "identical" if not found else "cut" if record.cut == "clock" else "different"
    return Replay(verdict, found)


def _row(record: Record, explained: ExplainedModel, rows: Rows | None) -> pd.DataFrame:
    """Return the table (1, d) of the recorded row, which must have the recorded digest."""
    space = explained.space
    if rows is not None:
        return table_of(space, _with_digest(record, explained, rows))
    if record.row is None:
        fact = "it holds a digest of its row instead of the row"
        raise InputError("trace", fact, "pass the row, perhaps among others: --rows FILE")
    if digest(record.row) != record.row_sha256:
        raise InputError("trace", "its row has another digest than was noted with it", "look for who changed it")
    return table_of(space, record.row)


def _with_digest(record: Record, explained: ExplainedModel, rows: Rows) -> dict[str, Any]:
    """Return the values of the one among `rows` that was explained."""
    numbers: Sequence[int] = range(len(rows))
    for values in row_values(explained.space, rows, numbers).values():
        if digest(values) == record.row_sha256:
            return values
    fact = f"none of {len(numbers)} has the digest of the trace, {record.row_sha256[:12]}..."
    raise InputError("rows", fact, "pass the very row that was explained, with all its columns")


def differences(path: str, old: Any, new: Any) -> Iterator[Difference]:
    """Yield where two JSON values differ, each at the deepest place; 1 and 1.0 are the same, 1 and true are not."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from differences(f"{path}.{key}" if path else key, old.get(key, ABSENT), new.get(key, ABSENT))
    elif isinstance(old, list) and isinstance(new, list):
        for place in range(max(len(old), len(new))):
            pair = (both[place] if place < len(both) else ABSENT for both in (old, new))
            yield from differences(f"{path}[{place}]", *pair)
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield Difference(path, old, new)


def _near(difference: Difference, tolerance: float) -> bool:
    """Whether two numbers differ by rounding alone."""
    both = (difference.answered, difference.computed)
    if not all(isinstance(value, float) for value in both):
        return False
    return math.isclose(*both, rel_tol=tolerance, abs_tol=tolerance)
