"""Rows that one or two changes do not turn: GeCo beside its floor, and beside the optimum of linear models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from parts.gates import Gate
from parts.measures import aligned
from scipy.optimize import Bounds, LinearConstraint, milp
from sklearn.base import BaseEstimator
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import mlflow_cf
from mlflow_cf.words.explanations import Explanations

Table = tuple[pd.DataFrame, "pd.Series[int]"]
Floats = NDArray[np.float64]
WANTED = 1
MOST_CPU = 2.0  # times the floor's, of opened models
MOST_CHANGES = 1.1  # times those of the exact minimum
COLUMNS = ("found", "rows", "changes", "worst", "distance", "ms")


def _breast_cancer(seed: int) -> Table:
    del seed  # the rows are what they are
    return load_breast_cancer(as_frame=True, return_X_y=True)


def _digits(seed: int) -> Table:
    """Is it an 8? 64 pixels."""
    del seed
    X, y = load_digits(as_frame=True, return_X_y=True)
    return X, (y == 8).astype(int)


def _wide(seed: int) -> Table:
    X, y = make_classification(1500, 300, n_informative=40, class_sep=1.5, flip_y=0.02, random_state=seed)
    return pd.DataFrame(X.round(3)).rename(columns="x{}".format), pd.Series(y)


TABLES: Mapping[str, Callable[[int], Table]] = {
    "breast cancer": _breast_cancer,
    "digits": _digits,
    "300 columns": _wide,
}
MODELS: Mapping[str, Callable[[int], BaseEstimator]] = {
    "logistic": lambda seed: make_pipeline(StandardScaler(), LogisticRegression(max_iter=5_000, random_state=seed)),
    "forest": lambda seed: RandomForestClassifier(100, random_state=seed),
    "mlp": lambda seed: make_pipeline(StandardScaler(), MLPClassifier((50,), max_iter=500, random_state=seed)),
    "svc": lambda seed: make_pipeline(StandardScaler(), SVC(random_state=seed)),
    "pca": lambda seed: make_pipeline(StandardScaler(), PCA(10), LogisticRegression(random_state=seed)),
}
# table, model, rows
CASES = (
    ("breast cancer", "logistic", 60), ("breast cancer", "forest", 30), ("breast cancer", "mlp", 30),
    ("breast cancer", "svc", 6), ("breast cancer", "pca", 10), ("digits", "logistic", 20),
    ("300 columns", "logistic", 6),
)  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """What one explainer made of the rows of a case: means over those that it answered, and CPU time per row."""

    found: int
    rows: int
    changes: float
    worst: int
    distance: float
    ms: float

    @classmethod
    def of(cls, explanations: Explanations, seconds: float) -> Figures:
        """Sum up one call."""
        answers = [one.counterfactuals[0] for one in explanations if one.counterfactuals]
        changes = [answer.n_changed for answer in answers] or [0]
        distance = float(np.mean([answer.distance for answer in answers])) if answers else np.nan
        per_row = 1e3 * seconds / len(explanations)
        return cls(len(answers), len(explanations), float(np.mean(changes)), max(changes), distance, per_row)


@dataclass(frozen=True)
class Hard:
    """A case: GeCo, its floor, and the least mean number of changes, where that is known exactly."""

    name: str
    opened: bool
    geco: Figures
    floor: Figures
    least: float | None

    def gates(self) -> list[Gate]:
        """Return what is promised of it."""
        geco, floor = self.geco, self.floor
        gates = [
            Gate("rows answered", geco.found, geco.rows),
            Gate("mean changes / those of random search", geco.changes / floor.changes, 1.0, most=True),
        ]
        if self.opened:
            gates.append(Gate("CPU / that of random search", geco.ms / floor.ms, MOST_CPU, most=True))
        if self.least is not None:
            gates.append(Gate("mean changes / the exact minimum", geco.changes / self.least, MOST_CHANGES, most=True))
        return gates


def run(table: str, model: str, rows: int, seed: int) -> Hard:
    """Explain held-out rows that a model rejects, in one call each of GeCo and of random search."""
    X, y = TABLES[table](seed)
    held_out = np.random.default_rng(seed).permutation(len(X)) < len(X) // 4
    fitted = MODELS[model](seed).fit(X[~held_out], y[~held_out])
    rejected = X[held_out][fitted.predict(X[held_out]) != WANTED].iloc[:rows]
    explained = mlflow_cf.wrap(fitted, X[~held_out], target=WANTED, seed=seed)
    figures = []
    for explainer in ("geco", "random_search"):
        explained.explain(rejected.iloc[:1], explainer=explainer)  # compiles
        start = time.process_time()
        found = explained.explain(rejected, explainer=explainer)
        figures.append(Figures.of(found, time.process_time() - start))
    least = None
    if model == "logistic":
        least = float(np.mean([fewest_changes(fitted, X[~held_out], row) for _, row in rejected.iterrows()]))
    return Hard(f"{table} / {model}", explained.opened.structure is not None, *figures, least)


def fewest_changes(model: Pipeline, background: pd.DataFrame, row: pd.Series[float]) -> int:
    """Return the fewest numbers that must change within their ranges, by a mixed-integer program over the slopes."""
    scaler, linear = model[0], model[-1]
    slopes = linear.coef_[0] / scaler.scale_
    far = np.where(slopes > 0, background.max(), background.min())
    gains: Floats = slopes * (far - row.to_numpy())
    lacks = -float(model.decision_function(row.to_frame().T)[0])
    enough = LinearConstraint(gains[None], lb=lacks)
    solved = milp(np.ones(len(gains)), constraints=enough, integrality=np.ones(len(gains)), bounds=Bounds(0, 1))
    return round(solved.fun)


def table(cases: Mapping[str, Hard]) -> str:
    """Return an aligned table: GeCo, then its floor, then the exact minimum."""
    heads = ["", *COLUMNS, *(f"floor {column}" for column in COLUMNS if column != "rows"), "least changes"]
    lines = [heads]
    for name, hard in cases.items():
        own = [f"{getattr(hard.geco, column):.4g}" for column in COLUMNS]
        floor = [f"{getattr(hard.floor, column):.4g}" for column in COLUMNS if column != "rows"]
        lines.append([name, *own, *floor, "-" if hard.least is None else f"{hard.least:.3g}"])
    return aligned(lines)
