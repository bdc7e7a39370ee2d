"""The declared actions of plans over coded states: what a step leads to and costs (CSCF sections 1, 2 and 5).

A request can narrow the policy's actions: fewer of them, smaller ranges, more conditions, higher efforts. Every step
that it leaves is also possible under the policy, leads to the same state there, and costs no more there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from mlflow_cf.constraints import Constraints, Origin, Pause, no_pause
from mlflow_cf.constraints.actions import Action, Relationship, functions_in
from mlflow_cf.constraints.expressions import Apply, Computed, Const, Expression, evaluate
from mlflow_cf.constraints.rules import Atom, Bools, Rule
from mlflow_cf.errors import InputError, did_you_mean, raise_all
from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.plans.bound_actions import (
    BoundAction,
    PlanDistance,
    ScaledChange,
    bind_actions,
    bind_conditions,
    bind_effort,
    derived,
    end_code,
)
from mlflow_cf.plans.relations import Relations, bind_relationships
from mlflow_cf.validation import LARGEST

LEAST_CHANGE = 1e-9  # of a number, as a share of its range; less is rounding


@dataclass(frozen=True)
class Declared:
    """Actions, and relationships that make them cheaper, as users write them."""

    actions: tuple[Action, ...] = ()
    relationships: tuple[Relationship, ...] = ()


@dataclass(frozen=True, eq=False)
class Stepped:
    """Many states after one action.

    Attributes:
        states: (m, d) codes.
        effort: (m,) before the discount; NaN where it is undefined, or the step cannot be done.
        discount: (m,) in [0, 1].
        valid: (m,) whether the step can be done.
    """

    states: Floats
    effort: Floats
    discount: Floats
    valid: Bools

    @property
    def cost(self) -> Floats:
        """What the steps cost (m,)."""
        return self.effort * self.discount


@dataclass(frozen=True, eq=False)
class ActionModel:
    """Actions over coded states.

    Attributes:
        space: the features, with codes for every level that a state may have.
        actions: the bound actions; relations: which features make them cheaper.
        measure: the distance, which is the effort of actions that declare none.
        declared: what it was bound from; left: the actions as a request names them, empty if it names none.
        least_change: by feature, how much a number must change to count as changed; by default 1e-9 of its range.
    """

    space: FeatureSpace
    actions: tuple[BoundAction, ...]
    relations: Relations
    measure: PlanDistance
    declared: Declared
    least_change: Mapping[str, float] = field(default_factory=dict)
    left: tuple[Action, ...] = ()

    @classmethod
    def of(cls, constraints: Constraints, space: FeatureSpace, measure: PlanDistance) -> ActionModel | None:
        """Return the action model that constraints declare; None if they declare none."""
        declared = Declared(constraints.actions, constraints.relationships)
        return None if declared == Declared() else cls.bind(declared, space, measure, "constraints.")

    @classmethod
    def bind(cls, declared: Declared, space: FeatureSpace, measure: PlanDistance, path: str = "") -> ActionModel:
        """Return what is declared over the features of `space`.

        Raises:
            InputError: it does not fit them; each error names its path.
        """
        actions = bind_actions(declared.actions, space, f"{path}actions")
        relations = bind_relationships(declared.relationships, space, f"{path}relationships")
        return cls(space, actions, relations, measure, declared)

    @property
    def python(self) -> bool:
        """Whether a part is a Python function, which only Python can follow."""
        return bool(functions_in((*self.declared.actions, *self.left), self.declared.relationships))

    def covering(self, space: FeatureSpace) -> ActionModel:
        """Return the action model over a space that covers more levels."""
        if space is self.space:
            return self
        wider = replace(self.bind(self.declared, space, self.measure), least_change=self.least_change)
        return wider.narrowed(self.left, reveal=False)  # nothing is said that was not said before

    def narrowed(self, left: Sequence[Action], pause: Pause = no_pause, *, reveal: bool = True) -> ActionModel:
        """Return the model with the actions that a request leaves of the policy's; itself, if these are all of them.

        Raises:
            InputError: others than the policy's, or wider ones; see `plans.narrowed`.
        """
        actions = narrowed(self, left, pause, reveal=reveal) if left else self.actions
        return self if actions == self.actions else replace(self, actions=actions, left=tuple(left))

    def completed(self, columns: Iterable[int]) -> ActionModel:
        """Return the action model with an action of its own for each of some columns that no action is about.

        An action that a request has not left stays forbidden: there is none in its place.
        """
        declared = {self.space.index[action.feature] for action in self.declared.actions}
        about = declared.union(action.column for action in self.actions)
        return replace(self, actions=(*self.actions, *derived(self.space, (c for c in columns if c not in about))))

    def step(self, number: int, states: Floats, outcome: Floats) -> Stepped:
        """Do one action in states (m, d), each with what its feature becomes (m,).

        A step cannot be done where a condition does not hold, where it changes nothing, where an effort or effect is
        undefined, and where a level is unknown or a number not finite.
        """
        action, after = self.actions[number], states.copy()
        valid = np.ones(len(states), dtype=np.bool_)  # so far: later parts are evaluated for possible steps only
        _meet(action.before, valid, states, states)
        after[:, action.column] = self.snapped(action.column, outcome)
        valid &= self._known(action.column, after[:, action.column])
        for column, effect in action.effects:
            after[valid, column] = self.snapped(column, evaluate(effect, after[valid], states[valid]))
            valid &= self._known(column, after[:, column])
        changed = self.changed(after, states, action.columns)
        valid &= changed.any(axis=1)
        _meet(action.after, valid, after, states)
        effort = np.full(len(states), np.nan)
        effort[valid] = self._effort(action, after[valid], states[valid])
        with np.errstate(invalid="ignore"):
            valid &= effort >= 0
        return Stepped(after, effort, self.relations.discounts(states, changed & valid[:, None]), valid)

    def changed(self, after: Floats, before: Floats, columns: tuple[int, ...] | None = None) -> Bools:
        """Return (m, d) which features differ by enough; of some columns alone, if they are given."""
        changed = np.zeros(after.shape, dtype=np.bool_)
        for column in range(len(self.space)) if columns is None else columns:
            new, old = after[:, column], before[:, column]
            differs = (new != old) & ~(np.isnan(new) & np.isnan(old))
            changed[:, column] = differs & ~(np.abs(new - old) < self.least_changes[column])
        return changed

    def _effort(self, action: BoundAction, after: Floats, states: Floats) -> Floats:
        if action.effort is None:
            return ScaledChange(self.measure, action.column).values(after, states)
        return evaluate(action.effort, after, states)

    def snapped(self, column: int, values: Floats) -> Floats:
        """Return values (m,) on the grid of their feature, if that has one."""
        feature = self.space.features[column]
        if not feature.numeric or feature.step is None:
            return values
        return feature.low + np.round((values - feature.low) / feature.step) * feature.step

    def _known(self, column: int, values: Floats) -> Bools:
        """Return (m,) whether codes are values of their feature; a missing one is none."""
        feature = self.space.features[column]
        if feature.numeric:
            return np.abs(values) <= LARGEST
        return np.isin(values, np.arange(len(feature.known)))

    @cached_property
    def least_changes(self) -> Floats:
        """(d,) least change that counts; 0 for levels."""
        shares = [
            self.least_change.get(f.name, LEAST_CHANGE * (f.high - f.low)) if f.numeric else 0.0
            for f in self.space.features
        ]
        return np.array(shares)


def _meet(rules: Sequence[Rule], valid: Bools, after: Floats, states: Floats) -> None:
    """Unmark the steps (m,) from states (m, d) that break a rule."""
    for rule in rules:
        valid[valid] = rule.holds(after[valid], states[valid])


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
    action_model: ActionModel, asked: Sequence[Action], pause: Pause = no_pause, *, reveal: bool = True
) -> tuple[BoundAction, ...]:
    """Return the actions of an action model that a request leaves, in the action model's order.

    Args:
        action_model: the policy's, or what is left of it.
        asked: the actions that remain. What an entry does not say is the policy's; one that says nothing leaves the
            very same action.
        pause: called between them; whatever it raises ends the work.
        reveal: whether errors may name levels of the background.

    Raises:
        InputError: an action that is not the policy's, or wider; the errors of all entries at once.
    """
    known = {action.name: action for action in action_model.actions}
    policy = {action.name: action for action in action_model.declared.actions}
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
            one = _Entry(entry, path, policy[name], own, action_model.space.features[own.column])
            kept[name] = _narrowed(action_model, one, reveal=reveal)
        except InputError as error:
            errors.append(error)
    raise_all(errors)
    return tuple(kept[name] for name in known if name in kept)


def _narrowed(action_model: ActionModel, entry: _Entry, *, reveal: bool) -> BoundAction:
    raise_all(_other(entry))
    asked, path, own = entry.asked, entry.path, entry.own
    low, high = _range(entry)
    choices = _choices(entry)
    before, after = (
        bind_conditions(asked, key, action_model.space, path, reveal=reveal) for key in ("before", "after")
    )
    effort = own.effort
    if asked.effort is not None:
        base = own.effort or Computed(ScaledChange(action_model.measure, own.column))
        effort = Apply("max", (base, bind_effort(asked, asked.effort, action_model.space, path)))
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
