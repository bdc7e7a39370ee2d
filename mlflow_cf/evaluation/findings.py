"""What an evaluation has found in sentences: the titles of pictures, and what a run's page says first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pandas as pd

from mlflow_cf.evaluation.measure.aggregates import GAPS, LEAST_SURE
from mlflow_cf.evaluation.names import explainer_name, group_name, number, percent, short
from mlflow_cf.reporting.groups import column_of
from mlflow_cf.words.sentences import counted

MOST_NAMED: Final = 44  # characters of a group in a sentence
SHARES: Final = ("accuracy", "coverage", "plausibility", "survival", "validity")  # metrics that are shares
WORDS: Final = {
    "mixed": "distance", "n_changed": "changed features", "seconds_p50": "time a row, median",
    "probability_lost": "probability lost", "changed_features": "changed features",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Findings:
    """The figures of an evaluation that sentences are made of.

    Attributes:
        table: all `aggregates`.
        ranking: the explainers, the winner first.
        columns: by which rows are grouped.
    """

    table: pd.DataFrame
    ranking: Sequence[str]
    columns: Sequence[str] = ()

    @property
    def winner(self) -> str:
        """The explainer that does best, as people call it."""
        return explainer_name(self.ranking[0])

    @cached_property
    def whole(self) -> Mapping[str, Mapping[str, float]]:
        """Explainer -> metric -> value over all rows."""
        whole = self.table[self.table["group"] == ""]
        named = whole.groupby("explainer", sort=False)
        return {str(name): dict(zip(one["metric"], one["value"], strict=True)) for name, one in named}

    @cached_property
    def own(self) -> Mapping[str, float]:
        """Metric -> value of the winner over all rows."""
        return self.whole.get(self.ranking[0], {})

    @cached_property
    def asked(self) -> int:
        """How many rows miss the target, of those that the winner was asked about."""
        found = self.table[(self.table["group"] == "") & (self.table["metric"] == "coverage")]
        own = found.loc[found["explainer"] == self.ranking[0], "queries"]
        return int(own.iloc[0]) if len(own) else 0

    def outcomes(self) -> str:
        """Return ``GeCo answers 94 % of the 800 rows that miss the target``."""
        share = self.own.get("coverage")
        if share is None:
            return f"All {counted(int(self.own.get('rows', 0)), 'row')} meet the target: nothing was to be explained"
        if self.asked == 1:
            head = f"{self.winner} {'answers' if share else 'does not answer'} the one row that misses the target"
        else:
            part = percent(share) if share else "none"
            head = f"{self.winner} answers {part} of the {self.asked:,} rows that miss the target"
        others = {name: facts["coverage"] for name, facts in self.whole.items() if name != self.ranking[0]}
        if not others:
            return head
        least = min(others, key=lambda name: others[name])
        return f"{head}, {explainer_name(least)} {percent(others[least]) if others[least] else 'none'}"

    def distances(self, medians: Mapping[str, float]) -> str:
        """Return ``Half of GeCo's answers lie within a distance of 0.042``; medians are those of all explainers."""
        nearest = min(medians, key=lambda name: medians[name])
        answered = self.table[(self.table["group"] == "") & (self.table["metric"] == "mixed")]["queries"]
        if answered.sum() == 1:
            return f"{_of(explainer_name(nearest))} only answer lies at a distance of {number(medians[nearest])}"
        if len(medians) == 1:
            return f"Half of {_of(explainer_name(nearest))} answers lie within a distance of {number(medians[nearest])}"
        farthest = max(medians, key=lambda name: medians[name])
        if number(medians[nearest]) == number(medians[farthest]):
            return f"Half of the answers of each explainer lie within a distance of {number(medians[nearest])}"
        return (
            f"{_of(explainer_name(nearest))} answers are the nearest: {number(medians[nearest])} at the median, "
            f"{_of(explainer_name(farthest))} {number(medians[farthest])}"
        )

    def groups(self) -> str:
        """Return what the winner's groups differ in most: how many get an answer, or else how far it is."""
        for metric, verb in zip(GAPS, ("answers", "asks"), strict=True):
            found = self.widest(metric)
            if found is None or found[0][1] == found[1][1]:
                continue
            (low, least), (high, most) = found
            if verb == "answers":
                return f"{self.winner} answers {percent(least)} of {low} and {percent(most)} of {high}"
            return f"{self.winner} asks most of {high} (distance {number(most)}) and least of {low} ({number(least)})"
        return f"{self.winner} does as much for every group" if self.own else "Coverage and distance by group"

    def widest(self, metric: str) -> tuple[tuple[str, float], tuple[str, float]] | None:
        """Return the groups of one column that differ most in a metric of the winner, as people call them."""
        table = self.table
        known = table[(table["group"] != "") & (table["metric"] == metric) & (table["queries"] >= LEAST_SURE)]
        known = known[known["explainer"] == self.ranking[0]]
        spreads = []
        for _, own in known.groupby(known["group"].map(lambda group: column_of(group, self.columns)), sort=False):
            values = own["value"].to_numpy(np.float64)
            ends = [int(values.argmin()), int(values.argmax())]
            if len(own) > 1:
                names = [group_name(str(group), self.columns, MOST_NAMED) for group in own["group"].iloc[ends]]
                spreads.append(((names[0], float(values[ends[0]])), (names[1], float(values[ends[1]]))))
        return max(spreads, key=lambda pair: pair[1][1] - pair[0][1], default=None)


def most_changed(shares: pd.Series[float], verb: str) -> str:
    """Return ``GeCo changes utilisation most often: in 62 % of its answers``.

    Args:
        shares: the share of its answers that change a feature, by the feature; its name is who gives the answers.
        verb: what is said between this name and the feature.
    """
    known = shares.fillna(0.0)
    if not (known > 0).any():
        return "What the nearest answers change"
    at = int(known.to_numpy(np.float64).argmax())
    return f"{shares.name} {verb} {known.index[at]} most often: in {percent(float(known.iloc[at]))} of its answers"


def survived(matrix: pd.DataFrame) -> str:
    """Return ``71 % of the answers of credit/1 still hold under credit/2``, of the `survival_matrix`."""
    if len(matrix) < 2 or np.isnan(share := float(matrix.to_numpy(np.float64)[-2, -1])):
        return "Who still gives yesterday's answers"
    old, new = map(short, matrix.index[-2:])
    return f"{percent(share)} of the answers of {old} still hold under {new}"


def heaviest(burden: pd.DataFrame, groups: Iterable[str], columns: Sequence[str]) -> str:
    """Return for which of `groups` the way is farthest under the newest version: ``Under credit/2 ...``."""
    newest = burden["version"].iloc[-1]
    own = burden[(burden["version"] == newest) & (burden["measure"] == "distance")].set_index("group")["mean"].dropna()
    some = own[[group for group in groups if group and group in own.index]]
    name = short(newest)
    if len(some) and "" in own.index:
        group, most = group_name(str(some.idxmax()), columns), number(float(some.max()))
        return f"Under {name} the way is farthest for {group}: {most}, and {number(float(own['']))} for all rows"
    if "" in own.index:
        return f"Under {name} the way is {number(float(own['']))} far"
    return "What the answers ask of people"


def moved(overview: pd.DataFrame, versions: Sequence[str]) -> str:
    """Return how the first explainer's coverage and distance moved from the last version but one to the last."""
    if len(versions) < 2:
        return "Metrics"
    before, after = (overview.loc[version].iloc[0] for version in versions[-2:])
    told = [
        f"{metric_name(name)} {metric_value(name, before[name])} → {metric_value(name, after[name])}"
        for name in ("coverage", "mixed", "n_changed")
        if name in overview and not np.isnan(before[name]) and not np.isnan(after[name])
    ]
    return f"{short(versions[-2])} → {short(versions[-1])}: {', '.join(told)}" if told else "Metrics by version"


def metric_name(metric: str) -> str:
    """Return what people call a metric."""
    return WORDS.get(metric, metric.replace("_", " "))


def metric_value(metric: str, value: float) -> str:
    """Return a mean as people write it."""
    if metric == "seconds_p50":
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
    return percent(value) if metric in SHARES and 0 <= value <= 1 else number(value)


def _of(name: str) -> str:
    return f"{name}'" if name.endswith("s") else f"{name}'s"


def median(values: pd.Series[float]) -> float:
    """Return the median of what is known; NaN of nothing."""
    known = values.dropna()
    return float(np.median(known)) if len(known) else float("nan")
