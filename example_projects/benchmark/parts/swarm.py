"""MD-PSO beside the figures of its paper (section 7), and what its swarm costs on Adult and on 300 numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from cases.data_sets import FAVOURABLE, VIEWS, Case, Split, constraints_for, split
from cases.models import fitted
from parts import hard, ocl
from parts.gates import Gate
from rivals.rival_dice import Dice
from rivals.turns import Clocked
from sklearn.ensemble import RandomForestClassifier

import mlflow_cf
from mlflow_cf import MDPSO, ExplainedModel, InputError, metrics
from mlflow_cf.explainers.registry import explainer_of
from mlflow_cf.features import FeatureSpace

OURS = "mdpso"
COUNT = 5  # answers a row
EVALUATIONS = 6_000  # a row at most, of every method of this package
FLOORS = ("random_search", "growing_spheres", "face")  # those that are there
FACE = ({"graph": "knn"}, {"graph": "epsilon"})
DICE = ("random", "genetic")
COLUMNS = ("prox", "spars", "div", "norm div", "coverage")
RANKED = (*FLOORS, OURS, "face knn", "face epsilon", *(f"dice {method}" for method in DICE))
COVERAGE = 0.95
PLACE = 1  # in proximity and in sparsity
SWARM_MS, WIDE_MS = 60.0, 500.0  # CPU of 5,000 evaluations on Adult, and of a whole explanation of 300 numbers
WIDE_ROWS = 20

# Table II of the paper, COMPAS under a random forest: the columns above.
PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "dice random": (1.3992, 0.1999, 1.7163, 1.2266, 1.0),
    "dice genetic": (1.5537, 0.3571, 0.0437, 0.0281, 1.0),
    "growing_spheres": (1.1109, 0.4464, 1.9586, 1.7630, 0.8),
    "face knn": (1.5928, 0.3714, 1.8357, 1.1525, 1.0),
    "face epsilon": (1.6795, 0.3828, 1.8725, 1.1149, 1.0),
    OURS: (0.2629, 0.1230, 0.2959, 1.1257, 1.0),
}

Answers = Callable[[pd.DataFrame], pd.DataFrame | None]


@dataclass(frozen=True)
class Line:
    """Means over the rows: the figures of the paper's table by name, and CPU milliseconds a row."""

    figures: Mapping[str, float]
    ms: float


Lines = dict[str, Line]


def compas(rows: int, seed: int) -> Lines:
    """Explain rejected rows of COMPAS, five answers each, by every method that is there; no constraints."""
    parts = ocl.compas(seed)
    model = ocl.fitted(parts, "rf")
    rejected = parts.X_test[model.predict(parts.X_test) != FAVOURABLE].head(rows)
    case = Case("compas", parts.X, parts.y, rejected, {}, model, 1.0)
    explained = mlflow_cf.wrap(model, parts.X, parts.y, target=FAVOURABLE, explainer=swarm(), seed=seed)
    methods = {name: _ours(explained, name, source) for name, source in sources().items()}
    methods |= {f"dice {method}": _rival(Dice.build(case, method, seed)) for method in DICE}
    return {name: _line(parts, case, answers) for name, answers in methods.items()}


def swarm() -> MDPSO:
    """Return the explainer as it is compared: COMPAS has many zeros, which the paper's own box freezes."""
    return MDPSO(box="absolute")


def sources() -> dict[str, object]:
    """Return the explainers by the names of the table; those that this package does not have are left out."""
    wanted: dict[str, object] = {OURS: swarm(), "geco": "geco", "nearest_row": "nearest_row"}
    for name in FLOORS:
        for options in FACE if name == "face" else ({},):
            label = " ".join([name, *map(str, options.values())])
            wanted[label] = {"name": name, "options": options} if options else name
    return {label: source for label, source in wanted.items() if _known(source)}


def _known(source: object) -> bool:
    try:
        explainer_of(source)  # type: ignore[arg-type]
    except InputError:
        return False
    return True


def _ours(explained: ExplainedModel, name: str, source: object) -> Answers:
    del name
    explainer = explainer_of(source)  # type: ignore[arg-type]

    def answers(row: pd.DataFrame) -> pd.DataFrame | None:
        (found,) = explained.explain(row, count=COUNT, explainer=explainer, max_evaluations=EVALUATIONS)
        return found.to_frame()[list(row)] if found.counterfactuals else None

    return answers


def _rival(dice: Dice) -> Answers:
    return lambda row: dice.several(row, COUNT)


def _line(parts: Split, case: Case, answers: Answers) -> Line:
    """Return the means of one method, and the share of the answers asked for that exist and are valid."""
    space = FeatureSpace.infer(parts.X)
    answers(case.rejected.head(1))  # whatever is made once
    found, told = [], 0
    started = time.process_time()
    replies = {index: answers(case.rejected.loc[[index]]) for index in case.rejected.index}
    ms = 1_000 * (time.process_time() - started) / len(replies)
    for index, Z in replies.items():
        valid = Z if Z is None else Z[case.model.predict(Z) == FAVOURABLE].drop_duplicates()
        if valid is not None and len(valid):
            told += len(valid)
            found.append(_metrics(space, case.rejected.loc[[index]], valid.astype(parts.X.dtypes.to_dict())))
    table = pd.DataFrame(found, columns=list(COLUMNS[:-1]), dtype=np.float64)
    return Line({**table.mean().to_dict(), "coverage": told / (COUNT * len(replies))}, ms)


def _metrics(space: FeatureSpace, row: pd.DataFrame, answers: pd.DataFrame) -> tuple[float | None, ...]:
    x, Z = space.encode(row)[0], space.encode(answers)
    apart = (metrics.diversity(space, Z), metrics.diversity_ratio(space, x, Z)) if len(Z) > 1 else (None, None)
    return (metrics.prox_cont(space, x, Z), metrics.sparsity_changed(space, x, Z), *apart)


def adult(rows: int, seed: int) -> dict[str, float]:
    """Return median CPU milliseconds of the swarm's search, and rows it scored, on Adult with 100 boosted trees."""
    parts = split("adult", seed, VIEWS["adult"])
    model = fitted("xgboost", parts.X, parts.y, seed)
    case = parts.case(model, rows, constraints_for("adult", parts.X, rules=False))
    explained = case.wrapped(seed)
    explainer = MDPSO(box="absolute")
    search = explained.searches.of(explainer, None)
    if search is None:
        raise RuntimeError("without a deadline there is always a search")
    found = explained.explain(case.rejected, explainer=Clocked(explainer, search))
    told = [one.diagnostics["search_cpu"] for one in found if "search_cpu" in one.diagnostics]
    return {"search ms": 1_000 * float(np.median(told)), "positions": 5_050.0, "scored": _scored(found)}


def _scored(found: Sequence[mlflow_cf.Explanation]) -> float:
    return float(np.median([one.evaluations for one in found]))


def wide(rows: int, seed: int) -> Lines:
    """Explain generated rows of 300 numbers under a forest of 100 trees, by the swarm, GeCo and the nearest row."""
    X, y = hard.TABLES["300 columns"](seed)
    model = RandomForestClassifier(100, n_jobs=1, random_state=seed).fit(X[:1_200], y[:1_200])
    rejected = X[1_200:][model.predict(X[1_200:]) != FAVOURABLE].head(min(rows, WIDE_ROWS))
    explained = mlflow_cf.wrap(model, X[:1_200], target=FAVOURABLE, explainer=swarm(), seed=seed)
    lines: Lines = {}
    for name in (OURS, "geco", "nearest_row"):
        source = swarm() if name == OURS else name
        explained.explain(rejected.head(1), explainer=source)  # whatever is made once
        started = time.process_time()
        found = explained.explain(rejected, explainer=source)
        ms = 1_000 * (time.process_time() - started) / len(rejected)
        nearest = [one.counterfactuals[0] for one in found if one.counterfactuals]
        figures = {
            "distance": float(np.mean([answer.distance for answer in nearest])) if nearest else np.nan,
            "changes": float(np.mean([answer.n_changed for answer in nearest])) if nearest else np.nan,
            "coverage": len(nearest) / len(rejected),
        }
        lines[name] = Line(figures, ms)
    return lines


def places(lines: Lines, column: str) -> int:
    """Return the swarm's place among the methods of the paper's table, 1 for the best; the less the better."""
    own = lines[OURS].figures[column]
    return 1 + sum(lines[name].figures[column] < own for name in RANKED if name in lines)


def gates(lines: Lines, on_adult: Mapping[str, float], on_wide: Lines) -> list[tuple[str, Gate]]:
    """Return what is promised of the swarm."""
    found = [("compas", Gate("coverage", lines[OURS].figures["coverage"], COVERAGE))]
    found += [("compas", Gate(f"place in {column}", places(lines, column), PLACE, most=True)) for column in COLUMNS[:2]]
    if on_adult:
        found.append(("adult", Gate("search CPU ms", on_adult["search ms"], SWARM_MS, most=True)))
    found.append(("300 numbers", Gate("CPU ms of one row", on_wide[OURS].ms, WIDE_MS, most=True)))
    return found


def table(lines: Lines) -> str:
    """Return the figures in the form of the paper's Table II, the paper's below ours where it has them."""
    shown: dict[tuple[str, str], dict[str, float]] = {}
    for name, line in lines.items():
        shown[name, "here"] = {**line.figures, "CPU ms": line.ms}
        if name in PUBLISHED:
            shown[name, "paper"] = dict(zip(COLUMNS, PUBLISHED[name], strict=True))
    return pd.DataFrame(shown).T.round(4).to_string(na_rep="")


def wide_table(lines: Lines) -> str:
    """Return the figures of the rows of 300 numbers."""
    shown = {name: {**line.figures, "CPU ms": line.ms} for name, line in lines.items()}
    return pd.DataFrame(shown).T.round(3).to_string(na_rep="")
