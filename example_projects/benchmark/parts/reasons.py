"""Reasons of refused rows beside shap's TreeExplainer: the same interventional Shapley values against the same rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from cases.data_sets import VIEWS, split
from parts.gates import Gate
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from xgboost import XGBClassifier

import mlflow_cf
from mlflow_cf import ExplainedModel, Reasons
from mlflow_cf.reasons.reasoning import DecidedRow

WARM: Final = 3
CLOSE: Final = 1e-6  # largest difference of a contribution
EQUAL: Final = 1e-9  # of the sum of contributions and the shortfall
TRUE: Final = ("largest difference to shap", "largest gap between sum and shortfall")  # these are no matter of speed
SHARE: Final = 0.5  # of shap's CPU
MODELS: Final[Mapping[str, Callable[[int], Any]]] = {
    "xgboost": lambda seed: XGBClassifier(n_estimators=100, max_depth=6, n_jobs=1, random_state=seed),
    "forest": lambda seed: RandomForestClassifier(n_estimators=100, max_depth=10, n_jobs=1, random_state=seed),
}


@dataclass(frozen=True, eq=False)
class Line:
    """What was measured of a model; CPU in milliseconds a row.

    Attributes:
        references: rows that are compared with.
        worst: largest difference of a contribution to shap's.
        gap: largest difference between the sum of contributions and the shortfall.
        ms: of a single row that is coded already, median.
        call_ms: `explained.reasons` of such a row, median; there, scikit-learn predicts it first.
        request_ms: what reasons add to each row of one request for all of them.
        shap_ms: shap's for a single row that is prepared already, median; shap_batch_ms: in one call for all.
    """

    references: int
    worst: float
    gap: float
    ms: float
    call_ms: float
    request_ms: float
    shap_ms: float
    shap_batch_ms: float

    @property
    def gates(self) -> list[Gate]:
        """What is promised."""
        return [
            Gate(TRUE[0], self.worst, CLOSE, most=True),
            Gate(TRUE[1], self.gap, EQUAL, most=True),
            Gate("CPU of a single row, ours / shap", self.ms / self.shap_ms, SHARE, most=True),
            Gate("CPU of many rows, ours / shap", self.request_ms / self.shap_batch_ms, SHARE, most=True),
        ]


def run_all(data_sets: Sequence[str], rows: int, seed: int) -> dict[str, Line]:
    """Measure every model on every data set."""
    lines = {}
    for name in data_sets:
        parts = split(name, seed, VIEWS[name])
        for kind, make in MODELS.items():
            model = make_pipeline(_preparation(parts.X), make(seed)).fit(parts.X, parts.y)
            lines[f"{name} / {kind}"] = _measured(model, parts.X, parts.case(model, rows, {}).rejected)
    return lines


def _preparation(rows: pd.DataFrame) -> ColumnTransformer:
    """Return a preparation in which a feature is one column: sums over several ones are not the feature's own value."""
    levels = list(rows.select_dtypes(exclude="number"))
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    return ColumnTransformer([("levels", codes, levels)], remainder="passthrough", verbose_feature_names_out=False)


def _measured(model: Pipeline, background: pd.DataFrame, rejected: pd.DataFrame) -> Line:
    explained = mlflow_cf.wrap(model, background, target=1)
    singles = [rejected.iloc[[at]] for at in range(len(rejected))]
    ours, call_ms = _clocked([lambda row=row: explained.reasons(row, most=100) for row in singles])
    _, ms = _clocked(_bare(explained, rejected))
    reference = _reference(explained)
    shap, prepared = _shap(model, reference), model[:-1].transform(rejected)
    theirs, shap_ms = _clocked([lambda row=row: shap(row) for row in prepared[:, None]])
    _, (batch_ms,) = _clocked([lambda: shap(prepared)])
    asked = [lambda on=on: explained.explain(rejected, reasons=on) for on in (False, True)]
    _, (plain_ms, asked_ms) = _clocked(asked)
    names = list(model[:-1].get_feature_names_out())
    differences = [_difference(one, values, names) for one, values in zip(ours, theirs, strict=True)]
    return Line(
        references=len(reference),
        worst=max(differences),
        gap=max(abs(sum(f.contribution for f in (*one.factors, *one.others)) - (one.shortfall or 0.0)) for one in ours),
        ms=float(np.median(ms)),
        call_ms=float(np.median(call_ms)),
        request_ms=(asked_ms - plain_ms) / len(rejected),
        shap_ms=float(np.median(shap_ms)),
        shap_batch_ms=batch_ms / len(rejected),
    )


def _bare(explained: ExplainedModel, rejected: pd.DataFrame) -> list[Callable[[], Any]]:
    """Return what computes the reasons of each row, coded and decided."""
    reasoning, target = explained.context.reasoning, explained.policy.target
    codes, outcome = explained.space.encode(rejected), explained.judge.verdict(rejected)
    reference, bound = reasoning.reference("approved", target, -1), reasoning.model.bound(target, -1)
    rows = [DecidedRow(one, explained.space, outcome.take(slice(at, at + 1))) for at, one in enumerate(codes)]
    return [lambda row=row: reasoning.exact(row, bound, reference, 100) for row in rows]


def _reference(explained: ExplainedModel) -> pd.DataFrame:
    """Return the rows that reasons compare with."""
    reasoning = explained.context.reasoning
    return explained.space.decode(reasoning.reference("approved", explained.policy.target, -1).rows)


def _shap(model: Pipeline, reference: pd.DataFrame) -> Callable[[Any], Any]:
    """Return what computes shap's values of the wanted class for prepared rows (m, d)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba's and matplotlib's, on import
        import shap  # noqa: PLC0415  of the extra `benchmark`
    rows = model[:-1].transform(reference)
    masker = shap.maskers.Independent(rows, max_samples=len(rows))  # all of them: its default is a sample of 100
    explainer = shap.TreeExplainer(model[-1], data=masker, feature_perturbation="interventional", model_output="raw")

    def values(rows: Any) -> Any:
        found = np.asarray(explainer.shap_values(rows, check_additivity=False))
        return found[..., 1] if found.ndim == 3 else found

    return values


def _difference(told: Reasons, values: Any, names: list[str]) -> float:
    """Return the largest difference between contributions against a row and shap's values for it."""
    ours = {factor.features[0]: factor.contribution for factor in (*told.factors, *told.others)}
    return max(abs(ours.get(name, 0.0) + value) for name, value in zip(names, values[0], strict=True))


def _clocked(asked: list[Callable[[], Any]]) -> tuple[list[Any], list[float]]:
    """Return what each call returns, and its CPU in milliseconds; the first calls are made twice."""
    for ask in asked[:WARM]:
        ask()
    found, spent = [], []
    for ask in asked:
        start = time.process_time()
        found.append(ask())
        spent.append(1e3 * (time.process_time() - start))
    return found, spent


def table(lines: Mapping[str, Line]) -> str:
    """Return all lines as a table."""
    return pd.DataFrame({name: vars(line) for name, line in lines.items()}).T.to_string(float_format="{:.3g}".format)
