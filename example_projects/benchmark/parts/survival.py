"""Answers that are promised to survive a retraining, judged by later models that learn from other samples.

A model learns from a sample of a data set; later ones learn from other samples of the same size. Answers with the
promise are compared with those of a margin that survives as often, and with plain answers that are checked against the
retrained models one after the other, as tools for robustness do. At last: the CPU of certificates with 30 retrained
models beside one model.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from cases.data_sets import FAVOURABLE, Case, Split
from cases.models import fitted
from parts.gates import Gate

import mlflow_cf
from mlflow_cf import ExplainedModel
from mlflow_cf.goal import Requirement
from mlflow_cf.policy.survival import confidence_of

MODELS = ("forest", "xgboost", "logistic")
HOLDS, CONFIDENCE = 0.95, 0.9
ROWS: Final = 200
LATER: Final = 30  # retrainings on other samples
LEARNED: Final = 2_000  # rows of a sample; of small data sets half of them
CHECKED: Final = 10  # plain answers of a row that are checked after the fact
MARGINS: Final = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45)
MOST_EVALUATIONS: Final = 30_000
CERTIFIED, TIMES = 30, 5.0  # retrained models of the certificates, and their CPU, times that of one model
SAME: Final = 0.005  # shares that differ by less are the same
KEPT: Final = 0.95  # share of the configurations in which the promise holds


@dataclass(frozen=True)
class Line:
    """Answers to the same rows.

    Attributes:
        promised: the mean of what answers say of their survival; observed: how often they hold under later models.
        kept: share of the answers that hold under a share of `HOLDS` of the later models or more.
        plain: how often plain answers hold under later models.
        found, checked: share of the rows with an answer, and with one by checking plain answers.
        distance: median distance; margin: the least margin that holds as often, else the largest one with answers;
            by_margin: how often its answers hold; farther: their median distance.
        of: the number of retrained models; wrap_s: CPU seconds to retrain and open them; ms: CPU of an answer.
    """

    promised: float
    observed: float
    kept: float
    plain: float
    found: float
    checked: float
    distance: float
    margin: float
    by_margin: float
    farther: float
    of: int
    wrap_s: float
    ms: float


@dataclass(frozen=True, eq=False)
class World:
    """A model that learned from a sample, the later ones, and the rows to explain."""

    case: Case
    later: list[Any]


def world(parts: Split, model: str, rows: int, seed: int, constraints: dict[str, list[str]]) -> World:
    """Return a model fitted to a sample of a data set's training rows, and later ones to others of the same size."""
    size, rng = min(LEARNED, len(parts.X) // 2), np.random.default_rng(seed)
    samples = [rng.choice(len(parts.X), size, replace=False) for _ in range(1 + LATER)]
    models = [fitted(model, parts.X.iloc[at], parts.y.iloc[at], seed + n) for n, at in enumerate(samples)]
    first = parts.X.iloc[samples[0]].reset_index(drop=True), parts.y.iloc[samples[0]].reset_index(drop=True)
    own = Split(parts.name, *first, parts.X_test, parts.y_test)
    return World(own.case(models[0], rows, constraints), models[1:])


def run(parts: Split, model: str, rows: int, seed: int, constraints: dict[str, list[str]]) -> Line:
    """Explain rejected rows with the promise and without, and ask later models about the answers."""
    made = world(parts, model, rows, seed, constraints)
    case = made.case
    started = time.process_time()
    ours = _wrapped(case, seed, survival={"holds": HOLDS, "confidence": CONFIDENCE})
    wrap_s, started = time.process_time() - started, time.process_time()
    found = _answers(ours, case)
    ms = 1000 * (time.process_time() - started) / len(case.rejected)
    plain = _wrapped(case, seed)
    held = _held(made, found)
    margin, near = _margin(made, seed, float(held.mean()))
    both = [number for number in found if number in near]
    survived = [one.survival.holds for one in found.values() if one.survival is not None]
    return Line(
        promised=float(np.mean(survived)),
        observed=float(held.mean()),
        kept=float((held >= HOLDS).mean()),
        plain=float(_held(made, _answers(plain, case)).mean()),
        found=len(found) / len(case.rejected),
        checked=_checked(ours, plain, case),
        distance=float(np.median([found[number].distance for number in both])) if both else np.nan,
        margin=margin,
        by_margin=float(_held(made, near).mean()),
        farther=float(np.median([near[number].distance for number in both])) if both else np.nan,
        of=ours.policy.survival.of if ours.policy.survival else 0,
        wrap_s=wrap_s,
        ms=ms,
    )


def _wrapped(case: Case, seed: int, **options: Any) -> ExplainedModel:
    constraints, rows = case.constraints, case.background
    return mlflow_cf.wrap(
        case.model, rows, case.labels, constraints=constraints, target=FAVOURABLE, seed=seed, why_not=False, **options
    )


def _answers(explained: ExplainedModel, case: Case) -> dict[int, Any]:
    """Return the nearest answer of each row that has one, by the number of the row."""
    told = explained.explain(case.rejected, max_evaluations=MOST_EVALUATIONS, n_jobs=1)
    return {number: one.counterfactuals[0] for number, one in enumerate(told) if one.counterfactuals}


def _held(made: World, found: Mapping[int, Any]) -> np.ndarray:
    """Return the share (k,) of the later models under which each answer holds."""
    if not found:
        return np.full(1, np.nan)
    rows = pd.DataFrame([one.row for one in found.values()])[list(made.case.background.columns)]
    return np.mean([model.predict(rows) == FAVOURABLE for model in made.later], axis=0)


def _margin(made: World, seed: int, held: float) -> tuple[float, dict[int, Any]]:
    """Return the least of some margins whose answers hold as often, or else the largest, and these answers."""
    found: dict[int, Any] = {}
    for margin in MARGINS:
        asked = _answers(_wrapped(made.case, seed, margin=margin), made.case)
        if not asked:
            break
        found, reached = asked, margin
        if _held(made, asked).mean() >= held:
            break
    return (reached, found) if found else (np.nan, {})


def _checked(ours: ExplainedModel, plain: ExplainedModel, case: Case) -> float:
    """Return the share of rows one of whose plain answers enough retrained models accept."""
    future, survival = ours.extra_models.future, ours.policy.survival
    if future is None or survival is None:
        return np.nan
    required: Requirement = future.required(survival)
    target = required.bound(ours.context.model.bound(ours.policy.target, -1))
    told = plain.explain(case.rejected, count=CHECKED, diversity="near", max_evaluations=MOST_EVALUATIONS, n_jobs=1)
    accepted = 0
    for one in told:
        if one.counterfactuals:
            rows = plain.space.from_values([found.row for found in one.counterfactuals])
            accepted += bool(target.met(required.judge.outcome(rows)).any())
    return accepted / len(case.rejected)


def certified(case: Case, seed: int) -> dict[str, float]:
    """Return CPU milliseconds a row of certificates with one model, and with 30 retrained ones of which all agree."""
    sure = confidence_of(CERTIFIED, CERTIFIED, HOLDS) - 1e-9
    wishes: dict[str, dict[str, Any]] = {
        "one": {},
        "many": {"survival": {"holds": HOLDS, "confidence": sure, "compared": 1}},
    }
    found: dict[str, float] = {}
    for name, asked in wishes.items():
        explained = _wrapped(case, seed, **asked)
        explained.explain(case.rejected.head(2), certify=True)  # what is compiled stays so
        started = time.process_time()
        told = explained.explain(case.rejected, certify=True, max_evaluations=MOST_EVALUATIONS, n_jobs=1)
        found[name] = 1000 * (time.process_time() - started) / len(case.rejected)
        proved = [one.status == "infeasible" or any(c.proof == "optimal" for c in one.counterfactuals) for one in told]
        found[f"{name} proved"] = float(np.mean(proved))
    return found


def gates(lines: Mapping[str, Line]) -> list[Gate]:
    """Return what is promised of all configurations together."""
    kept = np.mean([line.observed >= HOLDS for line in lines.values() if line.found])  # no answer promises nothing
    as_often = [line for line in lines.values() if line.by_margin >= line.observed - SAME]
    nearer = np.median([line.distance - line.farther for line in as_often]) if as_often else -np.inf
    more = np.mean([line.found - line.checked for line in lines.values()])
    return [
        Gate("share of configurations in which the promised share holds", float(kept), KEPT),
        Gate("median distance beyond that of a margin", float(nearer), 0.0, most=True),
        Gate("rows answered beyond those by checking", float(more), 0.0),
    ]


def cost_gate(cost: Mapping[str, float]) -> Gate:
    """Return what is promised of the CPU of certificates."""
    return Gate(f"CPU with {CERTIFIED} retrained models / with one", cost["many"] / cost["one"], TIMES, most=True)


def table(measured: Mapping[str, Line]) -> str:
    """Return all lines as text."""
    return pd.DataFrame({name: asdict(line) for name, line in measured.items()}).T.round(4).to_string()
