"""Sums that means, errors and quantiles are made of: of any part of the rows, and of parts put together.

Parts are put together as Chan, Golub and LeVeque (1983) do, so that rounding does not grow with how far values lie from
0. A `Tally` holds all sums of some rows as arrays, without pickle, for other processes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats

Counts = NDArray[np.int64]
LEAST_S: Final = 1e-6  # of the first step of `Quantiles`; less counts as much
STEP: Final = 1.01  # from one step to the next: their middle is within half a percent of all between
STEPS: Final = 2_600  # up to five days


class Sums(Protocol):
    """Sums of some rows, which can be put together with those of others."""

    def merged(self, other: Self) -> Self:
        """Return the sums of the rows of both."""
        ...

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return them as arrays by name."""
        ...


@dataclass(frozen=True, eq=False)
class _Arrays:
    """Sums whose fields are arrays."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fields by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, eq=False)
class Moments(_Arrays):
    """Counts, means and spread of columns by group, over the rows that have a value.

    Attributes:
        count: (g, k) rows that have a value.
        mean: (g, k) of them; 0 of none.
        squares: (g, k) sums of squared differences from the mean.
        least, largest: (g, k) of the values.
    """

    count: Counts
    mean: Floats
    squares: Floats
    least: Floats
    largest: Floats

    @classmethod
    def of(cls, values: Floats, members: Sequence[Bools]) -> Moments:
        """Return those of values (m, k) where they are not NaN, for groups with these members (m,)."""
        shape = len(members), values.shape[1]
        count, mean, squares = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)
        least, largest = np.full(shape, np.inf), np.full(shape, -np.inf)
        for at, rows in enumerate(members):
            own = values[rows]
            known = ~np.isnan(own)
            count[at] = known.sum(axis=0)
            mean[at] = np.where(known, own, 0.0).sum(axis=0) / np.maximum(count[at], 1)
            squares[at] = (np.where(known, own - mean[at], 0.0) ** 2).sum(axis=0)
            least[at] = np.where(known, own, np.inf).min(axis=0, initial=np.inf)
            largest[at] = np.where(known, own, -np.inf).max(axis=0, initial=-np.inf)
        return cls(count, mean, squares, least, largest)

    def merged(self, other: Moments) -> Moments:
        """Return those of the rows of both."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        apart = other.mean - self.mean
        return Moments(
            count,
            np.where(self.count == 0, other.mean, self.mean + apart * share),
            self.squares + other.squares + apart**2 * self.count * share,
            np.minimum(self.least, other.least),
            np.maximum(self.largest, other.largest),
        )

    @property
    def known_mean(self) -> Floats:
        """(g, k) the means; NaN of nothing."""
        return np.where(self.count > 0, self.mean, np.nan)

    @property
    def error(self) -> Floats:
        """(g, k) standard errors of the means: deviation (ddof 1) / sqrt(count); NaN below two."""
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.sqrt(self.squares / (self.count - 1) / self.count)
        return np.where(self.count > 1, found, np.nan)


@dataclass(frozen=True, eq=False)
class Together(_Arrays):
    """How two columns vary together by group, over the rows that have a value in both.

    Attributes:
        count: (g, k) rows; first, second: (g, k) the means of both columns; 0 of none.
        product: (g, k) sums of the products of the differences from these means.
    """

    count: Counts
    first: Floats
    second: Floats
    product: Floats

    @classmethod
    def of(cls, first: Floats, second: Floats, members: Sequence[Bools]) -> Together:
        """Return that of values (m, k) and (m, k) where neither is NaN, for groups with these members (m,)."""
        both = ~np.isnan(first) & ~np.isnan(second)
        a, b = Moments.of(np.where(both, first, np.nan), members), Moments.of(np.where(both, second, np.nan), members)
        product = np.zeros(a.mean.shape)
        for at, rows in enumerate(members):
            apart = (first[rows] - a.mean[at]) * (second[rows] - b.mean[at])
            product[at] = np.where(both[rows], apart, 0.0).sum(axis=0)
        return cls(a.count, a.mean, b.mean, product)

    def merged(self, other: Together) -> Together:
        """Return that of the rows of both."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        first, second = other.first - self.first, other.second - self.second
        return Together(
            count,
            np.where(self.count == 0, other.first, self.first + first * share),
            np.where(self.count == 0, other.second, self.second + second * share),
            self.product + other.product + first * second * self.count * share,
        )

    def about(self, first: Floats, second: Floats) -> Floats:
        """Return the sums (g, k) of the products of the differences from other centres (g, k)."""
        return self.product + self.count * (self.first - first) * (self.second - second)


@dataclass(frozen=True, eq=False)
class Quantiles(_Arrays):
    """How many positive values of each group lie in steps that grow by 1 %: quantiles within half a percent.

    Attributes:
        steps: (g, `STEPS`) counts.
    """

    steps: Counts

    @classmethod
    def of(cls, values: Floats, members: Sequence[Bools]) -> Quantiles:
        """Return that of values (m,) which are not NaN, for groups with these members (m,)."""
        with np.errstate(divide="ignore"):
            places = np.floor(np.log(np.maximum(values, LEAST_S) / LEAST_S) / np.log(STEP))
        known = ~np.isnan(values)
        places = np.where(known, np.clip(places, 0, STEPS - 1), 0).astype(np.intp)
        return cls(np.array([np.bincount(places[rows & known], minlength=STEPS) for rows in members], dtype=np.int64))

    def merged(self, other: Quantiles) -> Quantiles:
        """Return that of the rows of both."""
        return Quantiles(self.steps + other.steps)

    def at(self, share: float) -> Floats:
        """Return the values (g,) at a share of the rows: the middle of the step that it lies in; NaN of nothing."""
        total = self.steps.sum(axis=1)
        wanted = np.floor(share * np.maximum(total - 1, 0)).astype(np.int64) + 1
        place = (self.steps.cumsum(axis=1) < wanted[:, None]).sum(axis=1)
        return np.where(total > 0, LEAST_S * STEP ** (place + 0.5), np.nan)


@dataclass(frozen=True, eq=False)
class Shared(_Arrays):
    """Sums of what several explainers have measured of the same rows, by which of them had a value.

    Attributes:
        who: (s,) ascending; bit e stands for explainer e.
        count: (s,) rows; total: (s, e) sums of the values of each, 0 where it has none.
    """

    who: Counts
    count: Counts
    total: Floats

    @classmethod
    def of(cls, values: Floats) -> Shared:
        """Return that of values (m, e); NaN where an explainer has none."""
        known = ~np.isnan(values)
        masks = known @ (1 << np.arange(values.shape[1], dtype=np.int64))
        return cls._summed(masks, np.ones(len(values), np.int64), np.where(known, values, 0.0))

    @classmethod
    def _summed(cls, masks: Counts, count: Counts, total: Floats) -> Shared:
        who, places = np.unique(masks, return_inverse=True)
        counts, totals = np.zeros(len(who), np.int64), np.zeros((len(who), total.shape[1]))
        np.add.at(counts, places, count)
        np.add.at(totals, places, total)
        return cls(who, counts, totals)

    def merged(self, other: Shared) -> Shared:
        """Return that of the rows of both."""
        joined = (np.concatenate(pair) for pair in zip(self.arrays().values(), other.arrays().values(), strict=True))
        return Shared._summed(*joined)

    def means(self, alive: Bools) -> Floats:
        """Return the means (e,) over the rows that all have a value for who have any; NaN where there are none.

        Args:
            alive: (e,) whose values count.
        """
        who = self.who & int(alive @ (1 << np.arange(len(alive), dtype=np.int64)))
        ever = int(np.bitwise_or.reduce(who)) if len(who) else 0
        rows = (who == ever) & (ever > 0)
        count = int(self.count[rows].sum())
        has = np.array([bool(ever >> place & 1) for place in range(len(alive))])
        return np.where(has & (count > 0), self.total[rows].sum(axis=0) / max(count, 1), np.nan)


@dataclass(frozen=True, eq=False)
class Tally:
    """All sums of some rows.

    Attributes:
        sums: by name; the kind of each stands before its first ``/``: one of `KINDS`.
        failures: what could not be done, and why.
    """

    sums: Mapping[str, Sums]
    failures: Mapping[str, str]

    KINDS: ClassVar[Mapping[str, type[Any]]] = {
        "moments": Moments,
        "together": Together,
        "quantiles": Quantiles,
        "shared": Shared,
    }

    def merged(self, other: Tally) -> Tally:
        """Return the sums of the rows of both."""
        names = dict.fromkeys([*self.sums, *other.sums])
        return Tally({name: self._both(other, name) for name in names}, {**other.failures, **self.failures})

    def _both(self, other: Tally, name: str) -> Sums:
        own, theirs = self.sums.get(name), other.sums.get(name)
        if own is None or theirs is None:
            found = own if theirs is None else theirs
            assert found is not None  # noqa: S101  one of both has the name
            return found
        return own.merged(theirs)

    def to_bytes(self) -> bytes:
        """Return them as a compressed archive of arrays."""
        arrays = {f"{name}|{key}": array for name, one in self.sums.items() for key, array in one.arrays().items()}
        told = {f"failure|{name}": np.array(text) for name, text in self.failures.items()}
        written = io.BytesIO()
        np.savez_compressed(written, **arrays, **told)  # type: ignore[arg-type]
        return written.getvalue()

    @classmethod
    def from_bytes(cls, written: bytes) -> Tally:
        """Read what `to_bytes` has written."""
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        failures: dict[str, str] = {}
        with np.load(io.BytesIO(written), allow_pickle=False) as archive:
            for path in archive.files:
                name, _, key = path.rpartition("|")
                if name == "failure":
                    failures[key] = str(archive[path])
                else:
                    parts.setdefault(name, {})[key] = archive[path]
        return cls({name: cls.KINDS[name.partition("/")[0]](**one) for name, one in parts.items()}, failures)
