"""One step of a plan: the state after it, what it costs, and whether it can be done (CSCF sections 1, 2 and 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mlflow_cf.constraints import Constraints, Pause, no_pause
from mlflow_cf.constraints.actions import Action, Relationship
from mlflow_cf.constraints.expressions import evaluate
from mlflow_cf.constraints.functions import functions_in
from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.features import FeatureSpace, Floats
from mlflow_cf.plans.bound import BoundAction, ScaledChange, bind_actions, derived
from mlflow_cf.plans.measure import Measure
from mlflow_cf.plans.narrowed import narrowed
from mlflow_cf.plans.relations import Relations, bind_relationships
from mlflow_cf.validation import LARGEST

LEAST_CHANGE = 1e-9  # of a number, as a share of its range; less is rounding


@dataclass(frozen=True)
class Declared:
    """What can be done, and what makes it cheaper, as users write it."""

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
class Course:
    """What can be done, over states in codes.

    Attributes:
        space: the features, with codes for every level that a state may have.
        actions: what can be done; relations: what makes it cheaper.
        measure: of the change of a feature whose action has no effort.
        declared: what it was bound from; left: what a request has left of its actions, if one has spoken of them.
        least_change: by feature, how much a number must change to count as changed; by default 1e-9 of its range.
    """

    space: FeatureSpace
    actions: tuple[BoundAction, ...]
    relations: Relations
    measure: Measure
    declared: Declared
    least_change: Mapping[str, float] = field(default_factory=dict)
    left: tuple[Action, ...] = ()

    @classmethod
    def of(cls, constraints: Constraints, space: FeatureSpace, measure: Measure) -> Course | None:
        """Return what constraints declare; None if that is nothing."""
        declared = Declared(constraints.actions, constraints.relationships)
        return None if declared == Declared() else cls.bind(declared, space, measure, "constraints.")

    @classmethod
    def bind(cls, declared: Declared, space: FeatureSpace, measure: Measure, path: str = "") -> Course:
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

    def covering(self, space: FeatureSpace) -> Course:
        """Return the course over a space that covers more levels."""
        if space is self.space:
            return self
        wider = replace(self.bind(self.declared, space, self.measure), least_change=self.least_change)
        return wider.narrowed(self.left, reveal=False)  # nothing is said that was not said before

    def narrowed(self, left: Sequence[Action], pause: Pause = no_pause, *, reveal: bool = True) -> Course:
        """Return the course with the actions that a request leaves of the policy's; itself, if these are all of them.

        Raises:
            InputError: others than the policy's, or wider ones; see `plans.narrowed`.
        """
        actions = narrowed(self, left, pause, reveal=reveal) if left else self.actions
        return self if actions == self.actions else replace(self, actions=actions, left=tuple(left))

    def completed(self, columns: Iterable[int]) -> Course:
        """Return the course with an action of its own for each of some columns that no action is about.

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
        valid = np.ones(len(states), dtype=np.bool_)  # so far: nothing is asked about what cannot be done anyway
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
