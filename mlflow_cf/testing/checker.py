"""An independent checker of counterfactuals: slow plain Python over raw values, nothing of the package imported.

Every constraint key is decided here a second time, from its words alone, so that a mistake in the package's codes,
rules or tables cannot hide behind itself. Rows are dicts of plain values: None for missing, ISO strings for dates.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

Row = Mapping[str, Any]
Condition = Callable[[Row, Row], bool]


def absent(value: Any) -> bool:
    """Whether a value is missing."""
    return bool(pd.isna(value))


def same(one: Any, two: Any) -> bool:
    """Whether two values are equal; missing equals missing."""
    if absent(one) or absent(two):
        return absent(one) and absent(two)
    return bool(one == two)


def plain_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as dicts of plain values."""
    return [{str(name): _plain(v) for name, v in row.items()} for row in frame.astype(object).to_dict("records")]


def table_of(rows: Sequence[Row], like: pd.DataFrame) -> pd.DataFrame:
    """Return plain rows as a table in the dtypes of `like`; categories grow by levels they lack.

    Missing values of object columns are NaN or None, as in `like`.
    """
    return pd.DataFrame({name: _column([row[name] for row in rows], like[name]) for name in like.columns})


@dataclass(frozen=True)
class Checker:
    """Decides whether a row respects all constraints as a counterfactual of another.

    Attributes:
        background: raw rows.
        constraints: dicts as users write them, the policy's and then the request's, which hold together.
        orders: the levels of every ordinal, lowest first.
        values: which values may be proposed: observed, grid or continuous.
        grids: (low, high, step) of the numbers that keep to steps under ``grid`` and ``continuous``.
        rules: conditions across features, as functions of (query row, counterfactual).
    """

    background: pd.DataFrame
    constraints: Sequence[Mapping[str, Any]]
    orders: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    values: str = "observed"
    grids: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    rules: Sequence[Condition] = ()

    def accepts(self, query: Row, row: Row) -> bool:
        """Whether `row` respects everything as a counterfactual of `query`."""
        return not [*self.broken(query, row), *self.unknown_values(query, row)]

    def faults(self, query: Row, row: Row) -> list[str]:
        """Return everything that is wrong with `row` as a counterfactual of `query`; nothing: it holds."""
        if list(row) != list(self.background.columns):
            return [f"columns {list(row)}"]
        return [*self.broken(query, row), *self.unknown_values(query, row)]

    def broken(self, query: Row, row: Row) -> Iterator[str]:
        """Yield every constraint that `row` breaks."""
        for number, constraints in enumerate(self.constraints, start=1):
            for name in row:
                for key in self.broken_keys(constraints, name, query[name], row[name]):
                    yield f"{key} of {name}: {query[name]!r} to {row[name]!r}"
            most = constraints.get("max_changes")
            # the policy counts by its own groups, whatever groups a request adds
            if most is not None and len(self.changed_groups(query, row, number)) > most:
                yield f"max_changes {most}"
        if not self.changed_groups(query, row):
            yield "nothing changed"
        yield from (f"rules[{number}]" for number, rule in enumerate(self.rules) if not rule(query, row))

    def broken_keys(self, constraints: Mapping[str, Any], name: str, old: Any, new: Any) -> Iterator[str]:
        """Yield the keys about one feature that its move from `old` to `new` breaks."""
        if name in constraints.get("immutable", ()) and not same(old, new):
            yield "immutable"
        if name in constraints.get("increasing", ()) and not self._not_below(name, new, old):
            yield "increasing"
        if name in constraints.get("decreasing", ()) and not self._not_below(name, old, new):
            yield "decreasing"
        if name in constraints.get("ranges", {}) and not self._inside(name, new, *constraints["ranges"][name]):
            yield "ranges"
        if name in constraints.get("relative", {}) and not _near_enough(old, new, constraints["relative"][name]):
            yield "relative"
        if name in constraints.get("levels", {}) and not absent(new) and new not in constraints["levels"][name]:
            yield "levels"
        for gone, come in constraints.get("forbidden", {}).get(name, ()):
            if not same(old, new) and same(old, gone) and same(new, come):
                yield "forbidden"

    def unknown_values(self, query: Row, row: Row) -> Iterator[str]:
        """Yield what `row` proposes although `values` does not offer it, or although it is missing."""
        for group in self.changed_groups(query, row):
            if any(absent(row[name]) and not absent(query[name]) for name in group):
                yield f"missing proposed in {group}"
            elif not self._offered(group, row):
                yield f"{[row[name] for name in group]} not offered for {group}"

    def groups(self, first: int | None = None) -> list[tuple[str, ...]]:
        """Return the groups of the first dicts of constraints, or of all; a lone feature is a group of one."""
        declared = [tuple(group) for constraints in self.constraints[:first] for group in constraints.get("groups", ())]
        grouped = {name for group in declared for name in group}
        return [*dict.fromkeys(declared), *((name,) for name in self.background.columns if name not in grouped)]

    def changed_groups(self, query: Row, row: Row, first: int | None = None) -> list[tuple[str, ...]]:
        """Return the groups in which `row` differs from `query`."""
        return [group for group in self.groups(first) if not all(same(query[name], row[name]) for name in group)]

    @cached_property
    def _seen(self) -> list[dict[str, Any]]:
        return plain_rows(self.background)

    def _rank(self, name: str, value: Any) -> float | None:
        if absent(value):
            return None
        if name in self.orders:
            order = list(self.orders[name])
            return order.index(value) if value in order else None
        return _number(value)

    def _not_below(self, name: str, one: Any, two: Any) -> bool:
        if same(one, two):
            return True
        first, second = self._rank(name, one), self._rank(name, two)
        return first is not None and second is not None and first >= second

    def _inside(self, name: str, value: Any, low: Any, high: Any) -> bool:
        if absent(value):
            return True
        above = low is None or self._not_below(name, value, low)
        return above and (high is None or self._not_below(name, high, value))

    def _offered(self, group: tuple[str, ...], row: Row) -> bool:
        if len(group) == 1 and self.values != "observed":
            (name,) = group
            if name in self.orders:
                return row[name] in self.orders[name]
            if name in self.grids:
                low, high, step = self.grids[name]
                steps = (_number(row[name]) - low) / step
                return low <= _number(row[name]) <= high + 1e-9 and abs(steps - round(steps)) < 1e-6
            column = self.background[name]
            if self.values == "continuous" and pd.api.types.is_float_dtype(column.dtype):
                return bool(column.min() <= row[name] <= column.max())
        return any(all(same(seen[name], row[name]) for name in group) for seen in self._seen)


@dataclass(frozen=True)
class Ruler:
    """The distance, written out a second time: one feature at a time, straight from its definition.

    Attributes:
        background, orders: as in `Checker`.
        l0, l1, linf, scale, weights: as in `Distance`.
    """

    background: pd.DataFrame
    l0: float = 0.5
    l1: float = 0.5
    linf: float = 0.0
    scale: str = "range"
    weights: Mapping[str, float] = field(default_factory=dict)
    orders: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def distance(self, query: Row, row: Row) -> float:
        """Return the distance of `row` from `query`."""
        names = list(self.background.columns)
        weight = {name: self.weights.get(name, 1.0) for name in names}
        change = {name: self.change(name, query[name], row[name]) for name in names}
        everything = sum(weight.values())
        return (
            self.l0 * sum(weight[name] for name in names if not same(query[name], row[name])) / everything
            + self.l1 * sum(weight[name] * change[name] for name in names) / everything
            + self.linf * max(weight[name] * change[name] for name in names) / max(weight.values())
        )

    def change(self, name: str, old: Any, new: Any) -> float:
        """Return the scaled change of one feature."""
        if same(old, new):
            return 0.0
        if absent(old) or absent(new):
            return 1.0
        if name in self.orders:
            order = list(self.orders[name])
            if old not in order or new not in order:
                return 1.0
            ranks = [float(order.index(value)) for value in self._present[name]]
            return self._moved(order.index(old), order.index(new), ranks, (0.0, len(order) - 1.0))
        if not self._is_quantity(name):
            return 1.0
        seen = [_number(value) for value in self._present[name]]
        return self._moved(_number(old), _number(new), seen, (min(seen), max(seen)))

    def _moved(self, old: float, new: float, seen: list[float], ends: tuple[float, float]) -> float:
        """Return the change of a number beside those `seen` in the background, and its lowest and highest value."""
        extent = ends[1] - ends[0]
        if self.scale == "percentile" and extent:
            below = [_rows_below(value, seen, extent) for value in (old, new)]
            return abs(below[1] - below[0]) / len(seen)
        spread = _deviation(seen) if self.scale == "mad" else extent
        return abs(new - old) / spread if spread else 1.0

    def _is_quantity(self, name: str) -> bool:
        dtype = self.background[name].dtype
        if pd.api.types.is_datetime64_any_dtype(dtype):
            return True
        levels = isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(dtype)
        return not levels and not any(isinstance(value, bool | str) for value in self._present[name])

    @cached_property
    def _present(self) -> dict[str, list[Any]]:
        rows = plain_rows(self.background)
        return {name: [row[name] for row in rows if not absent(row[name])] for name in self.background.columns}


def _plain(value: Any) -> Any:
    if absent(value):
        return None
    if isinstance(value, pd.Timestamp):
        return value.date().isoformat() if value == value.normalize() else value.isoformat()
    return value.item() if isinstance(value, np.generic) else value


def _column(values: list[Any], like: pd.Series[Any]) -> Any:
    dtype: Any = like.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        known = dtype.categories.tolist()
        new = [value for value in dict.fromkeys(values) if not absent(value) and value not in known]
        return pd.Series(pd.Categorical(values, categories=[*known, *new], ordered=dtype.ordered))
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return pd.Series(pd.to_datetime(values), dtype=dtype)
    nan = dtype.kind == "f" or (dtype.kind == "O" and any(isinstance(value, float) for value in like[like.isna()]))
    return pd.Series([np.nan if value is None and nan else value for value in values], dtype=dtype)


def _number(value: Any) -> float:
    """Return a number, or a date in days."""
    if not isinstance(value, str):
        return float(value)
    return (pd.Timestamp(value) - pd.Timestamp(0)) / pd.Timedelta(days=1)


def _near_enough(old: Any, new: Any, limits: Mapping[str, Any]) -> bool:
    if same(old, new) or all(limit is None for limit in limits.values()):
        return True
    if absent(old) or absent(new):
        return False
    for key in (key for key, limit in limits.items() if limit is not None):
        by = abs(old) * (limits[key] / 100) if key.endswith("_percent") else limits[key]
        if not (new <= old + by if key.startswith("up") else new >= old - by):
            return False
    return True


def _rows_below(value: float, seen: Sequence[float], extent: float) -> float:
    """Return how many of the values `seen` are smaller, half of those that are equal; in between, in proportion."""
    low, high = min(seen), max(seen)
    if not low <= value <= high:
        end = low if value < low else high
        return _rows_below(end, seen, extent) + (value - end) / extent * len(seen)
    before, after = max(v for v in seen if v <= value), min(v for v in seen if v >= value)
    counted = [sum(v < end for v in seen) + sum(v == end for v in seen) / 2 for end in (before, after)]
    return counted[0] + (counted[1] - counted[0]) * ((value - before) / (after - before) if after > before else 0.0)


def _deviation(values: Sequence[float]) -> float:
    """Return the median absolute deviation; the standard deviation (n - 1) where that is 0."""
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    if deviation > 0 or len(values) < 2:
        return deviation
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
