"""The one kind of rule every constraint compiles to: ``IF atoms THEN atom`` over codes.

An atom compares two expressions over the query row ``x`` and the counterfactual ``x_cf``. Missing values and unseen
levels follow one convention (methods: exact search, section 2): two bare references that are both missing, or the same
unseen level, are equal; any other comparison with something unknown is false, except that a bare ``!=`` is true. Atoms
are evaluated as written and never negated into one another.

A rule knows the constraint that it comes from. Groups are repaired in the order of their rules: one that the rules of
others depend on comes first (GeCo section 3.2).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.expressions import (
    MISSING,
    SIDES,
    Apply,
    Const,
    Expression,
    Recoded,
    Ref,
    Side,
    evaluate,
    level_table,
    rebuilt,
    references,
)
from mlflow_cf.errors import InputError
from mlflow_cf.features import Feature, Floats

Source = Literal["policy", "request"]
Key = Literal[
    "immutable",
    "increasing",
    "decreasing",
    "ranges",
    "relative",
    "levels",
    "forbidden",
    "groups",
    "max_changes",
    "rules",
    "causal",
    "actions",
    "relationships",
    "min_probability",
    "margin",
    "robust_to",
    "plausible",
    "survival",
]
# Keys that stand beside the constraints.
_ELSEWHERE: Final = {"min_probability": "target.min_probability"} | {
    k: k for k in ("margin", "robust_to", "plausible", "survival")
}


@dataclass(frozen=True)
class Origin:
    """One constraint, in the smallest unit that can be left out.

    Attributes:
        source: whether the policy or the request has it.
        key: the key it stands under; `min_probability` stands in the target.
        name: the feature it is about, if its key goes by feature, or the model of ``robust_to``.
        position: its place in the list of its key (and feature), if that is a list of constraints.
        beside_request: whether a request adds constraints, so that messages tell which ones are the policy's.
    """

    source: Source
    key: Key
    name: str = ""
    position: int | None = None
    beside_request: bool = False

    @property
    def section(self) -> str:
        """The path of its key, such as ``constraints.ranges``."""
        whose = "policy." if self.source == "policy" and self.beside_request else ""
        return f"{whose}{_ELSEWHERE.get(self.key, f'constraints.{self.key}')}"

    @property
    def place(self) -> str:
        """Its name or position below its key, such as ``age`` or ``[0]``."""
        return self.name + ("" if self.position is None else f"[{self.position}]")

    @property
    def path(self) -> str:
        """The path where it was declared, such as ``constraints.ranges.age`` or ``constraints.rules[0]``."""
        return f"{self.section}.{self.place}" if self.name else f"{self.section}{self.place}"


Comparison = Literal["==", "!=", "<", "<=", ">", ">=", "in"]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Atom:
    """One comparison.

    Attributes:
        left, right: the two sides; `members` replaces `right` when `sign` is ``in``.
        unknown_from: codes from here on have no known rank (unseen levels of an ordinal).
        tolerance: how far apart two numbers may be that count as equal under ``==``.
    """

    left: Expression
    sign: Comparison
    right: Expression = MISSING
    members: tuple[float, ...] = ()
    unknown_from: float = np.inf
    tolerance: float = 0.0

    def holds(self, Z: Floats, x0: Floats) -> Bools:
        """Return (m,) whether the atom holds for candidates Z (m, d) of the query row x0 (d,), or of a row each."""
        left = evaluate(self.left, Z, x0)
        if self.sign == "in":
            return np.isin(left, self.members)
        right = evaluate(self.right, Z, x0)
        bare = not (isinstance(self.left, Apply) or isinstance(self.right, Apply))
        held = compare(self.sign, left, right, bare=bare, unknown_from=self.unknown_from)
        return held | (np.abs(left - right) <= self.tolerance) if self.sign == "==" and self.tolerance else held

    def bound(self, Z: Floats, x0: Floats) -> Floats:
        """Return the values (m,) of the right side."""
        return evaluate(self.right, Z, x0)

    def columns(self, side: Side) -> frozenset[int]:
        """Return the columns of `side` that the atom mentions."""
        return self._columns[side]

    @cached_property
    def _columns(self) -> dict[Side, frozenset[int]]:
        found = [*references(self.left), *references(self.right)]
        return {side: frozenset(ref.column for ref in found if ref.side == side) for side in SIDES}


@dataclass(frozen=True)
class Rule:
    """``IF when THEN then`` with the constraint it came from.

    Attributes:
        when: atoms that must all hold for the rule to apply; empty: it always applies.
        then: what must hold then.
        origin: the constraint; its path is the reason shown when the rule blocks.
        text: the rule in words a person can read.
        defines: the counterfactual column `then` determines, or None for a rule that only rejects.
    """

    when: tuple[Atom, ...]
    then: Atom
    origin: Origin
    text: str
    defines: int | None = None

    def holds(self, Z: Floats, x0: Floats) -> Bools:
        """Return (m,) whether the rule holds for candidates Z (m, d) of the query row x0 (d,), or of a row each."""
        if not self.when:
            return self.then.holds(Z, x0)
        applies = np.ones(len(Z), dtype=np.bool_)
        for atom in self.when:
            applies &= atom.holds(Z, x0)
        if not applies.any():
            return ~applies
        return ~applies | self.then.holds(Z, x0)

    def columns(self, side: Side) -> frozenset[int]:
        """Return the columns of `side` that the rule mentions."""
        columns = self.then.columns(side)
        return columns.union(*(atom.columns(side) for atom in self.when)) if self.when else columns


def ground(rule: Rule, x0: Floats) -> Rule | None:
    """Return the rule with the values of the query row in place of references to it (GeCo section 3.4).

    None if the rule always holds. Conditions on the query row alone are decided here. All atoms that are left mention
    ``x_cf``, except a `then` that is false for this row whatever the counterfactual is.
    """
    if not applies(rule, x0):
        return None
    when = tuple(_ground_atom(atom, x0) for atom in rule.when if atom.columns("x_cf"))
    return Rule(when, _ground_atom(rule.then, x0), rule.origin, rule.text, rule.defines)


def applies(rule: Rule, x0: Floats) -> bool:
    """Whether a rule may fail for some counterfactual of a row (d,), by its conditions and `then` on that row alone."""
    one = x0[None, :]
    if not all(atom.holds(one, x0)[0] for atom in rule.when if not atom.columns("x_cf")):
        return False
    return bool(rule.then.columns("x_cf")) or not rule.then.holds(one, x0)[0]


def recode(rule: Rule, features: Sequence[Feature]) -> Rule:
    """Return the rule for features that cover levels unseen in the background: the same level is equal everywhere."""

    def renewed(part: Expression) -> Expression:
        if not isinstance(part, Recoded):
            return part
        return replace(part, table=level_table(features[part.source], features[part.into]))

    return replace(rule, when=tuple(_replaced(a, renewed) for a in rule.when), then=_replaced(rule.then, renewed))


def _ground_atom(atom: Atom, x0: Floats) -> Atom:
    if not atom.columns("x"):
        return atom

    # Arithmetic stays arithmetic even over constants: a bare missing value compares differently from a computed one.
    def value(part: Expression) -> Expression:
        return Const(float(x0[part.column])) if isinstance(part, Ref) and part.side == "x" else part

    return _replaced(atom, value)


def _replaced(atom: Atom, change: Callable[[Expression], Expression]) -> Atom:
    return replace(atom, left=rebuilt(atom.left, change), right=rebuilt(atom.right, change))


def compare(sign: Comparison, left: Floats, right: Floats, *, bare: bool, unknown_from: float | Floats) -> Bools:
    """Return where a comparison holds, elementwise; `bare`: neither side is arithmetic."""
    missing = np.isnan(left), np.isnan(right)
    same: Bools = left == right
    if bare:
        same |= missing[0] & missing[1]
    if sign == "==":
        return same
    unknown: Bools = missing[0] | missing[1]
    if sign == "!=":
        return np.logical_not(same) if bare else ~same & ~unknown
    unknown |= (left >= unknown_from) | (right >= unknown_from)
    ahead: Bools = (left < right) if sign in ("<", "<=") else (left > right)
    ahead &= ~unknown
    return ahead | same if sign in ("<=", ">=") else ahead


def repair_order(rules: Sequence[Rule], groups: Sequence[tuple[int, ...]], names: Sequence[str]) -> tuple[int, ...]:
    """Return the groups in topological order of their rules; ties in the order of features.

    A rule that defines a feature and mentions another group puts that group first. Rejection rules order nothing.

    Raises:
        InputError: groups that depend on each other in a circle, which is printed.
    """
    owner = {column: number for number, columns in enumerate(groups) for column in columns}
    graph = TopologicalSorter[int](dict.fromkeys(range(len(groups)), ()))
    for rule in rules:
        if rule.defines is not None:
            defined = owner[rule.defines]
            before = {owner[column] for column in rule.columns("x_cf")} - {defined}
            graph.add(defined, *before)
    try:
        graph.prepare()
    except CycleError as error:
        circle = " -> ".join("+".join(names[column] for column in groups[number]) for number in reversed(error.args[1]))
        fix = "rewrite one of them so that it defines nothing, e.g. IF ... THEN 1 = 2"
        raise InputError("constraints.rules", f"rules depend on each other: {circle}", fix) from None
    order, ready = list[int](), list[int]()
    while graph.is_active():
        for number in graph.get_ready():
            heapq.heappush(ready, number)
        order.append(heapq.heappop(ready))
        graph.done(order[-1])
    return tuple(order)
