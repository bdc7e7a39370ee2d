"""What the requests to one explained model share, and how the options of one become a `Request`.

Also the description of an explained model as plain values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple

from mlflow_cf.constraints import Origin
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.explainers.registry import explainer_to_dict
from mlflow_cf.explainers.searches import Searches
from mlflow_cf.goal import Requirement, Requirements
from mlflow_cf.model.judge import CountedJudge
from mlflow_cf.model.versions import WHERE, open_versions
from mlflow_cf.policy import Policy, Query, Target
from mlflow_cf.policy.further import AnyVersions, Plausibly, PlausiblyAsked, VersionsAsked
from mlflow_cf.problem import BoundPolicy
from mlflow_cf.request.admission import Admission
from mlflow_cf.request.disclosure import notes_on_privacy
from mlflow_cf.request.extra_models import ExtraModels, version_of
from mlflow_cf.request.request import Caller, Request, Tightened, Work
from mlflow_cf.why_not.lint import lint
from mlflow_cf.words.description import notes_on_constants

MOST_KEPT: Final = 8  # combinations of options whose structures and tables are kept: callers choose them


class Shared(NamedTuple):
    """What requests share that have the same `robust_to`, `plausible` and `margin`.

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

    @cached_property
    def findings(self) -> tuple[str, ...]:
        """Warnings about the policy, computed once: on wide tables that takes 0.4 s."""
        return tuple(lint(self.policy, self.bound_policy))

    @property
    def shared(self) -> Shared:
        """What requests share that ask for nothing further."""
        return self._shared((), False, None)

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

    def requirements(self, query: Query, others: tuple[Requirement, ...] = ()) -> Requirements:
        """Return what answers to a query must meet; `others` are opened for it alone.

        Raises:
            InputError: it asks for less than the policy, or for what the model was not wrapped with.
        """
        return self._shared_by(query, others).requirements

    def _shared_by(self, query: Query, others: tuple[Requirement, ...]) -> Shared:
        share = partial(self._share, others=others) if others else self._shared
        return share(query.robust_to or (), query.plausible, query.margin)

    @cached_property
    def _shared(self) -> Callable[[VersionsAsked, PlausiblyAsked, float | None], Shared]:
        """Returns what `_share` does, and keeps it for the last few combinations of options."""
        return lru_cache(MOST_KEPT, typed=True)(self._share)

    @cached_property
    def _tightened(self) -> Tightened:
        """The bound policies of the last few requests with constraints."""
        return Tightened()

    def _share(
        self,
        robust_to: VersionsAsked,
        plausible: PlausiblyAsked,
        margin: float | None,
        others: tuple[Requirement, ...] = (),
    ) -> Shared:
        further = (*self._versions(robust_to), *self._plausible(plausible), *others)
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

    def target(self, query: Query, requirements: Requirements, *, owner: bool) -> Target:
        """Return the target of a query.

        Raises:
            InputError: one that it may not ask for, or that one of the requirements cannot meet.
        """
        target = self.policy.target_for(query.target, self.model.judge.model, owner=owner)
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
        shared, seconds = self._shared_by(query, others), caller.seconds
        return Request(
            requirements=shared.requirements,
            judges=CountedJudge(shared.requirements.judges),
            bound_policy=shared.owners if caller.owner else shared.for_requests,
            tightened=self._tightened,
            target=self.target(query, shared.requirements, owner=not caller.served),
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
        )


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
        "structure": opened.note,
        "parity": opened.parity(model.tolerance),
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
