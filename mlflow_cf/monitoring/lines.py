"""Served answers as columns: one line per answered row, whatever store or file they were read from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed_to
from functools import cached_property
from typing import Any, Final, cast, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure.bins import Grouper
from mlflow_cf.evaluation.measure.lines import MISSING
from mlflow_cf.features import Floats
from mlflow_cf.monitoring.grouping import Grouped
from mlflow_cf.words.result import Proof, Status

Ints = NDArray[np.intp]
STATUSES: Final[tuple[str, ...]] = get_args(Status)
PROOFS: Final[tuple[str, ...]] = get_args(Proof)
NUMBERS: Final = ("distance", "n_changed", "seconds", "answer")
TRUTHS: Final = ("acted", "wanted", "complete")
TEXTS: Final = ("request", "model", "proof")
LISTS: Final = ("changed", "adopted")
ARRAYS: Final = ("time", "rows", "status", "days", *NUMBERS, *TRUTHS, *TEXTS)  # of `Lines`, one value for each of them
KNOWN: Final = ("time", "status", "rows", *NUMBERS, *TRUTHS, *TEXTS, *LISTS, "acted_at")
GROUP_TAG: Final = "cf.group."  # and a column: what an owner may tag traces with
COUNTED: Final = "counted"  # lines that stand for rows of which no more than the status is known
SKEW: Final = pd.Timedelta("1h")  # how far a clock may be ahead of ours
EARLY: Final = "people acted before they had the answer, as clocks have it: the time to act is not known"
SPOKEN: Final = {"true": 1.0, "false": 0.0}
UNREAD: Final = {
    **{name: f"values of {name} that are neither true nor false, and tell nothing" for name in TRUTHS},
    "acted_at": "values of acted_at that are no time, and tell nothing",
    "rows": "values of rows that are no number of rows, and count as 1",
}
MILLISECONDS: Final = 1e11  # since 1970, numbers from here on: it is 1973, and nothing was served before


@dataclass(frozen=True, eq=False)
class Named:
    """Which features each line names.

    Attributes:
        names: of all features that any line names.
        known: (m,) lines of which it is known which features they name.
        lines, features: (n,) the pairs: a line, and the number of a feature that it names.
    """

    names: tuple[str, ...]
    known: Bools
    lines: Ints
    features: Ints

    @classmethod
    def of(cls, lists: Sequence[Sequence[str] | None]) -> Named:
        """Return the features of lines that are lists of names, or None where they are not known."""
        sizes = np.array([0 if one is None else len(one) for one in lists], dtype=np.intp)
        flat = [str(name) for one in lists if one is not None for name in one]
        codes, names = pd.factorize(np.array(flat, dtype=object), sort=True)
        known = np.array([one is not None for one in lists], dtype=np.bool_)
        return cls(tuple(names), known, np.repeat(np.arange(len(lists)), sizes), codes.astype(np.intp))

    def take(self, kept: Bools) -> Named:
        """Return what is named by some of the lines (m,)."""
        places = np.cumsum(kept) - 1
        own = kept[self.lines]
        return Named(self.names, self.known[kept], places[self.lines[own]], self.features[own])

    def followed_by(self, other: Named) -> Named:
        """Return what these lines and then those of another table name."""
        names = tuple(sorted({*self.names, *other.names}))
        place = {name: at for at, name in enumerate(names)}
        codes = [np.array([place[name] for name in one.names], dtype=np.intp) for one in (self, other)]
        return Named(
            names,
            np.concatenate([self.known, other.known]),
            np.concatenate([self.lines, other.lines + len(self.known)]),
            np.concatenate([codes[0][self.features], codes[1][other.features]]),
        )


@dataclass(frozen=True, eq=False)
class Lines:
    """Answers in the order of time; an array (m,) has NaN, or "", where nothing is known.

    Attributes:
        time: (m,) nanoseconds since 1970, UTC.
        rows: (m,) how many rows a line stands for: more than one where answers have only been counted.
        request, status, model, proof: (m,) texts.
        distance, n_changed, seconds: (m,) of the nearest answer, and what it took.
        acted, wanted, complete: (m,) 0 or 1: whether the person acted on it, was decided as wanted then, and made all
            changes of the answer that they followed.
        answer: (m,) the number of the answer that they followed, 1 for the first.
        days: (m,) from the answer until the person acted.
        changed, adopted: the features that the nearest answer changes, and those the person has changed as advised.
        groups: (m, g) the group of every line as text.
        groupers: what tells it, by column.
        skipped: why lines were left out -> how many.
    """

    time: NDArray[np.int64]
    rows: Floats
    request: NDArray[np.object_]
    status: NDArray[np.object_]
    model: NDArray[np.object_]
    proof: NDArray[np.object_]
    distance: Floats
    n_changed: Floats
    seconds: Floats
    answer: Floats
    acted: Floats
    wanted: Floats
    complete: Floats
    days: Floats
    changed: Named
    adopted: Named
    groups: pd.DataFrame
    groupers: Mapping[str, Grouper] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.time)

    @cached_property
    def models(self) -> dict[str, int]:
        """How many lines are of each model, the most first; "" where none is named."""
        return dict(Counter(self.model.tolist()).most_common())

    def take(self, kept: Bools) -> Lines:
        """Return some of the lines."""
        return changed_to(
            self,
            **{name: getattr(self, name)[kept] for name in ARRAYS},
            changed=self.changed.take(kept),
            adopted=self.adopted.take(kept),
            groups=self.groups[kept].reset_index(drop=True),
        )

    def followed_by(self, other: Lines) -> Lines:
        """Return these lines, then those of another table, which is grouped by the same columns."""
        both: dict[str, Any] = {name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in ARRAYS}
        return changed_to(
            self,
            **both,
            changed=self.changed.followed_by(other.changed),
            adopted=self.adopted.followed_by(other.adopted),
            groups=pd.concat([self.groups, other.groups], ignore_index=True),
        )

    def without(self, dropped: Bools, why: str) -> Lines:
        """Return the other lines, and count these as left out."""
        if not dropped.any():
            return self
        skipped = {**self.skipped, why: self.skipped.get(why, 0) + int(self.rows[dropped].sum())}
        return changed_to(self.take(~dropped), skipped=skipped)


def lines_of(raw: pd.DataFrame, groups: Grouped | None, skipped: Mapping[str, int]) -> Lines:
    """Return the lines of a table with some of the columns `KNOWN`, and `COUNTED`, and their groups.

    Lines without a readable time, or with a status that does not exist, are left out and counted; times that are not
    in order are put into it.
    """
    time = moments(raw, "time")
    status = raw["status"].astype(object).to_numpy()
    unclear, unknown = np.isnat(time), ~pd.Series(status).isin(STATUSES).to_numpy()
    order = np.argsort(time, kind="stable")
    labels = pd.DataFrame(index=range(len(raw))) if groups is None else groups.labels.reset_index(drop=True)
    if COUNTED in raw:  # nobody knows whose rows they are
        labels.loc[raw[COUNTED].to_numpy(dtype=np.bool_)] = np.nan
    numbers: dict[str, Any] = {name: _numbers(raw, name) for name in (*NUMBERS, *TRUTHS)}
    days = (moments(raw, "acted_at") - time) / np.timedelta64(1, "D")
    texts: dict[str, Any] = {name: _texts(raw, name) for name in TEXTS}
    found = Lines(
        time=time.astype(np.int64),
        rows=_numbers(raw, "rows"),
        status=status,
        days=days,
        changed=Named.of(_lists(raw, "changed")),
        adopted=Named.of(_lists(raw, "adopted")),
        groups=labels,
        groupers={} if groups is None else groups.groupers,
        skipped=dict(skipped),
        **numbers,
        **texts,
    )
    found = _in_order(_measurable(found), order)
    found = found.without(unclear[order], "their time cannot be read")
    late = unknown[order][~unclear[order]]
    return found.without(late, "their status is not known")


def moments(raw: pd.DataFrame, name: str) -> NDArray[np.datetime64]:
    """Return the moments (m,) of a column in UTC: dates, texts of them, or milliseconds since 1970.

    What lies before 1973, or behind the last nanosecond that 64 bits count to in 2262, stands for a time that is not
    known: it is none.
    """
    if name not in raw:
        return np.full(len(raw), np.datetime64("NaT", "ns"))
    column = raw[name]
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        numbers = column.to_numpy(np.float64, na_value=np.nan)
        column = pd.Series(np.where(numbers >= MILLISECONDS, numbers, np.nan))
        read = pd.to_datetime(column, unit="ms", utc=True, errors="coerce")
    else:
        read = pd.to_datetime(column, utc=True, errors="coerce", format="mixed" if _is_text(column) else None)
    read = read.dt.tz_localize(None)
    read = read.where(read.between(pd.Timestamp(MILLISECONDS, unit="ms"), pd.Timestamp.max))
    return cast("NDArray[np.datetime64]", read.to_numpy("datetime64[ns]"))


def unread(raw: pd.DataFrame) -> dict[str, int]:
    """Return what is to be said of values that are told and cannot be read, and of how many."""
    rows = _numbers(raw, "rows")
    read = {name: np.isin(_numbers(raw, name), (0.0, 1.0)) for name in TRUTHS}
    read |= {"acted_at": ~np.isnat(moments(raw, "acted_at")), "rows": np.isfinite(rows) & (rows >= 0)}
    counts = {name: int((raw[name].notna() & ~known).sum()) for name, known in read.items() if name in raw}
    return {UNREAD[name]: count for name, count in counts.items() if count}


def named(value: Any) -> list[str] | None:
    """Return a list of features however a table holds it: a list, JSON of one, or names parted by commas."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                return named(json.loads(text))
            except json.JSONDecodeError:
                return None
        return [part.strip() for part in text.split(",") if part.strip()]
    if isinstance(value, list | tuple | np.ndarray):
        return [str(one) for one in value]
    return None


def _measurable(lines: Lines) -> Lines:
    """Return lines whose numbers can be: what is infinite, negative, or no truth is not known."""
    cleaned: dict[str, Any] = {}
    for name in (*NUMBERS, *TRUTHS, "days"):
        one = getattr(lines, name)
        possible = np.isin(one, (0.0, 1.0)) if name in TRUTHS else np.isfinite(one) & (one >= 0)
        cleaned[name] = np.where(possible, one, np.nan)
    rows = np.where(np.isfinite(lines.rows) & (lines.rows >= 0), lines.rows, 1.0)
    early = int((lines.days < 0).sum())
    told = {**lines.skipped, **({EARLY: early} if early else {})}
    return changed_to(lines, rows=rows, skipped=told, **cleaned)


def _in_order(lines: Lines, order: Ints) -> Lines:
    if (order == np.arange(len(order))).all():
        return lines
    places = np.empty(len(order), dtype=np.intp)
    places[order] = np.arange(len(order))
    moved: dict[str, Any] = {name: getattr(lines, name)[order] for name in ARRAYS}
    moved |= {
        name: Named(one.names, one.known[order], places[one.lines], one.features)
        for name, one in (("changed", lines.changed), ("adopted", lines.adopted))
    }
    return changed_to(lines, **moved, groups=lines.groups.iloc[order].reset_index(drop=True))


def _numbers(raw: pd.DataFrame, name: str) -> Floats:
    if name not in raw:
        return np.full(len(raw), np.nan)
    column = raw[name]
    if not pd.api.types.is_numeric_dtype(column):
        plain = [SPOKEN.get(one.strip().lower(), one) if isinstance(one, str) else one for one in column.tolist()]
        column = pd.to_numeric(pd.Series(plain, dtype=object), errors="coerce")
    return column.to_numpy(np.float64, na_value=np.nan)


def _texts(raw: pd.DataFrame, name: str) -> NDArray[np.object_]:
    if name not in raw:
        return np.full(len(raw), "", dtype=object)
    column = raw[name].astype(object)
    return column.where(column.notna(), "").map(str).to_numpy(dtype=object)


def _lists(raw: pd.DataFrame, name: str) -> list[list[str] | None]:
    return [named(one) for one in raw[name].tolist()] if name in raw else [None] * len(raw)


def _is_text(column: pd.Series) -> bool:
    return not pd.api.types.is_datetime64_any_dtype(column)


def check_groups(lines: Lines) -> None:
    """Refuse groups that no answer tells.

    Raises:
        InputError: there are some, of which every answer that is not only counted has none.
    """
    for name in lines.groups:
        labels = lines.groups[name].dropna()
        if len(labels) and (labels == MISSING).all():
            fix = f"trace rows instead of digests, or give traces tags {GROUP_TAG}{name}"
            raise InputError(f"groups.{name}", "no answer tells it", fix)


def only_of(lines: Lines, model: str | None) -> Lines:
    """Return the lines of one model: the one that is named, or the only one there is; "all" takes all together.

    Raises:
        InputError: there are several and none is named, or none of this name.
    """
    if model == "all":
        return lines
    told = ", ".join(f"{name or 'no name'} ({count:,})" for name, count in list(lines.models.items())[:6])
    if model is None:
        if len(lines.models) > 1:
            fix = "name one: model='...'; or take them together: model='all'"
            raise InputError("model", f"there are answers of {len(lines.models)} models: {told}", fix)
        return lines
    if model not in lines.models:
        raise InputError("model", f"no answer is of {model!r}", f"there are: {told}" if told else "")
    return lines.without(lines.model != model, "they are of other models")
