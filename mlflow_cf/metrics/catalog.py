"""Every metric by id, and their means over queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.metrics import demands, proximity
from mlflow_cf.metrics.changes import DEFAULTS, Columns, Options, mean
from mlflow_cf.metrics.outliers import Inliers, plausibility
from mlflow_cf.words.result import Status

Better = Literal["up", "down", "relative"]
NOT_ASKED = ("already", "skipped")  # there was nothing to explain


@dataclass(frozen=True, eq=False)
class Answers:
    """What one query got, and what is known about it; None or empty is unknown.

    A query without answers belongs here too, with Z (0, d): it lowers `coverage` and `feasibility`.

    Attributes:
        space: the features, with codes for the row's unseen levels.
        x: (d,) codes of the row to explain.
        Z: (k, d) codes of the counterfactuals, in the explainer's order.
        valid: (k,) whether the model predicts each as wanted.
        status: how the explanation ended.
        requested: how many counterfactuals were asked for.
        satisfied: (k,) whether each meets all declared constraints.
        inliers: the background's local outlier factor.
        wishes: what the user is ready to change.
        plans: (k,) steps of each counterfactual, for explainers that make plans.
        spent: what the explanation took: any of ``seconds``, ``model_calls``, ``generations``, ``candidates``.
    """

    space: FeatureSpace
    x: Floats
    Z: Floats
    valid: Bools
    status: Status = "found"
    requested: int = 1
    satisfied: Bools | None = None
    inliers: Inliers | None = None
    wishes: demands.Wishes | None = None
    plans: tuple[demands.Steps, ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, known in {"valid": self.valid, "satisfied": self.satisfied, "plans": self.plans or None}.items():
            if known is not None and len(known) != len(self.Z):
                raise InputError(f"answers.{name}", f"{len(known)} for {len(self.Z)} answers", "give one per answer")

    @cached_property
    def plausible(self) -> Bools | None:
        """(k,) whether each answer is an inlier; None if unknown."""
        return None if self.inliers is None else self.inliers.accept(self.Z)


def _as_it_is(means: Floats) -> Floats:
    return means


class Pairs(NamedTuple):
    """Counterfactuals Z (k, d) of any number of queries, each beside its own query row X (k, d).

    Attributes:
        valid: (k,) as of `Answers`; satisfied: (k,) the same as numbers, NaN where nothing is known.
        inliers: the background's local outlier factor, if it is known.
    """

    space: FeatureSpace
    X: Floats
    Z: Floats
    valid: Bools
    satisfied: Floats
    inliers: Inliers | None


@dataclass(frozen=True)
class Measure:
    """A metric of one query: its id, its function (None where it says nothing) and which way is better.

    "relative" is neither: more diversity is worth something only at the same proximity.
    `constraint_satisfaction`, and `validity` of verified answers, must be 1.

    Attributes:
        each: for a metric that is a mean over single answers: their values (k,), for `Pairs` of any number of queries.
        then: what becomes of such means.
        least: answers of a query below which it says nothing.
    """

    id: str
    function: Callable[[Answers, Options], float | None]
    better: Better
    each: Callable[[Pairs, Options], Floats | Bools | None] | None = None
    then: Callable[[Floats], Floats] = _as_it_is
    least: int = 0


@dataclass(frozen=True)
class Aggregate:
    """A metric over queries.

    Attributes:
        mean: over the queries that have a value; None if there are none.
        standard_error: standard deviation (ddof 1) / sqrt(queries); None below two.
        queries: how many have a value.
    """

    mean: float | None
    standard_error: float | None
    queries: int


@dataclass(frozen=True)
class Summary:
    """Metrics of many queries; what failed is in `coverage`, never in a mean.

    Attributes:
        metrics: id -> aggregate.
        coverage: see the function of that name.
        infeasible: share of the queries that `coverage` counts for which no counterfactual exists; None without any.
    """

    metrics: Mapping[str, Aggregate]
    coverage: Aggregate
    infeasible: float | None


def validity(valid: Bools) -> float | None:
    """Share of the returned answers (k,) that the model predicts as wanted.

    Unit: share. Better: up; 1 for verified answers. None without answers.
    """
    return mean(valid)


def constraint_satisfaction(satisfied: Bools | None) -> float | None:
    """Share of the returned answers (k,) that meet all declared constraints.

    Unit: share. Better: up; it must be 1. None without answers, and where nothing is known of them.
    """
    return mean(satisfied)


def coverage(valid: Bools, requested: int, status: Status) -> float | None:
    """Share of the `requested` explanations that exist and are valid (k,); at most 1.

    Unit: share. Better: up. Source: MD-PSO. None where nothing was to explain (`already`, `skipped`).
    """
    if requested < 1:
        raise InputError("requested", f"{requested} explanations", "ask for at least one")
    return None if status in NOT_ASKED else min(1.0, float(np.sum(valid)) / requested)


def measure(answers: Answers, options: Options = DEFAULTS, ids: Iterable[str] | None = None) -> dict[str, float | None]:
    """Return the metrics of one query by id, all by default.

    Raises:
        InputError: an id that is not known.
    """
    return {name: METRICS[name].function(answers, options) for name in _known(ids)}


def measure_all(queries: Sequence[Answers], options: Options = DEFAULTS) -> list[dict[str, float | None]]:
    """Return what `measure` returns of each query; values of single answers are computed for those of all at once.

    Args:
        queries: over the same features, with the same `inliers`.
        options: as for `measure`.
    """
    columns = {name: values.tolist() for name, values in measure_columns(queries, options).items()}
    return [
        {name: None if math.isnan(values[at]) else values[at] for name, values in columns.items()}
        for at in range(len(queries))
    ]


def measure_columns(queries: Sequence[Answers], options: Options = DEFAULTS) -> dict[str, Floats]:
    """Return what `measure_all` does as one array (m,) a metric, NaN where it says nothing."""
    if not queries:
        return {name: np.empty(0) for name in METRICS}
    sizes = np.array([len(one.Z) for one in queries])
    unknown = [np.full(len(one.Z), np.nan) if one.satisfied is None else one.satisfied for one in queries]
    pairs = Pairs(
        space=queries[0].space,
        X=np.repeat(np.array([one.x for one in queries]), sizes, axis=0),
        Z=np.concatenate([one.Z for one in queries]),
        valid=np.concatenate([one.valid for one in queries]),
        satisfied=np.concatenate(unknown).astype(np.float64),
        inliers=queries[0].inliers,
    )
    found = {}
    for name, metric in METRICS.items():
        each = None if metric.each is None else metric.each(pairs, options)
        if metric.each is None:
            found[name] = _one_by_one(metric, queries, sizes, options)
        else:
            found[name] = np.full(len(queries), np.nan) if each is None else metric.then(_means(each, sizes))
    return found


def _one_by_one(metric: Measure, queries: Sequence[Answers], sizes: Columns, options: Options) -> Floats:
    """Return a metric of each query (m,), asking those alone of which it may say something."""
    found = np.full(len(queries), np.nan)
    for at in np.flatnonzero(sizes >= metric.least).tolist():
        value = metric.function(queries[at], options)
        if value is not None:
            found[at] = value
    return found


def _means(values: Floats | Bools, sizes: Columns) -> Floats:
    """Return the means (m,) of the values of each query, which has so many (m,) of them; NaN of none."""
    found, starts = np.full(len(sizes), np.nan), np.cumsum(sizes) - sizes
    for size in np.unique(sizes[sizes > 0]).tolist():
        some = np.flatnonzero(sizes == size)
        found[some] = values[starts[some, None] + np.arange(size)].mean(axis=1)
    return found


def aggregate(values: Iterable[float | None]) -> Aggregate:
    """Return the mean over queries of a metric, and how sure it is; queries without a value (None) are not counted."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    error = float(np.std(known, ddof=1) / np.sqrt(len(known))) if len(known) > 1 else None
    return Aggregate(mean(known), error, len(known))


def summarize(answers: Sequence[Answers], options: Options = DEFAULTS, ids: Iterable[str] | None = None) -> Summary:
    """Return the metrics (all by default) of many queries: means over answers first, then over queries.

    Raises:
        InputError: an id that is not known.
    """
    names = [name for name in _known(ids) if name != "coverage"]
    rows = [measure(one, options, names) for one in answers]
    counted = np.array([one.status == "infeasible" for one in answers if one.status not in NOT_ASKED], dtype=np.bool_)
    return Summary(
        {name: aggregate(row[name] for row in rows) for name in names},
        aggregate(METRICS["coverage"].function(one, options) for one in answers),
        mean(counted),
    )


def _known(ids: Iterable[str] | None) -> tuple[str, ...]:
    names = tuple(METRICS) if ids is None else tuple(ids)
    for name in names:
        if name not in METRICS:
            raise InputError(f"metrics.{name}", "not a metric", did_you_mean(name, METRICS, "metrics"))
    return names


_Function = Callable[[Answers, Options], float | None]
_Each = Callable[[FeatureSpace, Floats, Floats, Options], Floats | None]
_Then = Callable[[Floats], Floats]


def _near(metric: Callable[[FeatureSpace, Floats, Floats, Options], float | None]) -> _Function:
    """Return a metric of pairs of answers and the row; it says nothing of a single one."""
    return lambda answers, options: metric(answers.space, answers.x, answers.Z, options) if len(answers.Z) > 1 else None


def _mean_of(id_: str, each: _Each, better: Better, then: _Then = _as_it_is) -> Measure:
    """Return a metric that is a mean over single answers."""

    def function(answers: Answers, options: Options) -> float | None:
        value = mean(each(answers.space, answers.x, answers.Z, options))
        return None if value is None else float(then(np.array(value)))

    def of_pairs(pairs: Pairs, options: Options) -> Floats | None:
        return each(pairs.space, pairs.X, pairs.Z, options)

    return Measure(id_, function, better, of_pairs, then)


def _rest(shares: Floats) -> Floats:
    return 1 - shares


def _less(totals: Floats) -> Floats:
    return 0.0 - totals  # not -totals: no change is 0, not -0


def _apart(metric: Callable[[FeatureSpace, Floats, Options], float | None]) -> _Function:
    return lambda answers, options: metric(answers.space, answers.Z, options) if len(answers.Z) > 1 else None


def _plan(cost: Callable[[demands.Steps], float]) -> _Function:
    return lambda answers, _: mean(np.array([cost(steps) for steps in answers.plans]))


def _spent(name: str) -> _Function:
    return lambda answers, _: answers.spent.get(name)


def _actionability(answers: Answers, options: Options) -> float | None:
    if answers.wishes is None:
        return None
    return demands.actionability(answers.space, answers.x, answers.Z, answers.wishes, options)


def _feasibility(answers: Answers, options: Options) -> float | None:
    if answers.wishes is None or answers.status in NOT_ASKED or answers.plausible is None:
        return None
    wished = demands.actionable(answers.space, answers.x, answers.Z, answers.wishes, options)
    distance = proximity.distances(answers.space, answers.x, answers.Z, options.distance)
    return demands.feasibility(distance, answers.valid, answers.plausible, wished)


_ALL = (
    Measure("validity", lambda answers, _: validity(answers.valid), "up", lambda pairs, _: pairs.valid),
    Measure("coverage", lambda answers, _: coverage(answers.valid, answers.requested, answers.status), "up"),
    _mean_of("l0", proximity.l0_distances, "down"),
    _mean_of("l1", proximity.l1_distances, "down"),
    _mean_of("linf", proximity.linf_distances, "down"),
    _mean_of("mixed", proximity.mixed_distances, "down"),
    _mean_of("n_changed", proximity.changed_counts, "down"),
    _mean_of("gower", proximity.gower_distances, "down"),
    _mean_of("prox_cont", proximity.cont_distances, "down"),
    _mean_of("prox_cat", proximity.cat_distances, "down"),
    _mean_of("sparsity_changed", proximity.changed_shares, "down"),
    _mean_of("sparsity_unchanged", proximity.changed_shares, "up", _rest),
    _mean_of("cat_proximity", proximity.cat_distances, "up", _rest),
    _mean_of("cont_proximity", proximity.moved_totals, "up", _less),
    Measure("cont_diversity", _apart(proximity.cont_diversity), "up", least=2),
    Measure("cat_diversity", _apart(proximity.cat_diversity), "up", least=2),
    Measure("sparsity_diversity", _apart(proximity.sparsity_diversity), "up", least=2),
    Measure("diversity", _apart(proximity.diversity), "relative", least=2),
    Measure("diversity_cat", _apart(proximity.diversity_cat), "relative", least=2),
    Measure("norm_diversity", _near(proximity.norm_diversity), "relative", least=2),
    Measure("norm_diversity_cat", _near(proximity.norm_diversity_cat), "relative", least=2),
    Measure("diversity_ratio", _near(proximity.diversity_ratio), "relative", least=2),
    _mean_of("prox_jac", lambda space, x, Z, _: proximity.jaccard_distances(space, x, Z), "down"),
    _mean_of("prox_euc", proximity.euclidean_distances, "down"),
    Measure("actionability", _actionability, "up"),
    Measure(
        "plausibility",
        lambda answers, _: plausibility(answers.plausible),
        "up",
        each=lambda pairs, _: None if pairs.inliers is None else pairs.inliers.accept(pairs.Z),
    ),
    Measure("feasibility", _feasibility, "up"),
    Measure(
        "constraint_satisfaction",
        lambda answers, _: constraint_satisfaction(answers.satisfied),
        "up",
        each=lambda pairs, _: pairs.satisfied,
    ),
    Measure("sequence_cost", _plan(demands.sequence_cost), "down", least=1),
    Measure("discounted_cost", _plan(demands.discounted_cost), "down", least=1),
    Measure("sequence_length", _plan(demands.sequence_length), "down", least=1),
    *(Measure(name, _spent(name), "down") for name in ("seconds", "model_calls", "generations", "candidates")),
)

METRICS: Mapping[str, Measure] = MappingProxyType({metric.id: metric for metric in _ALL})
