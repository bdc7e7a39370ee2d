"""An independent judge of counterfactuals: slow plain Python over raw values, nothing of the package imported.

Every constraint key is decided here a second time, from its words alone, so that a mistake in the package's codes,
rules or tables cannot hide behind itself.
"""

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
    return bool(pd.isna(value))


def same(one: Any, two: Any) -> bool:
    if absent(one) or absent(two):
        return absent(one) and absent(two)
    return bool(one == two)


def one_row(background: pd.DataFrame, row: Row) -> pd.DataFrame:
    """Return `row` as a table of one row in the background's dtypes; categories grow if the level is new."""
    columns = {}
    for name in background.columns:
        dtype, value = background[name].dtype, row[name]
        if isinstance(dtype, pd.CategoricalDtype):
            known = dtype.categories.tolist()
            extra = [] if absent(value) or value in known else [value]
            columns[name] = pd.Categorical([value], categories=[*known, *extra], ordered=dtype.ordered)
        elif isinstance(dtype, np.dtype):
            columns[name] = np.array([np.nan if value is None and dtype.kind == "f" else value], dtype=dtype)
        else:
            columns[name] = pd.array([None if absent(value) else value], dtype=dtype)
    return pd.DataFrame(columns)


@dataclass(frozen=True)
class Checker:
    """What a counterfactual is checked against.

    `constraints` are dicts as users write them, the policy's and the request's, which hold together. `orders` names
    the levels of every ordinal, lowest first. `grids` gives (low, high, step) of numbers under ``values="grid"``.
    `rules` are conditions across features, as functions of (query row, counterfactual).
    """

    predict: Callable[[pd.DataFrame], Any]
    background: pd.DataFrame
    constraints: Sequence[Mapping[str, Any]]
    label: Any
    orders: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    values: str = "observed"
    grids: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    rules: Sequence[Condition] = ()

    def faults(self, query: Row, row: Row) -> list[str]:
        """Return everything that is wrong with `row` as a counterfactual of `query`; nothing: it holds."""
        if list(row) != list(self.background.columns):
            return [f"columns {list(row)}"]
        found = [*self.broken(query, row), *self.unknown_values(query, row)]
        predicted = np.asarray(self.predict(one_row(self.background, row)))[0]
        if predicted != self.label:
            found.append(f"predicted {predicted!r}")
        return found

    def accepts(self, query: Row, row: Row) -> bool:
        """Whether `row` meets everything but the prediction."""
        return not [*self.broken(query, row), *self.unknown_values(query, row)]

    def broken(self, query: Row, row: Row) -> Iterator[str]:
        """Yield every constraint that `row` breaks."""
        for number, constraints in enumerate(self.constraints, start=1):
            for name, old, new in ((name, query[name], row[name]) for name in row):
                yield from (f"{key} of {name}" for key in self.broken_keys(constraints, name, old, new))
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
        return [group for group in self.groups(first) if not all(same(query[name], row[name]) for name in group)]

    def _rank(self, name: str, value: Any) -> float | None:
        if absent(value):
            return None
        if name in self.orders:
            order = list(self.orders[name])
            return order.index(value) if value in order else None
        return float(value)

    def _not_below(self, name: str, one: Any, two: Any) -> bool:
        if same(one, two):
            return True
        first, second = self._rank(name, one), self._rank(name, two)
        return first is not None and second is not None and first >= second

    def _inside(self, name: str, value: Any, low: Any, high: Any) -> bool:
        if absent(value):
            return True
        return (low is None or self._not_below(name, value, low)) and (
            high is None or self._not_below(name, high, value)
        )

    def _offered(self, group: tuple[str, ...], row: Row) -> bool:
        if len(group) == 1 and self.values != "observed":
            (name,) = group
            if name in self.orders:
                return row[name] in self.orders[name]
            if name in self.grids:
                low, high, step = self.grids[name]
                steps = (row[name] - low) / step
                return low <= row[name] <= high + 1e-9 and abs(steps - round(steps)) < 1e-6
            column = self.background[name]
            if self.values == "continuous" and pd.api.types.is_float_dtype(column.dtype):
                return bool(column.min() <= row[name] <= column.max())
        return any(all(same(line[name], row[name]) for name in group) for line in self._observed)

    @cached_property
    def _observed(self) -> list[dict[str, Any]]:
        return self.background.astype(object).drop_duplicates().to_dict("records")


def _near_enough(old: Any, new: Any, limits: Mapping[str, Any]) -> bool:
    if same(old, new) or not any(limit is not None for limit in limits.values()):
        return True
    if absent(old) or absent(new):
        return False
    most = [limits[key] for key in ("up",) if limits.get(key) is not None]
    most += [abs(old) * (limits[key] / 100) for key in ("up_percent",) if limits.get(key) is not None]
    least = [limits[key] for key in ("down",) if limits.get(key) is not None]
    least += [abs(old) * (limits[key] / 100) for key in ("down_percent",) if limits.get(key) is not None]
    return all(new <= old + by for by in most) and all(new >= old - by for by in least)


@dataclass(frozen=True)
class Ruler:
    """The distance, written out a second time: one feature at a time, straight from its definition."""

    background: pd.DataFrame
    l0: float = 0.5
    l1: float = 0.5
    linf: float = 0.0
    scale: str = "range"
    weights: Mapping[str, float] = field(default_factory=dict)
    orders: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def distance(self, query: Row, row: Row) -> float:
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
        if same(old, new):
            return 0.0
        if absent(old) or absent(new):
            return 1.0
        if name in self.orders:
            order = list(self.orders[name])
            if old not in order or new not in order:
                return 1.0
            ranks = [order.index(value) for value in self._present(name)]
            spread = len(order) - 1.0 if self.scale == "range" else _deviation(ranks)
            return abs(order.index(new) - order.index(old)) / spread if spread else 1.0
        if isinstance(old, bool | str | np.bool_) or isinstance(self.background[name].dtype, pd.CategoricalDtype):
            return 1.0
        seen = [float(value) for value in self._present(name)]
        spread = max(seen) - min(seen) if self.scale == "range" else _deviation(seen)
        return abs(float(new) - float(old)) / spread if spread else 1.0

    def _present(self, name: str) -> list[Any]:
        return [value for value in self.background[name].tolist() if not absent(value)]


def _deviation(values: Sequence[float]) -> float:
    """Median absolute deviation; the standard deviation (n - 1) where that is 0."""
    middle = statistics.median(values)
    deviation = statistics.median(abs(value - middle) for value in values)
    if deviation > 0 or len(values) < 2:
        return deviation
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
