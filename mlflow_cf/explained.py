"""A model together with what it takes to explain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.constraints import Constraints, ConstraintSource
from mlflow_cf.errors import InputError
from mlflow_cf.explainers import AnyExplainer, Facts, Learned
from mlflow_cf.explainers.explainer import check_explainer, check_rows_kept
from mlflow_cf.explainers.registry import ExplainerSource, asked_explainer, explainer_of
from mlflow_cf.explainers.searches import Searches
from mlflow_cf.features import BackgroundRows, CodedTable, FeatureSpace, Rows
from mlflow_cf.goal import BoundTarget, Requirement, Requirements, spread_of
from mlflow_cf.model.judge import Judge, OpenModel, Outcome
from mlflow_cf.model.parity import Opened, open_structure
from mlflow_cf.options import TargetSource
from mlflow_cf.policy import Explain, Policy, Query, RegionAsked, Target, WhyNotAsked
from mlflow_cf.policy.further import AnyVersions
from mlflow_cf.policy.levers import LeversAsked
from mlflow_cf.policy.limits import Diversity
from mlflow_cf.policy.reasons import MOST_REASONS, ReasonsSource, ReferenceName, check_features
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.proof.given import verify_given
from mlflow_cf.reasons.notice import Letter, Notice, notice_of
from mlflow_cf.records.check import TIME_LIMIT_S, check_record
from mlflow_cf.records.document import RecordSource
from mlflow_cf.records.make import record_of, recorded
from mlflow_cf.records.result import Checks
from mlflow_cf.request.admission import Admission
from mlflow_cf.request.answer import answer
from mlflow_cf.request.context import ExtraModels, LearnedOnce, RequestContext, described
from mlflow_cf.request.explain_table import with_constraints
from mlflow_cf.request.ladder import answer_ladder, check_ladder, serves_rung
from mlflow_cf.request.levers import levers_of
from mlflow_cf.request.reasons import Compared, outcome_words, reasons_of
from mlflow_cf.request.request import Caller, checked_jobs
from mlflow_cf.request.rows import check_rows
from mlflow_cf.request.trials import Trials
from mlflow_cf.request.warmth import Warmth
from mlflow_cf.words.description import Description, summary
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.factors import Reasons
from mlflow_cf.words.languages import answers_in, reasons_in
from mlflow_cf.words.levers import Levers
from mlflow_cf.words.phrases import Language
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.verification import Verifications


@dataclass(frozen=True, eq=False, repr=False)
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
        bound_policy: the policy bound to features and background.
        opened: the structure inside the model, if it has one.
        extra_models: what else answers can be held to: other models, plausibility.
        admission: how many requests may be explained at the same time.
        warmth: which explainers have run once.
    """

    model: OpenModel
    space: FeatureSpace
    background: pd.DataFrame
    labels: NDArray[np.generic] | None
    policy: Policy
    explainer: AnyExplainer
    searches: Searches
    judge: Judge
    outcome: Outcome
    bound_policy: BoundPolicy
    opened: Opened
    extra_models: ExtraModels = field(default_factory=ExtraModels)
    admission: Admission = field(default_factory=Admission)
    warmth: Warmth = field(default_factory=Warmth)

    @classmethod
    def build(
        cls,
        model: OpenModel,
        space: FeatureSpace,
        background: BackgroundRows,
        policy: Policy,
        explainer: AnyExplainer,
        kept: LearnedOnce,
    ) -> ExplainedModel:
        """Prepare everything that depends on model and background, whose features are `space`, alone, once.

        The explainer learns here, unless what it has learned before is `kept`.

        Raises:
            InputError: a policy that does not fit the features or the model, or an explainer that does not fit either.
        """
        policy.target.check(model)
        policy.target.check_single()
        policy.target.check_margin(policy.margin, model)
        policy.privacy.check_together(policy.constraints)
        check_features(policy.reasons, policy.protected, space.names)
        check_rows_kept(explainer, policy.privacy)
        codes = space.encode(background.rows) if background.codes is None else background.codes
        bound_policy = BoundPolicy.build(space, codes, policy.constraints, policy.distance, policy.values, kept.causal)
        judge, outcome = Judge.learn(model, CodedTable(space, bound_policy.background))
        opened = open_structure(judge, space, bound_policy.background, outcome)
        target = BoundTarget(policy.target, model, spread=spread_of(outcome))
        bound_policy = bound_policy.opened_by(opened.structure)
        facts = Facts(bound_policy, background.labels, outcome, target, opened.structure, policy.seed)
        check_explainer(explainer, facts, 1)
        searches = Searches(facts, explainer, kept.learned)
        extra = kept.extra_models
        whole = cls(
            model, space, *background[:2], policy, explainer, searches, judge, outcome, bound_policy, opened, extra
        )
        if policy.certify and whole.context.required.structure is None:
            reason = whole.context.required.obstacle.fact
            raise InputError("certify", f"nothing can be proved of this model ({reason})", "leave it out")
        return whole

    @property
    def learned(self) -> Learned | None:
        """What the explainer has learned, if it learns."""
        return self.searches.own.learned

    @cached_property
    def context(self) -> RequestContext:
        """What all requests share."""
        model = Requirements(self.space, self.judge, self.outcome, self.opened)
        return RequestContext(self.policy, model, self.extra_models, self.bound_policy, self.searches, self.admission)

    def predict(
        self, X: Rows, params: Mapping[str, Any] | None = None, *, within_s: float | None = None
    ) -> pd.DataFrame:
        """Answer rows with predictions and counterfactuals: what the served model returns.

        Too many requests at the same time get their predictions and the status ``busy``.

        Args:
            X: rows to explain: a table with at least the model's columns, an array (m, d) of them, or one row as a
                Series or dict. ``0`` and ``"0"`` are the same column.
            params: ``{"counterfactual": {...}}`` with any of explain, count, target, constraints, explainer, seed,
                time_limit_s, max_evaluations, certify, robust_to, plausible, survival, margin, diversity,
                min_difference, why_not, region, levers, responsiveness, language, record and reasons, as in `explain`.
            within_s: seconds in which a client must have its reply, where one waits for it: one time limit holds for
                all rows then, and so do the policy's limits on how many there may be; None: as long as it takes.

        Returns:
            One record per row (see `Explanation.to_dict`) as a table of objects with the rows' index.

        Raises:
            InputError: options that are too large, malformed, go beyond the policy, or do not fit the model; too many
                rows.
        """
        return self.request(X, params, within_s=within_s).to_records()

    def request(
        self, X: Rows, params: Mapping[str, Any] | None = None, *, within_s: float | None = None, timed: bool = True
    ) -> Explanations:
        """Answer rows X (n, d) as `predict` does, with the same `params`, as objects.

        `within_s` is how many seconds a server has for the request, whose limit of rows then counts; None: there is no
        server. Without a clock unless it is `timed`.

        Raises:
            InputError: as `predict`.
        """
        if within_s is not None:
            check_rows(X, self.policy.limits.rows)
        query = Query.asked(params, self.policy.limits)
        self.policy.check_private(query, self.explainer.name)
        if self.policy.privacy.points is not None:
            many = min(len(self.space.read(X)), self.policy.limits.explained_rows)
            self.policy.privacy.check_points(many * query.points(len(self.space)))
        timely = Caller.of(self.policy.limits, query.time_limit_s, within_s)
        return self._answer(X, query, self._asked(query), timely if timed else Caller(None, 0.0, served=True))

    def explain(
        self,
        X: Rows,
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
        robust_to: AnyVersions = None,
        plausible: bool | Mapping[str, Any] | None = None,
        survival: bool | Mapping[str, Any] | None = None,
        margin: float | None = None,
        diversity: Diversity | None = None,
        min_difference: float | None = None,
        why_not: WhyNotAsked | None = None,
        region: RegionAsked = False,
        levers: LeversAsked | Sequence[Sequence[str]] | None = None,
        responsiveness: bool = False,
        language: Language | None = None,
        record: bool = False,
        reasons: ReasonsSource = False,
        n_jobs: int | None = None,
    ) -> Explanations:
        """Explain rows (m, d), in order; where too many threads do so at the same time, the others wait.

        Args:
            X: rows to explain: a table with at least the model's columns, an array (m, d) of them, or one row as a
                Series or dict. ``0`` and ``"0"`` are the same column.
            count: counterfactuals per row, up to the policy's limit.
            target: another wanted outcome than the policy's: a label, a `Target` or its dict.
            constraints: more constraints, on top of the policy's: `Constraints`, a dict, a file, or PLAF text.
            explainer: another explainer: a name, a dict of name and options that requests may set, or an object.
            seed: seed; None: the policy's.
            time_limit_s: seconds for the whole call; None: no clock. Rows share what is left of it evenly.
            max_evaluations: rows scored per explained row; None: the policy's limit.
            certify: prove that nothing is nearer, or find what is, as far as the limits allow.
            explain: which rows to explain: ``unfavourable`` ones, ``all`` or ``none``.
            robust_to: more models under which answers must meet the same target: names of those in the artifact or
                True for all; others as in `wrap`.
            plausible: whether answers must look like the background, or ``{"quantile": ...}`` for how much.
            survival: whether answers must survive retraining, or ``{"confidence": ...}`` for how surely.
            margin: by how much the probability of the wanted label must exceed the target's, or one half.
            diversity: which of several answers come first: the best of every set of changed features (``sets``), or
                the nearest (``near``); None: as the policy says.
            min_difference: several answers differ by a level, or in a number by this share of its range.
            why_not: how much to find out about rows without counterfactual: ``"quick"``, ``"full"`` or False.
            region: whether to widen counterfactuals to boxes in which every admissible row is one, too: in the features
                that they change (True), or in all of them (``"all"``).
            levers: sets of features, or how many groups may be in one: the nearest answer of each; see `levers`.
            responsiveness: which share of the lawful changes of each feature group turns the decision.
            language: of sentences, ``"en"`` or ``"de"``; None: the policy's.
            record: whether each explanation has its record as JSON; see `record`.
            reasons: the factors behind an unfavourable decision: True, or a dict of ``reference`` and ``most``.
            n_jobs: most cores that a long table takes, by threads and processes; None or -1: all that are free.

        Returns:
            One explanation per row with the rows' index; `Explanations.to_frame` makes one table of them.

        Raises:
            InputError: arguments that are malformed, loosen the policy, or do not fit the model.
            Interrupted: by Ctrl-C; a KeyboardInterrupt that holds what was found so far.
        """
        named = explainer if isinstance(explainer, str | Mapping) else None
        versions, others = self.context.opened(robust_to)
        query = Query.read(
            {
                "explain": explain,
                "count": count,
                "target": target.to_dict() if isinstance(target, Target) else target,
                "constraints": None if constraints is None else Constraints.read(constraints),
                "explainer": named,
                "seed": seed,
                "time_limit_s": time_limit_s,
                "max_evaluations": max_evaluations,
                "certify": certify,
                "robust_to": versions,
                "plausible": plausible,
                "survival": survival,
                "margin": margin,
                "diversity": diversity,
                "min_difference": min_difference,
                "why_not": why_not,
                "region": region,
                "levers": levers,
                "responsiveness": responsiveness,
                "language": language,
                "record": record,
                "reasons": reasons,
            }
        )
        query.check_count(self.policy.limits)
        chosen = self._asked(query) if explainer is None or named is not None else explainer_of(explainer)
        caller = Caller(query.time_limit_s, 0.0, served=False, jobs=checked_jobs(n_jobs))
        return self._answer(X, query, chosen, caller, others)

    def verify(
        self,
        rows: Rows,
        counterfactuals: Rows,
        *,
        target: TargetSource = None,
        constraints: ConstraintSource = None,
        minimality: bool = True,
        robust_to: AnyVersions = None,
        plausible: bool | Mapping[str, Any] | None = None,
        survival: bool | Mapping[str, Any] | None = None,
        margin: float | None = None,
    ) -> Verifications:
        """Verify given counterfactuals (m, d), each for its row of `rows` (m, d) or all for a single one (1, d).

        `minimality` finds out which changes are redundant. `target`, `constraints`, `robust_to`, `plausible`,
        `survival` and `margin` are as in `explain`. Tables that do not go together are an `InputError`; a row that
        cannot be coded is reported instead.
        """
        versions, others = self.context.opened(robust_to)
        query = Query.read({"robust_to": versions, "plausible": plausible, "survival": survival, "margin": margin})
        requirements = self.context.shared_by(query, others).requirements
        wanted = self.policy.target_for(target, self.model, owner=True)
        wanted.check_single()
        wanted.check_margin(requirements.margin, self.model)
        asked = Constraints.read(constraints)
        self.policy.privacy.check_together(asked)
        bound_policy = self.bound_policy.tightened(asked)
        return verify_given(requirements, bound_policy, wanted, rows, counterfactuals, minimality=minimality)

    def levers(
        self,
        row: Rows,
        levers: LeversAsked | Sequence[Sequence[str]] = 2,
        *,
        target: TargetSource = None,
        constraints: ConstraintSource = None,
        seed: int | None = None,
        time_limit_s: float | None = None,
        max_evaluations: int | None = None,
    ) -> Levers:
        """Return what each set of features can do for a row: the nearest answer that changes nothing else, or none.

        Args:
            row: a single row.
            levers: sets of features by name, or a number: all sets of up to so many feature groups, of which those
                above a working one are not searched. A group that is declared is one lever, whichever of its features
                is named.
            target, constraints, seed, time_limit_s, max_evaluations: as in `explain`; the limits are those of all
                sets together.

        Raises:
            InputError: sets that name unknown or immutable features, too many sets, more rows than one, or other
                arguments that do not fit.
        """
        query = Query.read(
            {
                "target": target.to_dict() if isinstance(target, Target) else target,
                "constraints": None if constraints is None else Constraints.read(constraints),
                "seed": seed,
                "time_limit_s": time_limit_s,
                "max_evaluations": max_evaluations,
                "levers": levers,
            }
        )
        self.policy.privacy.check_together(query.constraints)
        caller = Caller(query.time_limit_s, 0.0, served=False)
        request = self.context.request(query, self.explainer, caller, (), lambda _: ())  # one row needs no process
        request.target.check_single()
        return levers_of(with_constraints(request), row)

    def reasons(
        self,
        row: Rows,
        *,
        reference: ReferenceName | Rows = "approved",
        most: int = MOST_REASONS,
        target: TargetSource = None,
        seed: int | None = None,
        time_limit_s: float | None = None,
        max_evaluations: int | None = None,
    ) -> Reasons:
        """Return the principal factors behind the decision about a row, whether a person can change them or not.

        Shapley values of the difference to a reference: exact for trees, linear models and few groups, else sampled.

        Args:
            row: a single row.
            reference: what it is compared with: the mean of background rows that the model decides as wanted
                (``"approved"``), one row of their medians (``"favourable_median"``), or a given row so decided.
            most: principal factors; all others are in `Reasons.others`.
            target, seed, time_limit_s, max_evaluations: as in `explain`; the limits are those of sampling.

        Raises:
            InputError: more rows than one, or a reference that does not fit or is itself refused.
        """
        options = {"target": target, "seed": seed, "time_limit_s": time_limit_s, "max_evaluations": max_evaluations}
        return reasons_of(self.context, self.explainer, row, Compared(reference, most), options)

    def notice(
        self,
        row: Rows,
        *,
        reference: ReferenceName | Rows = "approved",
        most: int = MOST_REASONS,
        count: int = 1,
        target: TargetSource = None,
        constraints: ConstraintSource = None,
        letter: Letter | None = None,
        language: Language | None = None,
    ) -> Notice:
        """Return a notice of the decision about a row: its reasons, and apart from them what would change it.

        Args:
            row, reference, most, target: as in `reasons`.
            count, constraints: of counterfactuals, as in `explain`.
            letter: templates of the owner's, and what they need beside the decision; None: ours.
            language: of its words, as in `explain`.

        Raises:
            InputError: as `reasons` and `explain`, or a template that fails.
        """
        language = language or self.policy.language
        reasons = reasons_in(self.reasons(row, reference=reference, most=most, target=target), language)
        (found,) = self.explain(row, count=count, target=target, constraints=constraints, language=language)
        record, wanted = self.record(row, found), self.policy.target_for(target, self.model, owner=True)
        return notice_of(found, reasons, outcome_words(wanted), record, letter or Letter(), language)

    def record(self, row: Rows, explanation: Explanation) -> dict[str, Any]:
        """Return the record of an explained row, a JSON document that `check` verifies later, here or elsewhere.

        Raises:
            InputError: more rows than one, or an explanation of another row.
        """
        return record_of(self, row, explanation)

    def check(self, record: RecordSource, *, time_limit_s: float = TIME_LIMIT_S) -> Checks:
        """Return what of a record still holds: digests, predictions, every constraint, and what was proved.

        Args:
            record: what `record` returned, its JSON text, or the path of a file.
            time_limit_s: seconds for the search that proves again.

        Raises:
            InputError: no record, one of a newer schema version, or one of other features.
        """
        return check_record(self, record, time_limit_s)

    def describe(self) -> Description:
        """Return what was wrapped, as a dict of plain values that JSON can hold; it reads as a text, or as a table."""
        return Description(described(self.context))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle what cannot be prepared again: the model and what it was wrapped with."""
        made_of = (self.model, self.space, BackgroundRows(self.background, self.labels), self.policy, self.explainer)
        return partial(
            ExplainedModel.build, kept=LearnedOnce(self.learned, self.extra_models, self.bound_policy.learned)
        ), made_of

    def __repr__(self) -> str:
        return f"ExplainedModel({summary(self.describe())})"

    def _repr_html_(self) -> str:
        """Return what `describe` says as a table for notebooks."""
        return self.describe()._repr_html_()

    def warm_up(self) -> None:
        """Explain a background row, so that no request waits for what is compiled or loaded on first use."""
        self._trials.warm_up()

    @property
    def _trials(self) -> Trials:
        return Trials(self.context, self.background, self.warmth, self._answer, self.reasons)

    def _asked(self, query: Query) -> AnyExplainer:
        return self.explainer if query.explainer is None else asked_explainer(query.explainer, self.explainer)

    def _answer(
        self, X: Rows, query: Query, explainer: AnyExplainer, caller: Caller, others: tuple[Requirement, ...] = ()
    ) -> Explanations:
        if query.constraints.model_fields_set:  # those of the policy were checked when the model was wrapped
            self.policy.privacy.check_together(query.constraints)
        if explainer is not self.explainer:
            check_rows_kept(explainer, self.policy.privacy)
        if not caller.trial and query.explain != "none":
            caller = self._trials.warmed(query, explainer, caller, len(X) if isinstance(X, Sized) else 1)
        if query.record:
            plain = query.model_copy(update={"record": False})
            return recorded(self, self.space.read(X), self._answer(X, plain, explainer, caller, others))
        if isinstance(query.target, Target) and query.target.ladder:
            return self._answer_ladder(X, query, explainer, caller, others)
        elsewhere = partial(self._answer, query=query, explainer=explainer, caller=caller, others=others)
        return answer(self.context.request(query, explainer, caller, others, elsewhere), X)

    def _answer_ladder(
        self, X: Rows, query: Query, explainer: AnyExplainer, caller: Caller, others: tuple[Requirement, ...]
    ) -> Explanations:
        """Answer one rung after the other, each as a request of its own."""
        check_ladder(query)
        requirements = self.context.shared_by(query, others).requirements
        target = self.context.target(query, requirements, owner=not caller.served)

        def ask(rung: Target, rows: pd.DataFrame, seconds: float | None) -> Explanations:
            asked = query.model_copy(update={"target": rung})
            return self._answer(rows, asked, explainer, caller._replace(seconds=seconds), others)

        serves = partial(serves_rung, requirements)
        answers = answer_ladder(target, self.space.read(X), ask, caller.seconds, serves=serves)
        whole = tuple(replace(one, asked=(query, caller.served)) for one in answers)  # not of one rung
        return answers_in(replace(answers, items=whole), query.language or self.policy.language)
