"""`wrap`: a fitted model in, an explained model out; in memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mlflow_cf.backgrounds import Background, taken
from mlflow_cf.causal.fitted import with_arrays
from mlflow_cf.constraints import ConstraintSource, Values
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import ExplainerSource, explainer_of
from mlflow_cf.features import BackgroundRows, FeatureSpace, Floats, Table, as_background, stand_ins
from mlflow_cf.goal import BoundTarget
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.judge import Judge, OpenModel
from mlflow_cf.model.parity import with_levels_of
from mlflow_cf.model.versions import open_versions
from mlflow_cf.options import DistanceSource, PlausibleSource, TargetSource, WrapOptions, told_by
from mlflow_cf.policy import Limits, Privacy, Sealable, Trace, WhyNotAsked
from mlflow_cf.policy.limits import LEAST_DIFFERENCE, Diversity
from mlflow_cf.policy.survival import SurvivalSource, SurvivalWanted
from mlflow_cf.request.context import ExtraModels, LearnedOnce
from mlflow_cf.survival import (
    Opening,
    Refit,
    Retrained,
    Showing,
    Trial,
    future_models,
    given_models,
    learned_from,
    shrinks,
    tried,
)
from mlflow_cf.words.phrases import Language

_logger = logging.getLogger(__name__)


@told_by(WrapOptions)
def wrap(
    model: object,
    data: Table | Background,
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
    survival: SurvivalSource = None,
    output: str | None = None,
) -> ExplainedModel:
    """Wrap a fitted model so that it explains its decisions; in memory, without MLflow's tracking or a server.

    Args:
        model: a fitted scikit-learn, XGBoost, LightGBM, CatBoost, PyTorch or ONNX model or pipeline; the URI or folder
            of any MLflow model; a loaded pyfunc; or a function of a table, with `output`.
        data: sample of the training rows in the model's own raw input columns: a table, or an array (n, d). Strings,
            categories, dates and missing values stay as they are; what is proposed comes from these rows. A column that
            never varies here is kept as a row has it. Of more rows than memory holds, a `mlflow_cf.Background`.
        labels: (n,) training target of these rows, for explainers that use it; None: they take the model's answers.
        (see `WrapOptions`)
        output: what a model without known outputs returns: ``"label"``, ``"score"`` or ``"value"``.

    Raises:
        InputError: anything that does not fit, with its path, the fact and the nearest fix.
    """
    options = WrapOptions(target, constraints, explainer, features, distance, values, seed, limits, certify, privacy,
                          seal, trace, robust_to, plausible, margin, diversity, min_difference, why_not,
                          language, reasons, protected, survival)  # fmt: skip
    rows, labels, counted = taken(data, labels)
    opened = open_native(model, output=output, rows=rows)
    versions = open_versions(options.versions, rows, output)
    drawn, options = drawn_models(model, opened, rows, labels, options)
    return warned(assemble(opened, rows, labels, options, OtherModels(versions, drawn), counted))


@dataclass(frozen=True, eq=False)
class OtherModels:
    """Models beside the one that is explained.

    Attributes:
        versions: name -> another version, opened.
        drawn: models that retraining may give; None: none are asked for.
    """

    versions: Mapping[str, OpenModel] = field(default_factory=dict)
    drawn: Retrained | None = None


def drawn_models(
    model: object, opened: OpenModel, data: Table, labels: ArrayLike | None, options: WrapOptions
) -> tuple[Retrained | None, WrapOptions]:
    """Return the models that retraining a model, which is also `opened`, may give; None if none are asked for.

    The options say then how strict the promise is, if that was left open.

    Raises:
        InputError: there are no labels, or it cannot be retrained.
    """
    wanted = options.surviving
    if wanted is None:
        return None, options
    options.policy(opened)  # what is wrong with it is found before anything is fitted
    rows = data if isinstance(data, np.ndarray) else as_background(data, opened.columns, numbered=True)
    if isinstance(rows, pd.DataFrame) and opened.columns and set(opened.columns) <= set(rows.columns):
        rows = rows.loc[:, list(opened.columns)]
    if not wanted.retrained:
        return given_models(wanted, rows), options
    learned, tells = learned_from(rows, labels), ""
    refit = Refit.of(model, learned)
    if wanted.on_trial:

        def prepared(trial: Trial, wanted: SurvivalWanted) -> Showing:
            return OnTrial.of(options, trial, wanted)

        certain = opened.score_kind == "probability" and not opened.regression
        wanted, tells = tried(refit, learned, wanted, options.seed, prepared, margins=certain)
    drawn = refit.drawn(learned, wanted, np.random.default_rng(options.seed))
    told = "; ".join(note for note in (tells, drawn.note) if note)
    return replace(drawn, note=told), replace(options, survival=wanted)


# Rows of each half that are explained on trial, the candidates scored for each, and the seconds for all of them. With
# 24 and 2,000, a forest on Credit found 5 answers, which all held; with these 70, of which .73 do (in fact .86).
TRIED: Final = 48
TRIED_EVALUATIONS: Final = 6_000
TRIED_S: Final = 90.0


@dataclass(frozen=True, eq=False)
class OnTrial:
    """A model of one half of the rows, whose answers are shown to models of the other half.

    Attributes:
        explained: the model; refused: (m, d) rows of the other half that it refuses; later: those other models.
    """

    explained: ExplainedModel
    refused: pd.DataFrame
    later: Sequence[Judge]

    @classmethod
    def of(cls, options: WrapOptions, trial: Trial, wanted: SurvivalWanted) -> OnTrial:
        """Prepare a trial."""
        opened = open_native(trial.model, output=None, rows=trial.own.data)
        alone = replace(options, survival=wanted, robust_to=(), why_not=False, trace=False, certify=False, privacy=None)
        explained = assemble(opened, trial.own.data, trial.own.labels, alone, OtherModels(drawn=trial.drawn))
        target, rows = explained.policy.target, as_background(trial.other.data, opened.columns, numbered=True)
        if not target.differs:  # else every row is one to turn
            rows = rows[~explained.context.model.bound(target, -1).met(explained.judge.outcome(rows))]
        models = map(Opening(trial.own.data).open, trial.later)
        return cls(explained, rows.head(TRIED), [Judge.learn(model, explained.background)[0] for model in models])

    @property
    def linear(self) -> bool:
        """Whether its retrained models are linear, and shrunk."""
        future = self.explained.extra_models.future
        return future is not None and shrinks(future.structure, future.count)

    def held(self, margin: float) -> Floats:
        """Return the share (k,) of the later models under which each answer with such a margin holds."""
        policy = self.explained.policy
        survival = None if policy.survival is None else policy.survival.model_copy(update={"margin": margin})
        asked = replace(self.explained, policy=policy.model_copy(update={"survival": survival}))
        told = asked.explain(self.refused, max_evaluations=TRIED_EVALUATIONS, time_limit_s=TRIED_S)
        found = [one for one in told if one.counterfactuals]
        if not found:
            return np.empty(0)
        answers = asked.space.from_values([one.counterfactuals[0].row for one in found])
        differs, labels = policy.target.differs, [one.prediction for one in found]
        own = asked.model.codes_of(labels) if differs else np.full(len(found), -1)
        plain = policy.target.model_copy(update={"min_probability": None})
        held = np.zeros(len(found))
        for judge in self.later:
            outcome = judge.outcome(answers)
            for label in np.unique(own):
                some = np.flatnonzero(own == label)
                held[some] += BoundTarget(plain, judge.model, int(label)).met(outcome.take(some))
        return held / len(self.later)


def warned(explained: ExplainedModel) -> ExplainedModel:
    """Return an explained model, after warnings of what may be wrong with its policy."""
    for finding in explained.context.findings:
        _logger.warning("%s", finding)
    return explained


def assemble(
    model: OpenModel,
    data: Table,
    labels: ArrayLike | None,
    options: WrapOptions,
    others: OtherModels | None = None,
    counted: Background | None = None,
) -> ExplainedModel:
    """Join an opened model, and `others` beside it, with its background and options.

    Where the rows of `data` are a sample, `counted` is what is known of all rows.
    """
    data = as_background(data, model.columns, numbered=True)  # numbers stay names unless the model has its own
    if model.columns:
        missing = [column for column in model.columns if column not in data.columns]
        if missing:
            raise InputError(f"data.{missing[0]}", "the model needs this column", "pass its raw input columns")
        data = data.loc[:, list(model.columns)]
    explainer = explainer_of(options.explainer)
    policy = options.policy(model)
    known = None if labels is None else np.asarray(labels)
    if known is not None and known.shape != (len(data),):
        raise InputError("labels", f"{known.shape} labels for {len(data)} rows", "pass one label per row of data")
    space = (
        FeatureSpace.infer(data, options.features)
        if counted is None
        else counted.space(list(map(str, data.columns)), options.features)
    )
    codes = space.encode(data)
    constraints, causal = with_arrays(policy.constraints, space, data, codes)
    policy = policy.model_copy(update={"constraints": constraints})
    if policy.privacy.keeps_rows:
        background = BackgroundRows(data.reset_index(drop=True), known, codes)
    else:
        codes, space = stand_ins(codes), replace(space, joint=())  # combinations are parts of rows
        background = BackgroundRows(space.decode(codes), None, codes)
    others = others or OtherModels()
    future = None if others.drawn is None else future_models(others.drawn, model, space, codes)
    space = with_levels_of(model, space, background.rows)
    extra_models = ExtraModels.learn(policy, others.versions, space, codes, future=future)
    return ExplainedModel.build(
        model, space, background, policy, explainer, LearnedOnce(extra_models=extra_models, causal=causal)
    )
