"""The tables of a comparison from sums over rows that no single process has: means, and intervals without a bootstrap.

Intervals are those of the normal distribution at 95 %, between the least and the largest value; that of a change
between two measurements of the same rows takes into account how both vary together (delta method). They differ from
those of the bootstrap by what the draws of that differ among themselves, once groups have some dozens of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.compare.side_by_side import (
    COLUMNS,
    FEWEST,
    MEASURES,
    NAMES,
    VERDICT,
    Issued,
    advice_of,
    difference_table,
    judged,
    leanings,
    stacked,
    survival_of,
)
from mlflow_cf.evaluation.measure.aggregates import Summed
from mlflow_cf.evaluation.measure.moments import Moments, Sums, Tally, Together
from mlflow_cf.evaluation.measure.panel import Block, Key, Measured, Panel, named
from mlflow_cf.features import Floats
from mlflow_cf.metrics import METRICS

Z95: Final = 1.959963984540054  # of the normal distribution: 95 % lie within so many standard errors


def compared_sums(
    panel: Panel, block: Block, measured: Measured, members: Sequence[Bools]
) -> Iterator[tuple[str, Sums]]:
    """Yield the sums of a measured block that comparisons need beside those of evaluations, by their names."""
    features, every = feature_names(panel), members[:1]
    lines = measured.lines
    lean = {key: leanings(own, features).to_numpy(np.float64) for key, own in lines.items()}
    for key, own in lines.items():
        yield named("moments", "advice", *key), Moments.of(lean[key], every)
        before = before_of(panel, key)
        if before in lines:
            old, new = (lines[one][list(MEASURES.values())].to_numpy(np.float64) for one in (before, key))
            yield named("together", "burden", *key), Together.of(old, new, members)
            yield named("together", "advice", *key), Together.of(lean[before], lean[key], every)
        for base in bases_of(panel, key):
            if base in lines:
                old, new = (lines[one][list(METRICS)].to_numpy(np.float64) for one in (base, key))
                both = ~np.isnan(new - old)
                paired = [np.where(both, values, np.nan) for values in (old, new, new - old)]
                yield named("moments", "differences", *base, *key), Moments.of(np.hstack(paired), every)
        yield from _survived(panel, block, key, own, members)


def _survived(
    panel: Panel, block: Block, key: Key, own: pd.DataFrame, members: Sequence[Bools]
) -> Iterator[tuple[str, Sums]]:
    """Yield how the counterfactuals of one explainer fare under every version that can judge them."""
    for name, judge in panel.models.items():
        try:
            issued = Issued.of(panel.models[key[0]], own, block.rows(judge.space))
            verdict = judged(issued, judge, len(own))
        except InputError:  # such a version can judge no block, and is told of
            continue
        yield named("moments", "survival", *key, name), Moments.of(verdict.to_numpy(np.float64), members)


def feature_names(panel: Panel) -> list[str]:
    """Return the names of all features of all versions."""
    return list(dict.fromkeys(name for explained in panel.models.values() for name in explained.space.names))


def before_of(panel: Panel, key: Key) -> Key:
    """Return the explainer at the same place of the version before; of the first version one that nobody is."""
    versions = list(panel.models)
    place = versions.index(key[0])
    at = list(panel.explainers[key[0]]).index(key[1])
    names = list(panel.explainers[versions[place - 1]]) if place else []
    return (versions[place - 1], names[at]) if at < len(names) else ("", "")


def bases_of(panel: Panel, key: Key) -> list[Key]:
    """Return the neighbours that an explainer is compared with: the one before, and the first of its version."""
    first = next(iter(panel.explainers[key[0]]))
    return [before_of(panel, key), *([] if key[1] == first else [(key[0], first)])]


@dataclass(frozen=True, eq=False)
class SummedVersions:
    """What was measured of all rows under all versions.

    Attributes:
        panel: who was measured; tally: the sums.
    """

    panel: Panel
    tally: Tally

    @property
    def keys(self) -> list[Key]:
        """Who could do it."""
        failed = self.panel.failures(self.tally)
        return [key for key in self.panel.keys if key not in failed]

    def burden(self) -> pd.DataFrame:
        """Return the burden of every group under every version and explainer, and how it moved."""
        found: dict[tuple[str, ...], pd.DataFrame] = {}
        for key in self.keys:
            own, before = self._measures(key), before_of(self.panel, key)
            known = before in self.keys
            change = Change(self._measures(before), self._sums("together", "burden", *key)) if known else None
            table = means_of(self._groups(key), list(MEASURES), own, change)
            found[key] = table[table["measure"] != "effort"] if not own.count[0, -1] else table
        return stacked(found, *NAMES)

    def advice(self) -> pd.DataFrame:
        """Return which features the answers of every version and explainer change, and how that moved."""
        found: dict[tuple[str, ...], pd.DataFrame] = {}
        for key in self.keys:
            own, before = self._sums("moments", "advice", *key), before_of(self.panel, key)
            change = None
            if before in self.keys:
                old = self._sums("moments", "advice", *before)
                change = Change(old, self._sums("together", "advice", *key))
            found[key] = advice_of(means_of([(0, "")], feature_names(self.panel), own, change))
        return stacked(found, *NAMES)

    def differences(self) -> pd.DataFrame:
        """Return the paired differences of all metrics between neighbours."""
        found: dict[tuple[str, ...], pd.DataFrame] = {}
        for key in self.keys:
            for base in dict.fromkeys(bases_of(self.panel, key)):
                if base in self.keys:
                    paired: Moments = self._sums("moments", "differences", *base, *key)
                    low, high = (end[0] for end in interval(paired))
                    before, after, moved = np.split(paired.known_mean[0], 3)
                    count, least, most = (np.split(end, 3)[2] for end in (paired.count[0], low, high))
                    table = difference_table(list(METRICS), count, (before, after, moved), (least, most))
                    found[*base, *key] = table[table["rows"] > 0]
        return stacked(found, "base_version", "base_explainer", *NAMES)

    def survival(self) -> pd.DataFrame:
        """Return how the counterfactuals of every version fare under every version that can judge them."""
        found: dict[tuple[str, ...], pd.DataFrame] = {}
        for key in self.keys:
            for judge in self.panel.models:
                own = self.tally.sums.get(named("moments", "survival", *key, judge))
                if isinstance(own, Moments):
                    found[*key, judge] = survival_of(means_of(self._groups(key), list(VERDICT), own, None))
        return stacked(found, "issued", "explainer", "judged")

    def _sums(self, kind: str, *names: str) -> Any:
        return self.tally.sums[named(kind, *names)]

    def _groups(self, key: Key) -> list[tuple[int, str]]:
        """Return the places and names of groups with any rows."""
        summed = self.panel.summed(self.tally, key)
        rows = summed.moments.count[:, list(summed.columns).index("rows")]
        return [(at, name) for at, name in enumerate(summed.groups) if rows[at]]

    def _measures(self, key: Key) -> Moments:
        """Return the moments of what burdens are made of."""
        summed: Summed = self.panel.summed(self.tally, key)
        places = [list(summed.columns).index(metric) for metric in MEASURES.values()]
        return Moments(**{name: array[:, places] for name, array in summed.moments.arrays().items()})


@dataclass(frozen=True, eq=False)
class Change:
    """What a measurement is compared with: the moments of the one before, and how both vary together."""

    before: Moments
    together: Together


def means_of(
    groups: Sequence[tuple[int, str]], measures: Sequence[str], own: Moments, change: Change | None
) -> pd.DataFrame:
    """Return means by group and measure, with intervals and how they moved, as `side_by_side.means` does."""
    low, high = interval(own)
    facts: dict[str, Any] = {"rows": own.count, "mean": own.known_mean, "low": low, "high": high}
    if change is not None:
        moved = own.known_mean - change.before.known_mean
        error = _error_of_change(own, change)
        sure = np.minimum(own.count, change.before.count) >= FEWEST
        ends = (np.where(sure, moved + sign * Z95 * error, np.nan) for sign in (-1, 1))
        facts |= {"change": moved, **dict(zip(("change_low", "change_high"), ends, strict=True))}
    tables = [
        pd.DataFrame({"group": name, "measure": list(measures), **{fact: array[at] for fact, array in facts.items()}})
        for at, name in groups
    ]
    return pd.concat(tables, ignore_index=True).reindex(columns=COLUMNS)


def interval(own: Moments) -> tuple[Floats, Floats]:
    """Return both ends (g, k) of the intervals of means; NaN where fewer than five values are known."""
    sure = own.count >= FEWEST
    low, high = own.known_mean - Z95 * own.error, own.known_mean + Z95 * own.error
    ends = np.maximum(low, own.least), np.minimum(high, own.largest)
    return np.where(sure, ends[0], np.nan), np.where(sure, ends[1], np.nan)


def _error_of_change(own: Moments, change: Change) -> Floats:
    """Return the standard errors (g, k) of the differences of two means, each over the rows that have its value."""
    before = change.before
    new, old = np.maximum(own.count, 1), np.maximum(before.count, 1)
    shared = change.together.about(before.mean, own.mean)
    squared = own.squares / new**2 + before.squares / old**2 - 2.0 * shared / (new * old)
    return np.asarray(np.sqrt(np.maximum(squared, 0.0)))
