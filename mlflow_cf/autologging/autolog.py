"""`autolog`: from one call on, an explained model and its metrics beside every model that is logged in a run.

All flavors log through MLflow's public ``mlflow.models.Model.log``. That class method alone is wrapped: what trains is
not, whatever trains.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import numpy as np
from mlflow.models import Model
from numpy.typing import ArrayLike

from mlflow_cf.autologging.beside import Asked, explain_beside, measure_beside
from mlflow_cf.autologging.fitted_rows import FittedRows
from mlflow_cf.autologging.hook import Hook
from mlflow_cf.backgrounds import Background, taken
from mlflow_cf.constraints import Constraints, ConstraintSource, Values
from mlflow_cf.errors import InputError
from mlflow_cf.explainers.registry import ExplainerSource, explainer_of
from mlflow_cf.features import Table, as_background
from mlflow_cf.model.versions import read_versions
from mlflow_cf.options import DistanceSource, PlausibleSource, TargetSource, WrapOptions, told_by
from mlflow_cf.policy import Distance, Limits, Privacy, Sealable, Trace, WhyNotAsked
from mlflow_cf.policy.limits import LEAST_DIFFERENCE, Diversity
from mlflow_cf.words.phrases import Language

_logger = logging.getLogger(__name__)
_FINDINGS: Final = logging.getLogger("mlflow_cf.wrapping")  # says what of a policy is probably not meant
# Whether this thread is logging an explained model now: that logs a model, too.
_OURS: ContextVar[bool] = ContextVar("mlflow_cf_autolog", default=False)


@told_by(WrapOptions)
def autolog(
    data: Table | Background | None = None,
    labels: ArrayLike | None = None,
    *,
    target: TargetSource = None,
    constraints: ConstraintSource = None,
    explainer: ExplainerSource = "geco",
    features: Mapping[str, Mapping[str, Any]] | None = None,
    distance: DistanceSource = (0.5, 0.5, 0.0),
    values: Values = "observed",
    seed: int = 0,
    limits: Limits | Mapping[str, Any] | None = None,
    certify: bool = False,
    privacy: Privacy | Mapping[str, Any] | None = None,
    seal: Sequence[Sealable] = ("target",),
    trace: bool | Trace = False,
    robust_to: Sequence[object] = (),
    plausible: PlausibleSource = None,
    margin: float = 0.0,
    diversity: Diversity = "sets",
    min_difference: float = LEAST_DIFFERENCE,
    why_not: WhyNotAsked = "quick",
    language: Language = "en",
    reasons: Mapping[str, Any] | None = None,
    protected: Sequence[str] = (),
    evaluate_rows: int = 50,
    time_limit_s: float | None = 10.0,
    log_models: bool = True,
    registered_model_name: str | None = None,
    disable: bool = False,
    silent: bool = False,
) -> None:
    """Log an explained model, its metrics and its report beside every model that is logged in a run from now on.

    It does not matter how a model is logged: by ``mlflow.sklearn.log_model`` and its like, or by MLflow's own
    ``autolog``. Neither training nor the logged model depends on what we do: if anything fails, a warning says why. The
    latest call of this function holds, for all threads.

    Args:
        data: sample of the training rows in the model's own raw input columns, as in `log_model`. None: the rows that
            the model is fitted on, where MLflow's ``autolog`` logs it; of more than 5,000 rows a sample is taken.
            Of a `mlflow_cf.Background`, all rows count.
        labels: (n,) training target of these rows, for explainers that use it.
        (see `WrapOptions`)
        evaluate_rows: how many of the rows that miss the target are explained and measured, as in `evaluate`; 0: none.
        time_limit_s: seconds for all of these; None: no clock.
        log_models: whether explained models are logged; else their metrics and report alone.
        registered_model_name: registers each explained model as a version under this name.
        disable: from now on nothing is logged beside models, and MLflow is as it was before.
        silent: keep our warnings to ourselves.

    Raises:
        InputError: options that fit no model.
    """
    if disable:
        _AUTOLOG.turn_off()
        return
    options = WrapOptions(target, constraints, explainer, features, distance, values, seed, limits, certify, privacy,
                          seal, trace, robust_to, plausible, margin, diversity, min_difference, why_not,
                          language, reasons, protected)  # fmt: skip
    rows = _given(data, labels)
    _check(options, evaluate_rows, time_limit_s)
    _AUTOLOG.turn_on(Asked(rows, options, evaluate_rows, time_limit_s, log_models, registered_model_name, silent))


def _given(source: Table | Background | None, labels: ArrayLike | None) -> FittedRows | None:
    """Return the rows that the caller has passed."""
    known = None if labels is None else np.asarray(labels)
    if source is None:
        if known is not None:
            raise InputError("labels", "there are no rows that they belong to", "pass data, too")
        return None
    data, target, counted = taken(source, known)
    known = None if target is None else np.asarray(target)
    as_background(data, (), numbered=True)
    if known is not None and known.shape != (len(data),):
        raise InputError("labels", f"{known.shape} labels for {len(data)} rows", "pass one label per row of data")
    return FittedRows(data, known, counted)


def _check(options: WrapOptions, evaluate_rows: int, time_limit_s: float | None) -> None:
    """Refuse what would fail with every model: better now than in a warning behind hours of training."""
    if isinstance(evaluate_rows, bool) or not isinstance(evaluate_rows, int) or evaluate_rows < 0:
        raise InputError("evaluate_rows", f"{evaluate_rows!r} is no number of rows", "pass a whole number, such as 50")
    if time_limit_s is not None and not time_limit_s > 0:
        raise InputError("time_limit_s", f"{time_limit_s!r} is no time", "pass seconds above 0, or None for no limit")
    explainer_of(options.explainer)
    Constraints.read(options.constraints)
    Distance.read(options.distance)
    read_versions(options.robust_to)


@dataclass
class _Autolog:
    """What is asked for now, and the hook in MLflow that obeys it: the one of this process, as MLflow is one, too."""

    asked: Asked | None = None
    lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.hook = Hook(Model, "log", self.logged)

    def turn_on(self, asked: Asked) -> None:
        with self.lock:
            self.asked = asked
            _FINDINGS.addFilter(self.heard)
            self.hook.put()

    def turn_off(self) -> None:
        with self.lock:
            self.asked = None
            self.hook.take_away()
            _FINDINGS.removeFilter(self.heard)

    def heard(self, _: logging.LogRecord) -> bool:
        """Return whether this thread may say what it finds about an explained model."""
        return not (_OURS.get() and self.asked is not None and self.asked.silent)

    def logged(self, info: Any, arguments: Mapping[str, Any]) -> None:
        """Explain a model that MLflow has just logged; a warning says why where that is not possible."""
        asked = self.asked
        if asked is None or _OURS.get():
            return
        ours, lacking = _OURS.set(True), "no explained model"
        try:
            source = explain_beside(info, asked)
            lacking = "no metrics"
            if source is not None and asked.evaluate_rows:
                measure_beside(source, info, asked)
        except Exception as error:  # noqa: BLE001  whatever goes wrong here, training goes on
            if not asked.silent:
                name = arguments.get("name") or arguments.get("artifact_path") or "model"
                _logger.warning("%s beside %r: %s", lacking, name, _reason(error))
        finally:
            _OURS.reset(ours)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"


_AUTOLOG: Final = _Autolog()
