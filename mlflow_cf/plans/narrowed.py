"""The actions that a request leaves of a policy's: fewer, in smaller ranges, under more conditions, never cheaper.

What is left can be done under the policy, too, leads to the same states there, and costs no more there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mlflow_cf.constraints import Origin, Pause, no_pause
from mlflow_cf.constraints.actions import Action
from mlflow_cf.constraints.expressions import Apply, Computed, Const, Expression
from mlflow_cf.constraints.rules import Atom, Rule
from mlflow_cf.errors import InputError, did_you_mean, raise_all
from mlflow_cf.features import Feature, Floats
from mlflow_cf.plans.bound import BoundAction, ScaledChange, bind_conditions, bind_effort, end_code

if TYPE_CHECKING:
    from mlflow_cf.plans.course import Course  # which is narrowed by this

PATH: Final = "constraints.actions"


class _Entry(NamedTuple):
    """One entry of a request beside what it is about.

    Attributes:
        asked: the entry; path: where it stands.
        policy: the policy's action as its owner wrote it; own: as it is bound.
        feature: what both are about.
    """

    asked: Action
    path: str
    policy: Action
    own: BoundAction
    feature: Feature


def narrowed(
    course: Course, asked: Sequence[Action], pause: Pause = no_pause, *, reveal: bool = True
) -> tuple[BoundAction, ...]:
    """Return the actions of a course that a request leaves, in the course's order.

    Args:
        course: the policy's, or what is left of it.
        asked: the actions that remain. What an entry does not say is the policy's; one that says nothing leaves the
            very same action.
        pause: called between them; whatever it raises ends the work.
        reveal: whether errors may name levels of the background.

    Raises:
        InputError: an action that is not the policy's, or wider; the errors of all entries at once.
    """
    known = {action.name: action for action in course.actions}
    policy = {action.name: action for action in course.declared.actions}
    kept: dict[str, BoundAction] = {}
    errors: list[InputError] = []
    for place, entry in enumerate(asked):
        pause()
        path, name = f"{PATH}[{place}]", entry.name
        if name not in known:
            fact = f"{name[:60]!r} is no action of the policy"
            errors.append(InputError(f"{path}.name", fact, did_you_mean(name, known, "actions")))
            continue
        if name in kept:
            errors.append(InputError(f"{path}.name", f"{name!r} is named twice", "name it once"))
            continue
        kept[name] = own = known[name]
        try:
            one = _Entry(entry, path, policy[name], own, course.space.features[own.column])
            kept[name] = _narrowed(course, one, reveal=reveal)
        except InputError as error:
            errors.append(error)
    raise_all(errors)
    return tuple(kept[name] for name in known if name in kept)


def _narrowed(course: Course, entry: _Entry, *, reveal: bool) -> BoundAction:
    raise_all(_other(entry))
    asked, path, own = entry.asked, entry.path, entry.own
    low, high = _range(entry)
    choices = _choices(entry)
    before, after = (bind_conditions(asked, key, course.space, path, reveal=reveal) for key in ("before", "after"))
    effort = own.effort
    if asked.effort is not None:
        base = own.effort or Computed(ScaledChange(course.measure, own.column))
        effort = Apply("max", (base, bind_effort(asked, asked.effort, course.space, path)))
        after = (*after, *_defined(base, own.name))
    same = (low, high) == (own.low, own.high) and choices is own.choices and effort is own.effort
    if same and not before and not after:
        return own
    return replace(
        own,
        low=low,
        high=high,
        choices=choices,
        effort=effort,
        before=(*own.before, *before),
        after=(*own.after, *after),
    )


def _other(entry: _Entry) -> Iterator[InputError]:
    """Yield what makes it another action than the policy's."""
    asked, path, policy = entry.asked, entry.path, entry.policy
    if asked.feature != policy.feature:
        fact = f"{asked.feature[:60]!r} is not what {policy.name!r} is about"
        yield InputError(f"{path}.feature", fact, f"write {policy.feature!r}")
    if "kind" in asked.model_fields_set and asked.kind != policy.kind:
        yield InputError(f"{path}.kind", f"{asked.kind!r} is not the policy's {policy.kind!r}", "leave it out")
    if "effects" in asked.model_fields_set and dict(asked.effects) != dict(policy.effects):
        yield InputError(f"{path}.effects", "are not the policy's", "leave them out")


def _range(entry: _Entry) -> tuple[float, float]:
    """Return the least and the largest value, within the policy's."""
    ends = []
    for key, outer, beyond in (("low", entry.own.low, "below"), ("high", entry.own.high, "above")):
        end, path = getattr(entry.asked, key), f"{entry.path}.{key}"
        if end is not None and entry.own.choices is not None:
            raise InputError(path, "is of numbers, and this action chooses levels", "leave it out")
        code = outer if end is None else end_code(end, entry.own.kind, entry.feature, path)
        if (code < outer) if key == "low" else (code > outer):
            fact = f"{end} is {beyond} the policy's {getattr(entry.policy, key)}"
            raise InputError(path, fact, "stay inside it; null leaves an end to the policy")
        ends.append(code)
    if not ends[0] < ends[1]:
        low, high = (getattr(_said_by(entry, key), key) for key in ("low", "high"))
        raise InputError(f"{entry.path}.low", f"{low} is not below high, {high}", "give a range")
    return ends[0], ends[1]


def _said_by(entry: _Entry, key: str) -> Action:
    """Return whoever says where a range ends."""
    return entry.policy if getattr(entry.asked, key) is None else entry.asked


def _choices(entry: _Entry) -> Floats | None:
    """Return what is left to choose from, in the policy's order."""
    own, levels = entry.own.choices, entry.asked.levels
    if own is None or not levels:
        return own
    codes = [entry.feature.code(level) for level in levels]
    for place, (level, code) in enumerate(zip(levels, codes, strict=True)):
        if code is None or code not in own:
            fact = f"{level!r} is not among the policy's levels"
            raise InputError(f"{entry.path}.levels[{place}]", fact, "name only levels the policy allows")
    left = np.isin(own, np.array(codes, dtype=np.float64))
    return own if left.all() else own[left]


def _defined(effort: Expression, name: str) -> Iterator[Rule]:
    """Yield the rule that the policy's effort is one: below 0 it forbids a step, and more than that is asked for."""
    if not isinstance(effort, Computed):  # that is never below 0
        text = f"the effort of {name} is not below 0"
        yield Rule((), Atom(effort, ">=", Const(0.0)), Origin("policy", "actions"), text)
