"""Checks constraints against the features and compiles each of them to rules, limits on changes and groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.causal import equation_errors
from mlflow_cf.constraints.expressions import MISSING, Apply, Changed, Const, Expression, Ref, Sum, evaluate
from mlflow_cf.constraints.model import Constraints, Relative
from mlflow_cf.constraints.resolve import known_levels, resolve
from mlflow_cf.constraints.rules import Atom, Comparison, Key, Origin, Rule, Source
from mlflow_cf.errors import MOST_TOLD, InputError, did_you_mean, raise_all
from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.plaf import parse_rule

Pause = Callable[[], None]
MOST_LEVELS = 24  # named in a rule's words
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
    for family in _FAMILIES:
        pause()
        for rule in family(compiler, constraints):
            rules.append(rule)
            pause()
    compiler.check_groups(constraints)
    for error in equation_errors(constraints.causal, space, source, reveal=reveal):
        compiler.add(error)
    compiler.finish()
    return tuple(rules)


def check_groups(constraints: Constraints, space: FeatureSpace) -> None:
    """Refuse groups of unknown features, and groups that overlap.

    Raises:
        InputError: as `compile_rules`.
    """
    compiler = _Compiler(space, "policy", reveal=False)
    compiler.check_groups(constraints)
    compiler.finish()


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

    def origin(self, key: Key, name: str = "", position: int | None = None) -> Origin:
        return Origin(self.source, key, name, position)

    def error(self, where: str, fact: str, fix: str = "") -> None:
        self.add(InputError(f"constraints.{where}", fact, fix))

    def add(self, error: InputError) -> None:
        self.errors.append(error)
        if len(self.errors) > MOST_TOLD:
            self.finish()

    def finish(self) -> None:
        """Raise the errors, if there are any."""
        raise_all(self.errors)

    def feature(self, key: str, name: str, *, ordered: bool = False, number: bool = False) -> Feature | None:
        where = f"{key}.{name}"
        if name not in self.space.index:
            self.error(where, "not a feature", did_you_mean(name, self.space.names, "features"))
            return None
        feature = self.space[name]
        if ordered and not feature.has_order:
            fix = f"declare it: features={{{name!r}: {{'kind': 'ordinal', 'levels': [...]}}}}"
            self.error(where, f"a {feature.kind} has no order", fix)
            return None
        if number and not feature.numeric:
            self.error(where, f"a {feature.kind} is no number", "use 'levels' or 'forbidden'")
            return None
        return feature

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
            for name in names:
                if self.feature(f"groups[{number}]", name) is None:
                    continue
                if name in owner:
                    self.error(
                        f"groups[{number}].{name}", f"already in groups[{owner[name]}]", "groups may not overlap"
                    )
                owner[name] = number


def _directions(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    signs: tuple[tuple[Key, Iterable[str], Comparison, str], ...] = (
        ("immutable", constraints.immutable, "==", "must not change"),
        ("increasing", constraints.increasing, ">=", "must not decrease"),
        ("decreasing", constraints.decreasing, "<=", "must not increase"),
    )
    for key, names, sign, words in signs:
        for name in dict.fromkeys(names):
            feature = c.feature(key, name, ordered=key != "immutable")
            if feature is not None:
                column = c.space.index[name]
                then = Atom(Ref("x_cf", column), sign, Ref("x", column), unknown_from=feature.unknown_from)
                yield Rule((), then, c.origin(key, name), f"{name} {words}", defines=column)


def _present(column: int) -> Atom:
    return Atom(Ref("x_cf", column), "!=", MISSING)


def _ranges(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    for name, (low, high) in constraints.ranges.items():
        where = f"ranges.{name}"
        feature = c.feature("ranges", name, ordered=True)
        if feature is None:
            continue
        ends = [None if end is None else c.code(where, feature, end) for end in (low, high)]
        if ends[0] is not None and ends[1] is not None and ends[0] > ends[1]:
            c.error(where, f"low {low!r} exceeds high {high!r}", "give [low, high]")
        signs: tuple[Comparison, Comparison] = (">=", "<=")
        for end, sign, code in zip((low, high), signs, ends, strict=True):
            if code is not None:
                column = c.space.index[name]
                then = Atom(Ref("x_cf", column), sign, Const(code), unknown_from=feature.unknown_from)
                text = f"{name} {sign} {end}"
                yield Rule((_present(column),), then, c.origin("ranges", name), text, defines=column)


def _relative(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    for name, limits in constraints.relative.items():
        if c.feature("relative", name, number=True) is None:
            continue
        column = c.space.index[name]
        changed = Atom(Ref("x_cf", column), "!=", Ref("x", column))
        for sign, bound, words in _relative_bounds(limits, Ref("x", column)):
            then = Atom(Ref("x_cf", column), sign, bound)
            text = f"{name} may go {words} at most"
            yield Rule((changed,), then, c.origin("relative", name), text, defines=column)


def _relative_bounds(limits: Relative, own: Ref) -> Iterator[tuple[Comparison, Expression, str]]:
    """Yield a comparison, its bound, and words for each limit; as the bound is arithmetic, a missing value fails it."""
    if limits.up is not None:
        yield "<=", Sum("+", own, Const(float(limits.up))), f"up by {limits.up}"
    if limits.down is not None:
        yield ">=", Sum("-", own, Const(float(limits.down))), f"down by {limits.down}"
    size = Apply("abs", (own,))
    if limits.up_percent is not None:
        yield "<=", Sum("+", own, Sum("*", size, Const(limits.up_percent / 100))), f"up by {limits.up_percent} %"
    if limits.down_percent is not None:
        yield ">=", Sum("-", own, Sum("*", size, Const(limits.down_percent / 100))), f"down by {limits.down_percent} %"


def _levels(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    for name, levels in constraints.levels.items():
        where = f"levels.{name}"
        feature = c.feature("levels", name)
        if feature is None:
            continue
        if not levels:
            c.error(where, "no level is allowed", "list at least one, or make the feature immutable")
        column = c.space.index[name]
        members = tuple(c.code(where, feature, level) for level in levels)
        then = Atom(Ref("x_cf", column), "in", members=members)
        more = f", {len(levels) - MOST_LEVELS} more" if len(levels) > MOST_LEVELS else ""
        text = f"{name} must be one of {', '.join(map(str, levels[:MOST_LEVELS]))}{more}"
        yield Rule((_present(column),), then, c.origin("levels", name), text, defines=column)


def _forbidden(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    for name, pairs in constraints.forbidden.items():
        feature = c.feature("forbidden", name)
        if feature is None:
            continue
        column = c.space.index[name]
        changed = Atom(Ref("x_cf", column), "!=", Ref("x", column))
        for number, (old, new) in enumerate(pairs):
            where = f"forbidden.{name}[{number}]"
            codes = [c.code(where, feature, value) for value in (old, new)]
            when = (Atom(Ref("x", column), "==", Const(codes[0])), changed)
            then = Atom(Ref("x_cf", column), "!=", Const(codes[1]))
            text = f"{name} must not go from {old} to {new}"
            yield Rule(when, then, c.origin("forbidden", name, number), text, defines=column)


def _rules(c: _Compiler, constraints: Constraints) -> Iterator[Rule]:
    total = sum(map(len, constraints.rules))
    if total > MAX_RULE_TEXT:
        c.error("rules", f"{total:,} characters of PLAF in all", f"stay below {MAX_RULE_TEXT:,}")
        return
    for number, text in enumerate(constraints.rules):
        origin = c.origin("rules", position=number)
        try:
            yield resolve(parse_rule(text, origin.path), c.space, origin, reveal=c.reveal)
        except InputError as error:
            c.add(error)


_FAMILIES: tuple[Callable[[_Compiler, Constraints], Iterator[Rule]], ...] = (
    _directions,
    _ranges,
    _relative,
    _levels,
    _forbidden,
    _rules,
)


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
        return Rule((), then, self.origin, f"at most {self.most} {'change' if self.most == 1 else 'changes'}")
