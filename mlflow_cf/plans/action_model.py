"""The action model of plans: which steps are possible from a coded state, and what each leads to and costs.

See CSCF, sections 1, 2 and 5. A request can narrow the policy's actions: fewer of them, smaller ranges, more
conditions, higher efforts. Every step that it leaves is also possible under the policy, leads to the same state there,
and costs no more there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from mlflow_cf.constraints import Constraints, Origin, Pause, no_pause
from mlflow_cf.constraints.actions import Action, Relationship
from mlflow_cf.constraints.expressions import Apply, Computed, Const, differing, evaluate
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

PATH: Final = "constraints.actions"
LEAST_CHANGE = 1e-9  # of a number, as a share of its range; less is rounding


@dataclass(frozen=True)
class Declared:
    """Declared actions and relationships, as users write them."""

    actions: tuple[Action, ...] = ()
    relationships: tuple[Relationship, ...] = ()


@dataclass(frozen=True, eq=False)
class Stepped:
    """The result of one action in m states.

    Attributes:
        states: (m, d) codes of the states after it.
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
        """The costs of the steps (m,): the effort after the discount."""
        return self.effort * self.discount


@dataclass(frozen=True, eq=False)
class ActionModel:
    """Actions and relationships bound to features, over coded states.

    Attributes:
        space: the features, with codes for every level that a state may have.
        actions: the bound actions; relations: the relationships that make them cheaper.
        measure: the distance, which is the effort of actions that declare none.
        declared: the declarations it was bound from; left: the actions that a request names, empty if it names none.
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
        """Return the declared actions and relationships bound to the features of `space`.

        Raises:
            InputError: it does not fit them; each error names its path.
        """
        actions = bind_actions(declared.actions, space, f"{path}actions")
        relations = bind_relationships(declared.relationships, space, f"{path}relationships")
        return cls(space, actions, relations, measure, declared)

    def covering(self, space: FeatureSpace) -> ActionModel:
        """Return the action model over a space that covers more levels."""
        if space is self.space:
            return self
        wider = replace(self.bind(self.declared, space, self.measure), least_change=self.least_change)
        return wider.narrowed(self.left, reveal=False)  # errors were raised when it was narrowed first

    def narrowed(self, asked: Sequence[Action], pause: Pause = no_pause, *, reveal: bool = True) -> ActionModel:
        """Return the action model with only the actions that a request leaves, in its own order.

        Args:
            asked: the actions that remain; none: all do. Keys that an action leaves out are the policy's; one that sets
                no key leaves the policy's action as it is.
            pause: called between them; whatever it raises ends the work.
            reveal: whether errors may name levels of the background.

        Raises:
            InputError: an action that is not the policy's, or wider; the errors of all entries at once.
        """
        if not asked:
            return self
        known = {action.name: action for action in self.actions}
        policy = {action.name: action for action in self.declared.actions}
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
                kept[name] = _narrowed(self, own, policy[name], entry, path, reveal=reveal)
            except InputError as error:
                errors.append(error)
        raise_all(errors)
        actions = tuple(kept[name] for name in known if name in kept)
        return self if actions == self.actions else replace(self, actions=actions, left=tuple(asked))

    def completed(self, columns: Iterable[int]) -> ActionModel:
        """Return the action model with a derived action for each of some columns that no action changes.

        None is derived for a feature whose action a request has removed.
        """
        declared = {self.space.index[action.feature] for action in self.declared.actions}
        about = declared.union(action.column for action in self.actions)
        return replace(self, actions=(*self.actions, *derived(self.space, (c for c in columns if c not in about))))

    def step(self, number: int, states: Floats, outcome: Floats) -> Stepped:
        """Return the result of an action in states (m, d), with the new value (m,) of its feature in each.

        A step cannot be done where a condition does not hold, where it changes nothing, where an effort or effect is
        undefined, and where a level is unknown or a number not finite.
        """
        action, after = self.actions[number], states.copy()
        valid = np.ones(len(states), dtype=np.bool_)  # so far: later parts are evaluated for possible steps only
        _meet(action.before, valid, states, states)
        after[:, action.column] = self.snapped(action.column, outcome)
        valid &= self._known_values(action.column, after[:, action.column])
        for column, effect in action.effects:
            after[valid, column] = self.snapped(column, evaluate(effect, after[valid], states[valid]))
            valid &= self._known_values(column, after[:, column])
        changed = self.changed(after, states, action.columns)
        valid &= changed.any(axis=1)
        _meet(action.after, valid, after, states)
        effort = np.full(len(states), np.nan)
        declared = action.effort or Computed(ScaledChange(self.measure, action.column))
        effort[valid] = evaluate(declared, after[valid], states[valid])
        with np.errstate(invalid="ignore"):
            valid &= effort >= 0
        return Stepped(after, effort, self.relations.discounts(states, changed & valid[:, None]), valid)

    def changed(self, after: Floats, before: Floats, columns: tuple[int, ...] | None = None) -> Bools:
        """Return (m, d) which features changed, by the least change that counts; for `columns` alone if given."""
        changed = np.zeros(after.shape, dtype=np.bool_)
        for column in range(len(self.space)) if columns is None else columns:
            new, old = after[:, column], before[:, column]
            changed[:, column] = differing(new, old) & ~(np.abs(new - old) < self.least_changes[column])
        return changed

    def snapped(self, column: int, values: Floats) -> Floats:
        """Return values (m,) rounded to the grid of their feature, if it has one."""
        feature = self.space.features[column]
        if not feature.numeric or feature.step is None:
            return values
        return feature.low + np.round((values - feature.low) / feature.step) * feature.step

    def _known_values(self, column: int, values: Floats) -> Bools:
        """Return (m,) whether codes are known values of their feature; a missing value is not."""
        feature = self.space.features[column]
        if feature.numeric:
            return np.abs(values) <= LARGEST
        return np.isin(values, np.arange(len(feature.known)))

    @cached_property
    def least_changes(self) -> Floats:
        """The least change (d,) of each feature that counts as one; 0 for levels."""
        shares = [
            self.least_change.get(f.name, LEAST_CHANGE * (f.high - f.low)) if f.numeric else 0.0
            for f in self.space.features
        ]
        return np.array(shares)


def _meet(rules: Sequence[Rule], valid: Bools, after: Floats, states: Floats) -> None:
    """Set `valid` (m,) to False, in place, for steps from states (m, d) that break a rule."""
    for rule in rules:
        valid[valid] = rule.holds(after[valid], states[valid])


def _narrowed(
    action_model: ActionModel, own: BoundAction, policy: Action, asked: Action, path: str, *, reveal: bool
) -> BoundAction:
    """Return an action (`own` is how it is bound, `policy` how its owner wrote it) as a request asks for it."""
    raise_all(_identity_errors(policy, asked, path))
    feature = action_model.space.features[own.column]
    low, high = _range(own, policy, asked, feature, path)
    choices = _choices(own, asked, feature, path)
    before, after = (
        bind_conditions(asked, key, action_model.space, path, reveal=reveal) for key in ("before", "after")
    )
    effort = own.effort
    if asked.effort is not None:
        base = own.effort or Computed(ScaledChange(action_model.measure, own.column))
        effort = Apply("max", (base, bind_effort(asked, asked.effort, action_model.space, path)))
        if not isinstance(base, Computed):  # what is below 0 by the policy stays impossible; computed efforts never are
            text = f"the effort of {own.name} is not below 0"
            after = (*after, Rule((), Atom(base, ">=", Const(0.0)), Origin("policy", "actions"), text))
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


def _identity_errors(policy: Action, asked: Action, path: str) -> Iterator[InputError]:
    """Yield an error for each key that makes it another action than the policy's."""
    if asked.feature != policy.feature:
        fact = f"{asked.feature[:60]!r} is not what {policy.name!r} is about"
        yield InputError(f"{path}.feature", fact, f"write {policy.feature!r}")
    if "kind" in asked.model_fields_set and asked.kind != policy.kind:
        yield InputError(f"{path}.kind", f"{asked.kind!r} is not the policy's {policy.kind!r}", "leave it out")
    if "effects" in asked.model_fields_set and dict(asked.effects) != dict(policy.effects):
        yield InputError(f"{path}.effects", "are not the policy's", "leave them out")


def _range(own: BoundAction, policy: Action, asked: Action, feature: Feature, path: str) -> tuple[float, float]:
    """Return the least and the largest value (codes), within those of the policy."""
    ends, told = [], []
    for key, outer, beyond in (("low", own.low, "below"), ("high", own.high, "above")):
        end, where = getattr(asked, key), f"{path}.{key}"
        if end is not None and own.choices is not None:
            raise InputError(where, "is of numbers, and this action chooses levels", "leave it out")
        code = outer if end is None else end_code(end, own.kind, feature, where)
        if (code < outer) if key == "low" else (code > outer):
            fact = f"{end} is {beyond} the policy's {getattr(policy, key)}"
            raise InputError(where, fact, "stay inside it; null leaves an end to the policy")
        ends.append(code)
        told.append(getattr(policy, key) if end is None else end)
    low, high = ends
    if not low < high:
        raise InputError(f"{path}.low", f"{told[0]} is not below high, {told[1]}", "give a range")
    return low, high


def _choices(own: BoundAction, asked: Action, feature: Feature, path: str) -> Floats | None:
    """Return the codes of the levels that are left to choose from, in the policy's order."""
    if own.choices is None or not asked.levels:
        return own.choices
    codes = [feature.code(level) for level in asked.levels]
    for place, (level, code) in enumerate(zip(asked.levels, codes, strict=True)):
        if code is None or code not in own.choices:
            fact = f"{level!r} is not among the policy's levels"
            raise InputError(f"{path}.levels[{place}]", fact, "name only levels the policy allows")
    left = np.isin(own.choices, np.array(codes, dtype=np.float64))
    return own.choices if left.all() else own.choices[left]
