"""A model together with what it takes to explain it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mlflow_cf.constraints import Constraints, ConstraintSource, Values
from mlflow_cf.errors import InputError
from mlflow_cf.explainers import AnyExplainer, Facts, Learned
from mlflow_cf.explainers.explainer import check_explainer
from mlflow_cf.explainers.registry import ExplainerSource, asked_explainer, explainer_of, explainer_to_dict
from mlflow_cf.explainers.searches import Searches
from mlflow_cf.features import FeatureSpace, check_table
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.judge import Judge, OpenModel, Outcome
from mlflow_cf.model.parity import Opened, open_structure
from mlflow_cf.options import DistanceSource, TargetSource, WrapOptions
from mlflow_cf.problem import BoundTarget, Explain, Limits, Policy, Query, Setting, Target, spread_of
from mlflow_cf.proof.given import verify_given
from mlflow_cf.request.admission import Admission
from mlflow_cf.request.answer import answer
from mlflow_cf.request.request import Request
from mlflow_cf.words.reasons import Uncertified
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.verification import Verifications

PATIENCE_S = 0.03  # a served request waits so long for a place; most searches are over in less


@dataclass(frozen=True, eq=False)
class ExplainedModel:
    """A model that answers with predictions and counterfactuals; immutable, and safe to share between threads.

    Attributes:
        model: the opened model.
        space: its features.
        background: (n, d) sample of its training rows, raw columns in order.
        labels: (n,) training target of these rows, or None.
        policy: target, constraints and limits.
        explainer: searches unless a request names another.
        searches: this explainer and others of requests, ready to search; what they have learned stays in memory.
        judge, outcome: the model's decision rule, and what it says about the background.
        setting: the policy bound to features and background.
        opened: the structure inside the model, if it has one.
        admission: how many requests may be explained at the same time.
    """

    model: OpenModel
    space: FeatureSpace
    background: pd.DataFrame = field(repr=False)
    labels: NDArray[np.generic] | None = field(repr=False)
    policy: Policy
    explainer: AnyExplainer
    searches: Searches = field(repr=False)
    judge: Judge = field(repr=False)
    outcome: Outcome = field(repr=False)
    setting: Setting = field(repr=False)
    opened: Opened = field(repr=False)
    admission: Admission = field(default_factory=Admission, repr=False)

    @classmethod
    def build(
        cls,
        model: OpenModel,
        space: FeatureSpace,
        background: pd.DataFrame,
        labels: NDArray[np.generic] | None,
        policy: Policy,
        explainer: AnyExplainer,
        *,
        learned: Learned | None = None,
    ) -> ExplainedModel:
        """Prepare everything that depends on model and background alone, once.

        The explainer learns here, unless it is given what it has `learned` before.

        Raises:
            InputError: a policy that does not fit the features or the model, or an explainer that does not fit either.
        """
        policy.target.check(model)
        setting = Setting.build(space, space.encode(background), policy.constraints, policy.distance, policy.values)
        judge, outcome = Judge.learn(model, space.decode(setting.background))
        opened = open_structure(judge, space, setting.background, outcome)
        if policy.certify and opened.structure is None:
            raise InputError("certify", f"nothing can be proved of this model ({opened.note})", "leave it out")
        setting = setting.opened_by(opened.structure)
        target = BoundTarget(policy.target, model, spread=spread_of(outcome))
        facts = Facts(setting, labels, outcome, target, opened.structure, policy.seed)
        check_explainer(explainer, facts, 1)
        searches = Searches(facts, explainer, learned)
        return cls(model, space, background, labels, policy, explainer, searches, judge, outcome, setting, opened)

    @property
    def learned(self) -> Learned | None:
        """What the explainer has learned, if it learns."""
        return self.searches.own.learned

    def predict(self, X: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Answer rows with predictions and counterfactuals: what the served model returns.

        Too many requests at the same time get their predictions and the status ``busy``.

        Args:
            X: rows (m, d) with at least the model's columns.
            params: ``{"counterfactual": {...}}`` with the options of a `Query`; None: the policy's defaults.

        Returns:
            One record per row (see `Explanation.to_dict`) as a table of objects.

        Raises:
            InputError: options that are malformed, go beyond the policy, or do not fit the model.
        """
        asked = (params or {}).get("counterfactual") or {}
        if not isinstance(asked, Mapping):
            raise InputError("counterfactual", f"a {type(asked).__name__} is not an object", "send {...}")
        query = Query.read(asked)
        query.check(self.policy.limits)
        explainer = self._asked(query)
        seconds = query.time_limit_s or self.policy.limits.time_limit_s
        records = [found.to_dict() for found in self._answer(X, query, explainer, seconds, served=True)]
        columns = list(Explanation("skipped", "", None, None).to_dict())
        return pd.DataFrame({key: pd.Series([r[key] for r in records], dtype=object) for key in columns})

    def explain(
        self,
        X: pd.DataFrame,
        *,
        count: int = 1,
        target: TargetSource = None,
        constraints: ConstraintSource = None,
        explainer: ExplainerSource | None = None,
        seed: int | None = None,
        time_limit_s: float | None = None,
        max_evaluations: int | None = None,
        certify: bool = False,
        explain: Explain = "unfavourable",
    ) -> list[Explanation]:
        """Explain rows (m, d), in order; where too many threads do so at the same time, the others wait.

        Args:
            X: rows with at least the model's columns.
            count: counterfactuals per row.
            target: another wanted outcome than the policy's.
            constraints: more constraints, on top of the policy's.
            explainer: another explainer: a name, a dict of name and options that requests may set, or an object.
            seed: seed; None: the policy's.
            time_limit_s: seconds for the whole call; None: no clock. Rows share what is left of it evenly.
            max_evaluations: rows scored per explained row; None: the policy's limit.
            certify: prove that nothing is nearer, or find what is, as far as the limits allow.
            explain: which rows to explain.

        Raises:
            InputError: arguments that are malformed, loosen the policy, or do not fit the model.
        """
        named = explainer if isinstance(explainer, str | Mapping) else None
        query = Query.read(
            {
                "explain": explain,
                "count": count,
                "target": target.to_dict() if isinstance(target, Target) else target,
                "constraints": Constraints.read(constraints),
                "explainer": named,
                "seed": seed,
                "time_limit_s": time_limit_s,
                "max_evaluations": max_evaluations,
                "certify": certify,
            }
        )
        chosen = self._asked(query) if explainer is None or named is not None else explainer_of(explainer)
        return self._answer(X, query, chosen, query.time_limit_s, served=False)

    def verify(
        self,
        rows: pd.DataFrame,
        counterfactuals: pd.DataFrame,
        *,
        target: TargetSource = None,
        constraints: ConstraintSource = None,
        minimality: bool = True,
    ) -> Verifications:
        """Verify given counterfactuals (m, d), each for its row of `rows` (m, d) or all for a single one (1, d).

        `target` and `constraints` are as in `explain`, and `minimality` finds out which changes are needless. Tables
        that do not go together are an `InputError`; a row that cannot be coded is reported instead.
        """
        wanted = self.policy.target_for(target, self.model)
        setting = self.setting.tightened(Constraints.read(constraints))
        return verify_given(self.judge, setting, wanted, (rows, counterfactuals), minimality=minimality)

    def describe(self) -> dict[str, Any]:
        """Return what was wrapped, as plain values that JSON can hold; `description` makes a text of them."""
        opened, model = self.opened, self.model
        parity = {"rows": opened.rows, "worst_difference": opened.worst, "tolerance": model.tolerance}
        return {
            "flavor": model.flavor,
            "classes": list(model.classes),
            "score": model.score_kind,
            "largest_score_decides": self.judge.argmax_decides,
            "opened": opened.structure is not None,
            "structure": opened.note,
            "parity": None if opened.structure is None else parity,
            "background_rows": len(self.background),
            "features": {
                f.name: {
                    "kind": f.kind,
                    "values": len(f.values),
                    "step": f.step if f.numeric else None,
                    "missing": f.missing,
                }
                for f in self.space.features
            },
            "policy": self.policy.to_dict(),
            "explainer": explainer_to_dict(self.explainer),
            "explained_at_once": self.admission.places,
            "notes": list(model.notes),
        }

    def _asked(self, query: Query) -> AnyExplainer:
        return self.explainer if query.explainer is None else asked_explainer(query.explainer, self.explainer)

    def _answer(
        self, X: pd.DataFrame, query: Query, explainer: AnyExplainer, seconds: float | None, *, served: bool
    ) -> list[Explanation]:
        deadline = None if seconds is None else time.perf_counter() + seconds
        request = Request(
            judge=self.judge,
            structure=self.opened.structure,
            obstacle=Uncertified("unopened", self.opened.note),
            setting=self.setting.tightened(query.constraints),
            target=self.policy.target_for(query.target, self.model),
            background=self.outcome,
            explainer=explainer,
            searches=self.searches,
            query=query,
            seed=self.policy.seed if query.seed is None else query.seed,
            certified=query.certify or self.policy.certify,
            max_evaluations=query.max_evaluations or self.policy.limits.max_evaluations,
            deadline=deadline,
            admission=self.admission,
            patience_s=PATIENCE_S if served else seconds,
            owner=not served,
        )
        return answer(request, X)


def wrap(
    model: object,
    data: pd.DataFrame,
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
    output: str | None = None,
) -> ExplainedModel:
    """Wrap a fitted model so that it explains its decisions; in memory.

    Args:
        model: a fitted estimator or pipeline, an MLflow model URI or folder, or a loaded pyfunc.
        data: sample of the training rows (n, d) in the model's own raw input columns.
        labels: (n,) training target of these rows; some explainers use it.
        target, constraints, explainer, features, distance, values, seed, limits, certify: see `WrapOptions`.
        output: what a model without known outputs returns: ``label``, ``score`` or ``value``.

    Raises:
        InputError: anything that does not fit, with its path, the fact and the nearest fix.
    """
    options = WrapOptions(target, constraints, explainer, features, distance, values, seed, limits, certify)
    return assemble(open_native(model, output=output, rows=data), data, labels, options)


def assemble(model: OpenModel, data: pd.DataFrame, labels: ArrayLike | None, options: WrapOptions) -> ExplainedModel:
    """Join an opened model with its background and options."""
    check_table(data)
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
    space = FeatureSpace.infer(data, options.features)
    return ExplainedModel.build(model, space, data.reset_index(drop=True), known, policy, explainer)
