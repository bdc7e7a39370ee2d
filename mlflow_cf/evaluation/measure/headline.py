"""The dozen metrics of an evaluation that are logged as such; all others stand in its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from mlflow_cf.evaluation.measure.aggregates import PREFIX, written

# Metrics of all rows that are logged, in the order of reading; fifteen at most.
HEADLINE: Final = (
    "rows",
    "coverage",
    "validity",
    "constraint_satisfaction",
    "mixed",
    "n_changed",
    "plausibility",
    "proved/optimal",
    "fixed_share",
    "seconds_p50",
    "gap/coverage",
    "gap/mixed",
    "accuracy",
    "mean_absolute_error",  # of regressions, in the place of accuracy
    "protected_weight_share",
    "survival",
)
# Of each explainer, where several compete: without what is a fact of the rows or of the model.
BY_EXPLAINER: Final = (
    "coverage",
    "validity",
    "constraint_satisfaction",
    "mixed",
    "n_changed",
    "plausibility",
    "proved/optimal",
    "seconds_p50",
    "gap/coverage",
    "survival",
)
EVERYTHING_OF: Final = ("risk/",)  # metrics that nobody gets who has not asked for them


def of_the_winner(metrics: Mapping[str, float], winner: str) -> dict[str, float]:
    """Return the headline metrics of a bake-off's winner by the names that they have where nobody competes."""
    found = {name: metrics.get(f"{PREFIX}/{written(winner)}/{name}") for name in HEADLINE}
    return {f"{PREFIX}/{name}": value for name, value in found.items() if value is not None}


def unmatched(metrics: Iterable[str], further: Iterable[str]) -> list[str]:
    """Return which patterns of further metrics are those of none."""
    names = list(metrics)
    return [pattern for pattern in further if not any(fnmatchcase(name, pattern) for name in names)]


def logged(metrics: Mapping[str, float], explainers: Iterable[str], further: Iterable[str] = ()) -> dict[str, float]:
    """Return which of all metrics are logged.

    Args:
        metrics: by name.
        explainers: that compete; none: there is one.
        further: patterns of other names to be logged, such as ``cf/coverage/sex.*``.
    """
    names = {f"{PREFIX}/{name}" for name in HEADLINE}
    begins = tuple(f"{PREFIX}/{name}" for name in EVERYTHING_OF)
    for explainer in map(written, explainers):
        names |= {f"{PREFIX}/{explainer}/{name}" for name in BY_EXPLAINER}
        begins += tuple(f"{PREFIX}/{explainer}/{name}" for name in EVERYTHING_OF)
    patterns = tuple(further)
    return {
        name: value
        for name, value in metrics.items()
        if name in names or name.startswith(begins) or any(fnmatchcase(name, pattern) for pattern in patterns)
    }
