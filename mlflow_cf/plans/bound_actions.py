"""Actions bound to features: values, effects, efforts and conditions as expressions over codes.

Also `PlanDistance`, the part of the distance that plans use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.actions import Action
from mlflow_cf.constraints.expressions import Expression
from mlflow_cf.constraints.resolve import known_levels
from mlflow_cf.constraints.rules import Bools, Rule
from mlflow_cf.errors import InputError, raise_all
from mlflow_cf.features import Feature, FeatureSpace, Floats, Percentiles, a_kind
from mlflow_cf.plans.functions import Place
from mlflow_cf.plans.relations import BEFORE, BOTH, Sides, Source, amount, condition, effect, unknown


class PlanDistance(Protocol):
    """The distance of problems, bound to the features (d,)."""

    @property
    def scale(self) -> Floats:
        """The divisor (d,) of numeric changes; 0 where a change counts as 1 whatever its size."""

    @property
    def unknown_from(self) -> Floats:
        """The first code (d,) that has no rank."""

    @property
    def weights(self) -> Floats:
        """The weight (d,) of each feature."""

    @property
    def percentiles(self) -> Percentiles | None:
        """The shares of background rows below each value, if changes are measured by these; else None."""

    def changes(self, columns: NDArray[np.intp], values: Floats, own: Floats) -> Floats:
        """Return the scaled changes (m, n) of `columns` (n,) from `own` values to `values` (m, n)."""


@dataclass(frozen=True, eq=False)
class BoundAction:
    """An action over codes.

    Attributes:
        name: by which plans name it.
        column: of its feature.
        kind: whether a value is added to the feature's code, set, or chosen.
        low, high: the least and the largest value; infinite where that is open.
        choices: (k,) codes to choose from.
        effects: columns of other features and what they become, in order.
        effort: what a step costs; None: the scaled change of the feature.
        before, after: its conditions, on the state before it, and on both states.
    """

    name: str
    column: int
    kind: Literal["change", "set", "choose"]
    low: float = -np.inf
    high: float = np.inf
    choices: Floats | None = None
    effects: tuple[tuple[int, Expression], ...] = ()
    effort: Expression | None = None
    before: tuple[Rule, ...] = ()
    after: tuple[Rule, ...] = ()

    @property
    def columns(self) -> tuple[int, ...]:
        """All columns that it changes."""
        return (self.column, *(column for column, _ in self.effects))

    def outcome(self, states: Floats, values: Floats) -> Floats:
        """Return the new codes (m,) of its feature in states (m, d), by the values (m,) of the action."""
        return states[:, self.column] + values if self.kind == "change" else values

    def allows(self, states: Floats, outcome: Floats, tolerance: float) -> Bools:
        """Return (m,) whether some value of the action leads from states (m, d) to new codes (m,) of its feature."""
        if self.choices is not None:
            return np.isin(outcome, self.choices)
        values = outcome - states[:, self.column] if self.kind == "change" else outcome
        allowed: Bools = (values >= self.low - tolerance) & (values <= self.high + tolerance)
        return allowed


@dataclass(frozen=True, eq=False)
class ScaledChange:
    """The effort of actions that declare none: the weighted change of the feature, as a share of its range."""

    measure: PlanDistance
    column: int

    @property
    def columns(self) -> tuple[int, ...]:
        """The one column."""
        return (self.column,)

    def values(self, Z: Floats, x0: Floats) -> Floats:
        """Return the efforts (m,) of steps from x0 (d,), or from a state each (m, d), to states Z (m, d)."""
        columns = np.array([self.column], dtype=np.intp)
        changes = self.measure.changes(columns, Z[:, columns], x0[..., columns])
        return float(self.measure.weights[self.column]) * changes[:, 0]


def derived(space: FeatureSpace, columns: Iterable[int]) -> Iterator[BoundAction]:
    """Yield one derived action for each column: it sets any known value, and its effort is the scaled change."""
    for column in columns:
        feature = space.features[column]
        name = f"change {feature.name.replace('_', ' ')}"
        if feature.numeric:
            yield BoundAction(name, column, "set")
        else:
            yield BoundAction(name, column, "choose", choices=np.arange(len(feature.known), dtype=np.float64))


def bind_actions(actions: Sequence[Action], space: FeatureSpace, path: str) -> tuple[BoundAction, ...]:
    """Return actions bound to the features of `space`.

    Raises:
        InputError: a name given twice, unknown features or levels, ranges that are empty or of no numbers, or texts
            that do not fit the features; the errors of all actions at once.
    """
    bound: list[BoundAction] = []
    errors: list[InputError] = []
    first: dict[str, int] = {}
    for number, action in enumerate(actions):
        where = f"{path}[{number}]"
        if first.setdefault(action.name, number) != number:
            fact = f"{action.name!r} is the name of {path}[{first[action.name]}], too"
            errors.append(InputError(f"{where}.name", fact, "give each action its own"))
        try:
            bound.append(_bound(action, space, where))
        except InputError as error:
            errors.append(error)
    raise_all(errors)
    return tuple(bound)


def _bound(action: Action, space: FeatureSpace, path: str) -> BoundAction:
    raise_all(
        [
            *unknown(action.feature, space, f"{path}.feature"),
            *(error for name in action.effects for error in unknown(name, space, f"{path}.effects.{name}")),
        ]
    )
    feature = space[action.feature]
    low, high = _range(action, feature, path)
    effects = []
    for name, source in action.effects.items():
        place = Place(f"{path}.effects.{name}", f"the effect of action {action.name!r} on {name}")
        if name == action.feature:
            raise InputError(place.path, "is the action's own feature", "leave it out")
        effects.append((space.index[name], effect(source, space[name], space, place)))
    return BoundAction(
        name=action.name,
        column=space.index[action.feature],
        kind=action.kind,
        low=low,
        high=high,
        choices=_choices(action, feature, path) if action.kind == "choose" else None,
        effects=tuple(effects),
        effort=None if action.effort is None else bind_effort(action, action.effort, space, path),
        before=bind_conditions(action, "before", space, path),
        after=bind_conditions(action, "after", space, path),
    )


def bind_effort(action: Action, source: Source, space: FeatureSpace, path: str) -> Expression:
    """Return the effort of an action as an expression."""
    return amount(source, BOTH, space, Place(f"{path}.effort", f"the effort of action {action.name!r}"), least=0)


def bind_conditions(
    action: Action, key: Literal["before", "after"], space: FeatureSpace, path: str, *, reveal: bool = True
) -> tuple[Rule, ...]:
    """Return the conditions of an action on the state before it, or on both states, as rules."""
    sides: Sides = BEFORE if key == "before" else BOTH
    called = f"of action {action.name!r}"
    return tuple(
        condition(source, sides, space, Place(f"{path}.{key}[{at}]", f"{key}[{at}] {called}"), reveal=reveal)
        for at, source in enumerate(getattr(action, key))
    )


def _range(action: Action, feature: Feature, path: str) -> tuple[float, float]:
    if action.kind == "choose":
        return -np.inf, np.inf
    if not feature.numeric:
        fix = "use kind: choose, with levels"
        raise InputError(f"{path}.kind", f"{feature.name} is {a_kind(feature.kind)}, and no number", fix)
    low, high = (
        default if end is None else end_code(end, action.kind, feature, f"{path}.{key}")
        for key, end, default in (("low", action.low, -np.inf), ("high", action.high, np.inf))
    )
    if not low < high:
        fix = (
            f"use kind: choose, with levels: [{action.low}]" if low == high and action.kind == "set" else "give a range"
        )
        raise InputError(f"{path}.low", f"{action.low} is not below high, {action.high}", fix)
    return low, high


def end_code(end: float | str, kind: str, feature: Feature, path: str) -> float:
    """Return the code of one end of a range.

    Raises:
        InputError: it is no value of the feature.
    """
    plain = kind == "change" and feature.kind == "date"  # days, and no date
    code = float(end) if plain and not isinstance(end, str) else feature.code(end)
    if code is None:
        raise InputError(path, f"{end!r} is not a {'date' if feature.kind == 'date' else 'number'}", "")
    return code


def _choices(action: Action, feature: Feature, path: str) -> Floats:
    codes = [feature.code(level) for level in action.levels]
    for place, (level, code) in enumerate(zip(action.levels, codes, strict=True)):
        if code is None:
            noun = "number" if feature.numeric else "level"
            fact = f"{level!r} is not a {noun} of {feature.name}"
            raise InputError(f"{path}.levels[{place}]", fact, known_levels(feature, level, reveal=True))
        if code in codes[:place]:
            raise InputError(f"{path}.levels[{place}]", f"{level!r} is named twice", "name it once")
    return np.array(codes, dtype=np.float64)
