"""Pairs of numbers of which one never exceeds the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.plaf import Compared, Reference, Sign, Statement
from mlflow_cf.suggest.chance import MOST_EXCEPTIONS, few, log_tail, within_chance
from mlflow_cf.suggest.columns import Column, Sample
from mlflow_cf.suggest.names import alike, quotable
from mlflow_cf.suggest.result import Suggestion, SuggestionKind

FIRST_LOOK: Final = 0.03  # share of exceptions among the few rows that all pairs are compared on
INFORMATIVE: Final = 0.01  # least share of exceptions that independent columns would have: else the ranges tell it all
SAME_SCALE: Final = 10.0  # how many times as wide one range may be as the other; squared where names share a word
MOST_PAIRS: Final = 20_000  # that are compared on all rows: some 0.2 ms each at 100,000 rows
MOST_TESTED: Final = 5_000  # of these, the strict ones first, that are compared with chance: some 0.3 ms each
MOST_RANKED: Final = 10_000  # values of a column by which chance is computed

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Order:
    """How often the first of two columns is at most the second.

    Attributes:
        low, high: positions of the columns, `low` being the one that should not exceed.
        support, exceptions: rows.
        equal: whether they are equal in all rows.
    """

    low: int
    high: int
    support: int
    exceptions: int
    equal: bool


def orders(sample: Sample, notes: list[str]) -> Iterator[Suggestion]:
    """Yield order pairs, the strict ones without those that follow from two others.

    Args:
        sample: the rows.
        notes: gets a sentence where not all pairs could be compared.
    """
    columns = [c for c in sample.columns if c.numeric and quotable(c.name)]
    pairs = _candidates(columns, sample.spread)
    if len(pairs) > MOST_PAIRS:
        notes.append(f"{len(pairs) - MOST_PAIRS:,} pairs of numbers that may be ordered were not compared")
    considered = max(len(columns) * (len(columns) - 1), 1)
    measured = (_measured(columns, low, high) for low, high in pairs[:MOST_PAIRS])
    needed = _needed([order for order in measured if order is not None], len(columns))
    needed.sort(key=lambda order: order.exceptions > 0)
    if len(needed) > MOST_TESTED:
        notes.append(f"{len(needed) - MOST_TESTED:,} pairs of numbers that are nearly ordered were not looked into")
        needed = needed[:MOST_TESTED]
    ranked = {place: _thinned(columns[place].ascending) for place in {p for o in needed for p in (o.low, o.high)}}
    for order in needed:
        if _holds(order, ranked[order.low], ranked[order.high], considered):
            yield _suggested(order, columns)


def _thinned(ascending: Floats) -> Floats:
    """Return evenly spaced order statistics: rates of chance are then right to some 0.0002."""
    return ascending[:: -(-len(ascending) // MOST_RANKED)]


def _candidates(columns: list[Column], spread: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return pairs (low, high) of like scale with few exceptions among a few rows, the closest first."""
    if not columns:
        return []
    few_rows = np.stack([column.values[spread] for column in columns])
    lows, highs = (np.array([end(c.values) for c in columns]) for end in (np.nanmin, np.nanmax))
    width, dates = highs - lows, np.array([column.kind == "date" for column in columns])
    binary = np.array([column.binary for column in columns])
    pairs = []
    for low, column in enumerate(columns):
        exceeding = (few_rows[low] > few_rows).sum(axis=1)
        both = (~np.isnan(few_rows) & ~np.isnan(few_rows[low])).sum(axis=1)
        ratio = np.maximum(width / width[low], width[low] / width)
        open_to = (exceeding <= FIRST_LOOK * both) & (dates == dates[low]) & ~(binary & binary[low])
        open_to &= (ratio <= SAME_SCALE**2) & (highs[low] > lows)  # else no row can be against it
        open_to[low] = False
        pairs += [
            (low, int(high))
            for high in np.flatnonzero(open_to)
            if ratio[high] <= SAME_SCALE or alike(column.name, columns[high].name)
        ]
    means = np.array([np.nanmean(column.values) for column in columns])
    return sorted(pairs, key=lambda pair: (means[pair[1]] - means[pair[0]]) / width[pair[1]])


def _measured(columns: list[Column], low: int, high: int) -> Order | None:
    first, second = columns[low].values, columns[high].values
    both = int((~columns[low].missing & ~columns[high].missing).sum())
    above = int((first > second).sum())
    equal = not above and int((first == second).sum()) == both
    return None if not both or (equal and low > high) else Order(low, high, both - above, above, equal)


def _holds(order: Order, low: Floats, high: Floats, considered: int) -> bool:
    """Whether neither chance nor the two ranges alone explain an order; both columns are given ascending."""
    rate = float(np.searchsorted(high, low, side="left").mean() / len(high))
    rows = order.support + order.exceptions
    if rate < INFORMATIVE or not few(order.exceptions, rows, rate * rows):
        return False
    return not within_chance(log_tail(order.exceptions, rows, rate), considered)


def _needed(found: list[Order], columns: int) -> list[Order]:
    """Leave out what has too many exceptions, strict orders that follow from two others, and twins of equal columns.

    Where an order tells more than the ranges do, so do the two that it follows from: these are closer.
    """
    twins = {order.high for order in found if order.equal}
    rows = [order.support + order.exceptions for order in found]
    apart = [
        order
        for order, both in zip(found, rows, strict=True)
        if order.exceptions <= MOST_EXCEPTIONS * both and (order.equal or not ({order.low, order.high} & twins))
    ]
    strict = np.zeros((columns, columns), dtype=np.float32)
    for order in apart:
        strict[order.low, order.high] = not order.exceptions and not order.equal
    follows = (strict @ strict > 0) & (strict > 0)
    return [order for order in apart if order.equal or not follows[order.low, order.high]]


def _suggested(order: Order, columns: list[Column]) -> Suggestion:
    low, high = columns[order.low].name, columns[order.high].name
    sign: Sign = "==" if order.equal else "<="
    rule = str(Statement((), Compared(Reference("x_cf", low), sign, Reference("x_cf", high))))
    often = "in every row" if not order.exceptions else "in nearly every row"
    reason = f"{low} equals {high} {often}" if order.equal else f"{low} is at most {high} {often}"
    reason += ", and their ranges overlap"
    kind: SuggestionKind = "equal" if order.equal else "order"
    active = not order.exceptions
    return Suggestion(kind, (low, high), {"rules": [rule]}, order.support, order.exceptions, reason, active)
