"""What the requests to one explained model share, and how the options of one become a `Request`.

Also the description of an explained model as plain values, notes for its owner about what requests can learn of the
background, and the other models and plausibility that answers can be required to meet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from mlflow_cf.causal.opened import Arrays
from mlflow_cf.constraints import Origin
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.explainers import AnyExplainer, Learned
from mlflow_cf.explainers.registry import explainer_to_dict
from mlflow_cf.explainers.searches import Searches
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.goal import Requirement, Requirements
from mlflow_cf.metrics.plausibility_model import Plausibility
from mlflow_cf.model.judge import CountedJudge, OpenModel
from mlflow_cf.model.steps import described_steps
from mlflow_cf.model.versions import WHERE, Version, listed, open_versions, read_versions, shown_features
from mlflow_cf.policy import Policy, Query, Target
from mlflow_cf.policy.further import AnyVersions, Plausibly, PlausiblyAsked, VersionsAsked
from mlflow_cf.policy.survival import AskedSurvival
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.reasons.reasoning import Reasoning
from mlflow_cf.request.admission import Admission
from mlflow_cf.request.request import Caller, Request, Tightened, Work
from mlflow_cf.structures import Layers
from mlflow_cf.structures.structure import score_rows
from mlflow_cf.survival import FutureModels, outlying
from mlflow_cf.why_not.lint import lint
from mlflow_cf.words.description import notes_on_constants
from mlflow_cf.words.sentences import Speaker

OPENED_ON: Final = 20  # rows of the background from which a flavor sees how a table looks


@dataclass(frozen=True, eq=False)
class ExtraModels:
    """Further requirements that a model was wrapped with.

    Attributes:
        versions: name -> another model, under which answers may have to be valid.
        plausibility: the learned measure of how much rows look like the background, if there is one.
        future: the models that retraining may give, if there are some.
    """

    versions: Mapping[str, Requirement] = field(default_factory=dict)
    plausibility: Plausibility | None = None
    future: FutureModels | None = None

    @classmethod
    def learn(
        cls,
        policy: Policy,
        versions: Mapping[str, OpenModel],
        space: FeatureSpace,
        background: Floats,
        plausibility: Plausibility | None = None,
        future: FutureModels | None = None,
    ) -> ExtraModels:
        """Learn from coded background rows (n, d) what a policy asks for, unless `plausibility` was learned before.

        The models that retraining may give are opened already.

        Raises:
            InputError: a version that does not take the same features, or cannot meet the same target; neighbours
                wanted where no rows are kept.
        """
        opened = {
            name: version_of(Origin("policy", "robust_to", name), model, space, background)
            for name, model in versions.items()
        }
        if policy.plausible is not None and policy.plausible.method == "lof" and not policy.privacy.keeps_rows:
            fact = "'lof' compares with rows of data, and privacy.sample 'summary' keeps none"
            raise InputError("plausible.method", fact, "use 'isolation_forest'")
        if policy.plausible is not None and plausibility is None:
            plausibility = Plausibility.learn(policy.plausible.method, space, background)
        for requirement in opened.values():
            requirement.check(policy.target)
        return cls(opened, plausibility, future)

    def split(self, asked: AnyVersions) -> tuple[VersionsAsked, tuple[Version, ...]]:
        """Return the names in `asked` of models that are here, and the other models, which are still to be opened.

        Raises:
            InputError: it is no list, or has models with malformed names.
        """
        if asked is None or isinstance(asked, bool):
            return asked or (), ()  # as an option that is left out
        named = tuple(one for one in listed(asked) if isinstance(one, str) and one in self.versions)
        return named, read_versions([one for one in asked if not (isinstance(one, str) and one in self.versions)])

    def describe(self) -> dict[str, str]:
        """Return the note on the structure of each, by its path."""
        every = [*self.versions.values(), *([self.plausibility.requirement] if self.plausibility else [])]
        every += [] if self.future is None else [self.future.requirement]
        return {one.origin.path: str(one.opened.note) for one in every}


@dataclass(frozen=True, eq=False)
class LearnedOnce:
    """What was learned of the background once.

    Attributes:
        learned: by the explainer, if it learns; extra_models: by further requirements.
        causal: for the policy's causal equations with a model, in order; empty: it is still to be learned.
    """

    learned: Learned | None = None
    extra_models: ExtraModels = field(default_factory=ExtraModels)
    causal: tuple[Arrays, ...] = ()


def version_of(origin: Origin, model: OpenModel, space: FeatureSpace, background: Floats) -> Requirement:
    """Return the requirement to hold under another model, which sees rows of `space`.

    Raises:
        InputError: it needs a column that is not there.
    """
    return Requirement.learn(origin, shown_features(model, space, origin.name), space, background)


MOST_KEPT: Final = 8  # combinations of options whose structures and tables are kept: callers choose them


class Shared(NamedTuple):
    """What requests share that have the same `robust_to`, `plausible`, `survival` and `margin`.

    Attributes:
        requirements: what answers must meet.
        owners: the bound policy as the owner of the model sees it; for_requests: without what requests may not see.
    """

    requirements: Requirements
    owners: BoundPolicy
    for_requests: BoundPolicy


@dataclass(frozen=True, eq=False)
class RequestContext:
    """What the requests to one explained model share.

    Attributes:
        policy: what holds for all of them.
        model: the model itself, without any further requirement.
        extra_models: other models, and plausibility, that answers may have to meet.
        bound_policy: the policy, bound to the background.
        searches: the explainers; admission: how many requests are explained at the same time.
    """

    policy: Policy
    model: Requirements
    extra_models: ExtraModels
    bound_policy: BoundPolicy
    searches: Searches
    admission: Admission
    _tightened: Tightened = field(default_factory=Tightened)

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """Warnings about the policy, computed once: on wide tables that takes 0.4 s."""
        found, structure = lint(self.policy, self.bound_policy), self.model.opened.structure
        if self.policy.survival is not None and isinstance(structure, Layers):
            found += outlying(structure, self.model.space, self.bound_policy.background)
        return tuple(found)

    @cached_property
    def steps(self) -> tuple[dict[str, Any], ...]:
        """The steps of the model, for `describe()`, computed once: large forests are read a second time for it."""
        model, space = self.model, self.model.space
        rows = space.decode(self.bound_policy.background[:OPENED_ON])
        return tuple(described_steps(model.judge.model, model.opened, space, rows))

    @property
    def shared(self) -> Shared:
        """What requests share that ask for nothing further."""
        return self._shared((), False, None, False)

    @property
    def required(self) -> Requirements:
        """What the policy requires of all answers."""
        return self.shared.requirements

    def opened(self, asked: AnyVersions) -> tuple[VersionsAsked, tuple[Requirement, ...]]:
        """Return the names in `asked` of models of this artifact, and the other models, opened for one call.

        Raises:
            InputError: one of them cannot be opened, or does not take the same features.
        """
        versions, others = self.extra_models.split(asked)
        if not others:
            return versions, ()
        space, background = self.model.space, self.bound_policy.background
        models = open_versions(others, space.decode(background))
        return versions, tuple(
            version_of(Origin("request", "robust_to", name), model, space, background) for name, model in models.items()
        )

    def shared_by(self, query: Query, others: tuple[Requirement, ...] = ()) -> Shared:
        """Return what a query shares with those that ask for the same; `others` are opened for it alone.

        Raises:
            InputError: it asks for less than the policy, or for what the model was not wrapped with.
        """
        share = partial(self._share, others=others) if others else self._shared
        return share(query.robust_to or (), query.plausible, query.margin, query.survival)

    @cached_property
    def _shared(self) -> Callable[[VersionsAsked, PlausiblyAsked, float | None, AskedSurvival], Shared]:
        """Returns what `_share` does, and keeps it for the last few combinations of options."""
        return lru_cache(MOST_KEPT, typed=True)(self._share)

    def _share(
        self,
        robust_to: VersionsAsked,
        plausible: PlausiblyAsked,
        margin: float | None,
        survival: AskedSurvival = False,  # noqa: FBT002  an option that is left out
        others: tuple[Requirement, ...] = (),
    ) -> Shared:
        further = (*self._versions(robust_to), *self._plausible(plausible), *self._surviving(survival), *others)
        requirements = replace(self.model, further=further, margin=self.policy.margin_for(margin))
        known = requirements.structure is self.bound_policy.tables.structure
        bound_policy = self.bound_policy if known else self.bound_policy.opened_by(requirements.structure)
        return Shared(requirements, bound_policy, bound_policy.for_requests(self.policy.privacy))

    def _versions(self, asked: VersionsAsked) -> Iterator[Requirement]:
        """Yield the models under which answers must be valid, by the policy or because that is asked."""
        for name in asked if isinstance(asked, tuple) else ():
            if name not in self.extra_models.versions:
                known = list(self.extra_models.versions)
                fact = f"{name!r} is no model in this artifact"
                raise InputError(WHERE, fact, did_you_mean(name, known, "known ones") if known else "it holds none")
        for version in self.policy.robust_to:
            requirement = self.extra_models.versions[version.name]
            if version.required:
                yield requirement
            elif asked is True or (isinstance(asked, tuple) and version.name in asked):
                yield _by_request(requirement)

    def _plausible(self, asked: PlausiblyAsked) -> Iterator[Requirement]:
        """Yield the requirement to look like the background, by the policy or because that is asked."""
        policy, learned = self.policy.plausible, self.extra_models.plausibility
        if policy is None or learned is None:
            if asked:
                fix = "leave it out, or log the model with plausible=..."
                raise InputError("plausible", "was not learned when the model was logged", fix)
            return
        if asked or policy.required:
            wanted = asked if isinstance(asked, Plausibly) else Plausibly()
            requirement = learned.required(wanted.tightened(policy))
            yield requirement if policy.required else _by_request(requirement)

    def _surviving(self, asked: AskedSurvival) -> Iterator[Requirement]:
        """Yield the requirement to hold under models that retraining may give, by the policy or because it is asked."""
        policy, future = self.policy.survival, self.extra_models.future
        if policy is None or future is None:
            if asked:
                fix = "leave it out, or log the model with survival=..."
                raise InputError("survival", "no model was retrained when the model was logged", fix)
            return
        if asked or policy.required:
            requirement = future.required(policy.tightened(asked))
            yield requirement if policy.required else _by_request(requirement)

    def target(self, query: Query, requirements: Requirements, *, owner: bool) -> Target:
        """Return the target of a query.

        Raises:
            InputError: one that it may not ask for, or that one of the requirements cannot meet.
        """
        target = self.policy.target_for(query.target, self.model.judge.model, owner=owner)
        if requirements.margin:
            target.check_margin(requirements.margin, self.model.judge.model)
        for requirement in requirements.further:
            requirement.check(target)
        return target

    def request(
        self,
        query: Query,
        explainer: AnyExplainer,
        caller: Caller,
        others: tuple[Requirement, ...],
        elsewhere: Work,
    ) -> Request:
        """Return a request with all that its rows share."""
        shared, seconds = self.shared_by(query, others), caller.seconds
        target = self.target(query, shared.requirements, owner=not caller.served)
        language, known = query.language or self.policy.language, shared.owners.space.features
        return Request(
            requirements=shared.requirements,
            judges=CountedJudge(shared.requirements.judges),
            bound_policy=shared.owners if caller.owner else shared.for_requests,
            tightened=self._tightened,
            target=target,
            explainer=explainer,
            searches=self.searches,
            variety=self.policy.variety_for(query.diversity, query.min_difference),
            query=query,
            seed=self.policy.seed if query.seed is None else query.seed,
            certified=query.certify or self.policy.certify,
            why_not=self.policy.why_not_for(query.why_not, owner=not caller.served),
            max_evaluations=query.max_evaluations or self.policy.limits.max_evaluations,
            deadline=None if seconds is None else time.perf_counter() + seconds,
            elsewhere=elsewhere,
            admission=self.admission,
            caller=caller,
            speaker=Speaker(language, {feature.name: feature for feature in known}, target.means),
            reasoning=self.reasoning if query.reasons else None,
        )

    @cached_property
    def reasoning(self) -> Reasoning:
        """What the reasons of all decisions share, with the references that were asked for."""
        bound_policy, policy = self.bound_policy, self.policy
        owner = bound_policy.grounding.owner
        player = np.array([owner[column] for column in range(len(bound_policy.space))], dtype=np.intp)
        return Reasoning(self.model, bound_policy.background, player, policy.reasons, frozenset(policy.protected))


def _by_request(requirement: Requirement) -> Requirement:
    return replace(requirement, origin=replace(requirement.origin, source="request"))


def described(context: RequestContext) -> dict[str, Any]:
    """Return what an explained model consists of, as plain values for JSON."""
    judge, opened, space = context.model.judge, context.model.opened, context.model.space
    model = judge.model
    return {
        "flavor": model.flavor,
        "classes": list(model.classes),
        "score": model.score_kind,
        "largest_score_decides": judge.argmax_decides,
        "opened": opened.structure is not None,
        "structure": str(opened.note),
        "steps": [dict(step) for step in context.steps],
        "parity": opened.parity(model.tolerance),
        "surrogate": described_surrogate(context.model, context.bound_policy.background),
        "requirements": context.extra_models.describe(),
        "causal": [function.describe(space) for function in context.bound_policy.functions],
        "background_rows": len(context.bound_policy.background),
        "features": {feature.name: feature.describe() for feature in space.features},
        "policy": context.policy.to_dict(),
        "explainer": explainer_to_dict(context.searches.own.explainer),
        "explained_at_once": context.admission.places,
        "warnings": list(context.findings),
        "notes": [
            *model.notes,
            *notes_on_constants(space),
            *notes_on_privacy(context.shared.owners, context.shared.for_requests),
        ],
    }


def described_surrogate(model: Requirements, background: Floats) -> dict[str, Any] | None:
    """Return what imitates a model that is not opened, and how well it does so on the rows it was fitted to; else None.

    Agreement is the share of the rows that it gives the model's label; of a regression, R2 of its values.
    """
    surrogate = model.opened.surrogate
    if surrogate is None:
        return None
    scores, said = score_rows(surrogate, background), model.outcome
    if model.judge.model.regression:
        spread = float(np.var(said.values))
        agreement = 1 - float(np.mean((scores[:, 0] - said.values) ** 2)) / spread if spread else 1.0
    else:
        agreement = float(np.mean(scores.argmax(axis=1) == said.codes))
    measure = "r2" if model.judge.model.regression else "labels"
    return {"kind": surrogate.kind, "rows": len(background), "measure": measure, "agreement": agreement}


def notes_on_privacy(bound_policy: BoundPolicy, for_requests: BoundPolicy) -> Iterator[str]:
    """Yield what is to be noted of a `bound_policy` beside what requests see of it; nothing if that is all.

    It is which groups requests can never change, because too few rows share any of their actions, and what requests can
    learn: whether few rows have a value, and what distances tell.
    """
    if for_requests.reveal:
        return
    names, k = bound_policy.space.names, for_requests.k_anonymous
    for every, shared in zip(bound_policy.domains, for_requests.domains, strict=True):
        if len(every.actions) and not len(shared.actions):
            group = " and ".join(names[column] for column in every.columns)
            yield f"requests never change the group {group}: no tuple of it has more than {k} rows (k_anonymous)"
    few = [
        names[domain.columns[0]]
        for domain in for_requests.domains
        if len(domain.columns) == 1
        and bound_policy.space.features[domain.columns[0]].has_order
        and len(domain.weights)
        and (domain.weights <= k).mean() > 0.5
    ]
    if for_requests.values == "observed" and few:
        told = ", ".join(few)
        yield f"requests can learn whether a value of {told} is in the background; not with another `values`"
    if for_requests.bound_distance.percentiles is not None:
        yield "distances tell requests which share of the background lies between two values; not with another `scale`"
