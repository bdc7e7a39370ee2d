"""Checks that a request's constraints add to those of the policy, and never loosen them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from mlflow_cf.constraints.causal import further_errors
from mlflow_cf.constraints.model import Bound, Constraints, Relative
from mlflow_cf.errors import InputError, raise_all
from mlflow_cf.features import Feature, FeatureSpace

_LIMITS = ("up", "down", "up_percent", "down_percent")
_ADD = "name more features, or repeat all of the policy's"


def check_tightens(policy: Constraints, request: Constraints, space: FeatureSpace, path: str = "constraints") -> None:
    """Refuse constraints of a request that can only be meant to loosen those of the policy.

    Constraints of policy and request hold together, so what a request names is always added. Refused are: a list
    that repeats part of the policy's list and adds nothing, a wider range or limit, a level the policy does not allow,
    a larger `max_changes`, any key that gives directions for a feature the policy holds fixed, another causal
    equation of a feature that has one, actions where the policy has none, no actions at all, and relationships.

    Raises:
        InputError: everything that loosens, each with its path.
    """
    raise_all(
        chain(
            _freed(policy, request, path),
            _sealed(policy, request, path),
            _wider_ranges(policy, request, space, path),
            _wider_limits(policy, request, space, path),
            further_errors(policy.causal, request.causal),
            _planned(policy, request, path),
        )
    )


def _planned(policy: Constraints, request: Constraints, path: str) -> Iterator[InputError]:
    """Yield errors of a request's actions and relationships; `plans.action_model.narrowed` checks each action."""
    if request.relationships:
        fact = "can be declared when a model is wrapped or logged only"
        yield InputError(f"{path}.relationships", fact, "leave it out")
    if request.actions and not policy.actions:
        yield InputError(f"{path}.actions", "the policy declares none", "leave it out")
    elif "actions" in request.model_fields_set and not request.actions:
        yield InputError(f"{path}.actions", "names no action", "leave it out to keep all")


def check_sealed(policy: Constraints, request: Constraints, path: str = "constraints") -> None:
    """Refuse constraints of a request on a feature that is immutable under the policy.

    Raises:
        InputError: every such constraint, with its path.
    """
    raise_all(_sealed(policy, request, path))


def _sealed(policy: Constraints, request: Constraints, path: str) -> Iterator[InputError]:
    fixed = set(policy.immutable)
    for key in ("increasing", "decreasing", "ranges", "relative", "levels", "forbidden"):
        for name in getattr(request, key):
            if name in fixed:
                yield InputError(f"{path}.{key}.{name}", "immutable under the policy", "leave it out")


def _freed(policy: Constraints, request: Constraints, path: str) -> Iterator[InputError]:
    for key in ("immutable", "increasing", "decreasing"):
        sealed, asked = set(getattr(policy, key)), set(getattr(request, key))
        if key in request.model_fields_set and asked < sealed:
            freed = min(sealed - asked)
            yield InputError(f"{path}.{key}", f"would free {freed!r}, which the policy limits", _ADD)
    if policy.max_changes is not None and (request.max_changes or 0) > policy.max_changes:
        fact = f"{request.max_changes} is more than the policy's {policy.max_changes}"
        yield InputError(f"{path}.max_changes", fact, "ask for fewer")


def _wider_ranges(policy: Constraints, request: Constraints, space: FeatureSpace, path: str) -> Iterator[InputError]:
    for name, (low, high) in request.ranges.items():
        floor, ceiling = policy.ranges.get(name, (None, None))
        if _below(space[name], low, floor) or _below(space[name], ceiling, high):
            fact = f"[{low}, {high}] is wider than the policy's [{floor}, {ceiling}]"
            yield InputError(f"{path}.ranges.{name}", fact, "stay inside it; null leaves an end to the policy")


def _wider_limits(policy: Constraints, request: Constraints, space: FeatureSpace, path: str) -> Iterator[InputError]:
    for name, limits in request.relative.items():
        sealed = policy.relative.get(name, Relative())
        for key in _LIMITS:
            most, asked = getattr(sealed, key), getattr(limits, key)
            if most is not None and asked is not None and asked > most:
                fact = f"{asked} is more than the policy's {most}"
                yield InputError(f"{path}.relative.{name}.{key}", fact, "ask for less")
    for name, levels in request.levels.items():
        known = {space[name].code(level) for level in policy.levels.get(name, levels)}
        extra = [level for level in levels if space[name].code(level) not in known]
        if extra:
            fact = f"{extra[0]!r} is not among the policy's levels"
            yield InputError(f"{path}.levels.{name}", fact, "name only levels the policy allows")


def _below(feature: Feature, first: Bound, second: Bound) -> bool:
    """Whether one end of a range lies below another; an open end never does."""
    low, high = (None if end is None else feature.code(end) for end in (first, second))
    return low is not None and high is not None and low < high
