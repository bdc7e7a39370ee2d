"""Checks constraints against the features and compiles each of them to rules, limits on changes and groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.causal import equation_errors
from mlflow_cf.constraints.expressions import MISSING, Apply, Changed, Const, Ref, evaluate
from mlflow_cf.constraints.model import Bound, Constraints
from mlflow_cf.constraints.resolve import known_levels, resolve
from mlflow_cf.constraints.rules import Atom, Comparison, Key, Origin, Rule, Source
from mlflow_cf.errors import MOST_TOLD, InputError, did_you_mean, raise_all
from mlflow_cf.features import Feature, FeatureSpace, Floats, a_kind
from mlflow_cf.plaf import parse_rule
from mlflow_cf.words.statements import say

Pause = Callable[[], None]
MOST_LEVELS = 24  # named in a rule's words
# What a step of a number may be, by whether it goes up, and whether it is a percentage.
STEPS: Final = {
    (True, False): "up_by",
    (False, False): "down_by",
    (True, True): "up_by_percent",
    (False, True): "down_by_percent",
}
MAX_RULE_TEXT = 100_000  # characters of all rules together; a request is read in about a second then


def no_pause() -> None:
    """Do nothing: the pause of work that has no deadline."""


def compile_rules(
    constraints: Constraints,
    space: FeatureSpace,
    source: Source = "policy",
    pause: Pause = no_pause,
    *,
    reveal: bool = True,
) -> tuple[Rule, ...]:
    """Return the rules of all constraints of a policy or a request, one or more each, except causal equations.

    These are checked here, and become rules once their functions are known.

    Args:
        constraints: as users write them.
        space: the features.
        source: whether a policy or a request has them.
        pause: called before each constraint; whatever it raises ends the work.
        reveal: whether errors may name levels that were not written.

    Raises:
        InputError: unknown features or levels, an order where there is none, empty ranges, overlapping groups;
            as many of them at once as a message holds, each with its path.
    """
    compiler = _Compiler(space, source, reveal=reveal)
    rules = []
    for family in (_directions, _ranges, _relative, _levels, _forbidden, _rules):
        pause()
        for rule in family(compiler, constraints):
            rules.append(rule)
            pause()
    compiler.check_groups(constraints)
    for error in equation_errors(constraints.causal, space, source, reveal=reveal):
        compiler.add(error)
    raise_all(compiler.errors)
    return tuple(rules)


def check_groups(constraints: Constraints, space: FeatureSpace) -> None:
    """Refuse groups of unknown features, and groups that overlap.

    Raises:
        InputError: as `compile_rules`.
    """
    compiler = _Compiler(space, "policy", reveal=False)
    compiler.check_groups(constraints)
    raise_all(compiler.errors)


def group_columns(constraints: Constraints, space: FeatureSpace) -> tuple[Columns, ...]:
    """Return the columns of every group, in the order of their first column; a single feature is a group of one.

    A constant never changes with its group, so it is no part of one.
    """
    groups = [[space.index[name] for name in names if not space[name].constant] for names in constraints.groups]
    grouped = {column: tuple(sorted(columns)) for columns in groups for column in columns}
    return tuple(dict.fromkeys(grouped.get(column, (column,)) for column in range(len(space))))


def joined_groups(constraints: Constraints, space: FeatureSpace, source: Source) -> tuple[JoinedGroup, ...]:
    """Return the feature groups that constraints declare."""
    return tuple(
        JoinedGroup(tuple(sorted(space.index[name] for name in names)), Origin(source, "groups", position=number))
        for number, names in enumerate(constraints.groups)
    )


def change_limit(constraints: Constraints, groups: tuple[Columns, ...], source: Source) -> tuple[ChangeLimit, ...]:
    """Return the limit on the number of changed `groups` that constraints set, or an empty tuple."""
    most = constraints.max_changes
    return () if most is None else (ChangeLimit(most, groups, Origin(source, "max_changes")),)


class _Compiler:
    """Compiles constraints, and collects errors so that one message shows many of them."""

    def __init__(self, space: FeatureSpace, source: Source, *, reveal: bool) -> None:
        self.space, self.source, self.reveal = space, source, reveal
        self.errors: list[InputError] = []

    def error(self, where: str, fact: str, fix: str = "") -> None:
        self.add(InputError(f"constraints.{where}", fact, fix))

    def add(self, error: InputError) -> None:
        self.errors.append(error)
        if len(self.errors) > MOST_TOLD:
            raise_all(self.errors)

    def features(
        self, key: str, names: Iterable[str], *, ordered: bool = False, number: bool = False
    ) -> Iterator[tuple[str, Feature, int]]:
        """Yield the name, the feature and the column of all names, except those for which an error is noted."""
        for name in names:
            feature = self.space[name] if name in self.space.index else None
            if feature is None:
                self.error(f"{key}.{name}", "not a feature", did_you_mean(name, self.space.names, "features"))
            elif ordered and not feature.has_order:
                fix = f"declare it: features={{{name!r}: {{'kind': 'ordinal', 'levels': [...]}}}}"
                self.error(f"{key}.{name}", f"a {feature.kind} has no order", fix)
            elif number and not feature.numeric:
                self.error(f"{key}.{name}", f"{a_kind(feature.kind)} is no number", "use 'levels' or 'forbidden'")
            else:
                yield name, feature, self.space.index[name]

    def code(self, where: str, feature: Feature, value: object) -> float:
        """Return the code of a value a user wrote, noting an error if it has none."""
        code = feature.code(value)
        if code is None:
            fix = "" if feature.numeric else known_levels(feature, value, reveal=self.reveal)
            noun = "level" if not feature.numeric else "date" if feature.kind == "date" else "number"
            self.error(where, f"{value!r} is not a {noun}", fix)
            return np.nan
        return code

    def check_groups(self, constraints: Constraints) -> None:
        owner: dict[str, int] = {}
        for number, names in enumerate(constraints.groups):
            if not names:
                self.error(f"groups[{number}]", "names no feature", "list the features that change together")
            for name, _, _ in self.features(f"groups[{number}]", names):
                if name in owner:
                    fact = f"already in groups[{owner[name]}]"
                    self.error(f"groups[{number}].{name}", fact, "groups may not overlap")
                owner[name] = number


def _directions(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    signs: tuple[tuple[Key, Iterable[str], Comparison, str], ...] = (
        ("immutable", constraints.immutable, "==", "must_not_change"),
        ("increasing", constraints.increasing, ">=", "must_not_decrease"),
        ("decreasing", constraints.decreasing, "<=", "must_not_increase"),
    )
    for key, names, sign, phrase in signs:
        for name, feature, column in c.features(key, dict.fromkeys(names), ordered=key != "immutable"):
            then = Atom(Ref("x_cf", column), sign, Ref("x", column), unknown_from=feature.unknown_from)
            yield Rule((), then, Origin(c.source, key, name), say(phrase, feature=name), defines=column)


def _ranges(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    for name, feature, column in c.features("ranges", constraints.ranges, ordered=True):
        low, high = constraints.ranges[name]
        least, most = (None if end is None else c.code(f"ranges.{name}", feature, end) for end in (low, high))
        if least is not None and most is not None and least > most:
            c.error(f"ranges.{name}", f"low {low!r} exceeds high {high!r}", "give [low, high]")
        ends: tuple[tuple[Comparison, Bound, float | None], ...] = ((">=", low, least), ("<=", high, most))
        for sign, end, code in ends:
            if code is not None:
                present = Atom(Ref("x_cf", column), "!=", MISSING)
                then = Atom(Ref("x_cf", column), sign, Const(code), unknown_from=feature.unknown_from)
                yield Rule((present,), then, Origin(c.source, "ranges", name), f"{name} {sign} {end}", defines=column)


def _relative(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    for name, _, column in c.features("relative", constraints.relative, number=True):
        own, new = Ref("x", column), Ref("x_cf", column)
        for key, most in constraints.relative[name]:
            if most is not None:
                up, percent = key.startswith("up"), key.endswith("percent")
                step = Apply("*", (Apply("abs", (own,)), Const(most / 100))) if percent else Const(float(most))
                # a missing value fails what it is compared with, as that is arithmetic
                then = Atom(new, "<=" if up else ">=", Apply("+" if up else "-", (own, step)))
                text = say(STEPS[up, percent], feature=name, most=most)
                yield Rule((Atom(new, "!=", own),), then, Origin(c.source, "relative", name), text, defines=column)


def _levels(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    for name, feature, column in c.features("levels", constraints.levels):
        levels = constraints.levels[name]
        if not levels:
            c.error(f"levels.{name}", "no level is allowed", "list at least one, or make the feature immutable")
        present = Atom(Ref("x_cf", column), "!=", MISSING)
        members = tuple(c.code(f"levels.{name}", feature, level) for level in levels)
        more = len(levels) - MOST_LEVELS
        named = (*map(str, levels[:MOST_LEVELS]), *([say("more", count=more)] if more > 0 else []))
        text = say("one_of", feature=name, levels=named)
        then = Atom(Ref("x_cf", column), "in", members=members)
        yield Rule((present,), then, Origin(c.source, "levels", name), text, defines=column)


def _forbidden(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    for name, feature, column in c.features("forbidden", constraints.forbidden):
        own, new = Ref("x", column), Ref("x_cf", column)
        for number, pair in enumerate(constraints.forbidden[name]):
            old_code, new_code = (Const(c.code(f"forbidden.{name}[{number}]", feature, value)) for value in pair)
            when = (Atom(own, "==", old_code), Atom(new, "!=", own))
            text = say("forbidden", feature=name, old=str(pair[0]), new=str(pair[1]))
            yield Rule(
                when, Atom(new, "!=", new_code), Origin(c.source, "forbidden", name, number), text, defines=column
            )


def _rules(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    total = sum(map(len, constraints.rules))
    if total > MAX_RULE_TEXT:
        c.error("rules", f"{total:,} characters of PLAF in all", f"stay below {MAX_RULE_TEXT:,}")
        return
    for number, text in enumerate(constraints.rules):
        origin = Origin(c.source, "rules", position=number)
        try:
            yield resolve(parse_rule(text, origin.path), c.space, origin, reveal=c.reveal)
        except InputError as error:
            c.add(error)


Columns = tuple[int, ...]


@dataclass(frozen=True)
class JoinedGroup:
    """A declared feature group: ascending columns that change together, and the constraint that declares it."""

    columns: Columns
    origin: Origin


@dataclass(frozen=True)
class ChangeLimit:
    """A limit on the number of groups that differ from the query row.

    Attributes:
        most: the largest number.
        groups: the columns of every group that counts as one: for a policy its own groups, for a request also those
            that it joins.
        origin: the constraint.
    """

    most: int
    groups: tuple[Columns, ...]
    origin: Origin

    @cached_property
    def rule(self) -> Rule:
        """The limit as a rule over whole rows."""
        return self._rule(self.groups)

    def parted(self, parts: Collection[int]) -> ChangeLimit:
        """Return the limit with the groups of the columns `parts` dissolved: each column counts by itself."""
        split = (((column,) for column in group) if set(group) & set(parts) else (group,) for group in self.groups)
        return replace(self, groups=tuple(sorted(chain.from_iterable(split))))

    def inside(self, columns: Columns) -> tuple[Columns, ...]:
        """Return the groups of this limit that lie within a group of `columns`."""
        return tuple(group for group in self.groups if set(group) <= set(columns))

    def within(self, columns: Columns) -> Rule | None:
        """Return the limit as a rule over one group of `columns`; None if that group alone never exceeds it."""
        inside = self.inside(columns)
        return self._rule(inside) if len(inside) > self.most else None

    def counts(self, columns: Columns, actions: Floats, x0: Floats) -> NDArray[np.intp]:
        """Return (t,) how many changes each action (t, len(columns)) of a group counts as, in a row x0 (d,)."""
        rows = np.tile(x0, (len(actions), 1))
        rows[:, columns] = actions
        return evaluate(Changed(self.inside(columns)), rows, x0).astype(np.intp)

    def _rule(self, groups: tuple[Columns, ...]) -> Rule:
        then = Atom(Changed(groups), "<=", Const(float(self.most)))
        return Rule((), then, self.origin, say("at_most_one" if self.most == 1 else "at_most", most=self.most))
