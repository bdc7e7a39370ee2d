"""Rules as programs in postfix notation for a compiled kernel, which checks rows against all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.expressions import ARITHMETIC, Const, Expression, Ref, Size, Sum
from mlflow_cf.constraints.rules import Bools, Comparison, Rule
from mlflow_cf.features import Floats
from mlflow_cf.kernel import inner, kernel

Array = NDArray[Any]
SIGNS: Final[tuple[Comparison, ...]] = ("==", "!=", "<", "<=", ">", ">=")
# What a step does: it puts a constant, or a value of the query row or the candidate, on the stack, or it computes with
# what lies there.
CONSTANT, OF_ROW, OF_CANDIDATE, ADD, SUBTRACT, MULTIPLY, DIVIDE, ABSOLUTE = range(8)
SUMS: Final = {"+": ADD, "-": SUBTRACT, "*": MULTIPLY, "/": DIVIDE}


class ProgramStep(NamedTuple):
    """One instruction of a postfix expression: the operation, and its column or constant."""

    does: int
    column: int = 0
    constant: float = 0.0


class RuleProgram(NamedTuple):
    """The programs of several rules, as arrays.

    Attributes:
        rule: (r + 1,) where the atoms of every rule start: its conditions, and last what must hold.
        sign: (a,) place of every atom's sign in `SIGNS`; bare: (a,) whether neither side is arithmetic.
        unknown_from, tolerance: (a,) as in `Atom`.
        side: (2 a + 1,) where the steps of both sides of every atom start.
        does, column, constant: (s,) the steps.
    """

    rule: Array
    sign: Array
    bare: Array
    unknown_from: Array
    tolerance: Array
    side: Array
    does: Array
    column: Array
    constant: Array

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> RuleProgram:
        """Return the program of plain rules; see `is_plain`."""
        atoms = [atom for rule in rules for atom in (*rule.when, rule.then)]
        sides = [list(_steps(side)) for atom in atoms for side in (atom.left, atom.right)]
        steps = [step for side in sides for step in side]
        return cls(
            np.cumsum([0, *(len(rule.when) + 1 for rule in rules)]),
            np.array([SIGNS.index(atom.sign) for atom in atoms], dtype=np.int64),
            np.array([_is_bare(atom.left) and _is_bare(atom.right) for atom in atoms], dtype=np.bool_),
            np.array([atom.unknown_from for atom in atoms], dtype=np.float64),
            np.array([atom.tolerance for atom in atoms], dtype=np.float64),
            np.cumsum([0, *map(len, sides)]),
            np.array([step.does for step in steps], dtype=np.int64),
            np.array([step.column for step in steps], dtype=np.int64),
            np.array([step.constant for step in steps], dtype=np.float64),
        )


def _is_bare(expression: Expression) -> bool:
    return not isinstance(expression, ARITHMETIC)


def _steps(expression: Expression) -> Iterator[ProgramStep]:
    """Yield the instructions of an expression, operands first."""
    match expression:
        case Const(value):
            yield ProgramStep(CONSTANT, constant=value)
        case Ref(side, column):
            yield ProgramStep(OF_ROW if side == "x" else OF_CANDIDATE, column)
        case Sum(sign, left, right):
            yield from _steps(left)
            yield from _steps(right)
            yield ProgramStep(SUMS[sign])
        case Size(of):
            yield from _steps(of)
            yield ProgramStep(ABSOLUTE)


def is_plain(rule: Rule) -> bool:
    """Whether a kernel can check a rule: it has numbers, values of rows and arithmetic alone."""
    return all(atom.sign != "in" and _is_plain(atom.left) and _is_plain(atom.right) for atom in (*rule.when, rule.then))


def _is_plain(expression: Expression) -> bool:
    match expression:
        case Const() | Ref():
            return True
        case Sum(_, left, right):
            return _is_plain(left) and _is_plain(right)
        case Size(of):
            return _is_plain(of)
    return False


@dataclass(frozen=True, eq=False)
class Checks:
    """Rules that are checked together.

    Attributes:
        program: the plain ones, which a kernel checks; others: the rest.
        plain: (r,) which of all rules are plain.
    """

    program: RuleProgram
    others: tuple[Rule, ...]
    plain: Bools

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> Checks:
        """Return the checks of rules."""
        every = tuple(rules)
        plain = [is_plain(rule) for rule in every]
        program = RuleProgram.of(list(compress(every, plain)))
        others = tuple(rule for rule, known in zip(every, plain, strict=True) if not known)
        return cls(program, others, np.array(plain, dtype=np.bool_))

    def held(self, Z: Floats, x0: Floats) -> Bools:
        """Return (r, m) which rules hold for candidates Z (m, d) of a row x0 (d,)."""
        kept = np.ones((len(self.plain), len(Z)), dtype=np.bool_)
        program, own = self.program, np.ascontiguousarray(np.atleast_2d(x0))
        if len(program.sign):
            by_kernel = np.empty((int(self.plain.sum()), len(Z)), dtype=np.bool_)
            check_each(program, np.ascontiguousarray(Z), own, np.empty(len(program.does)), by_kernel)
            kept[self.plain] = by_kernel
        for number, rule in zip(np.flatnonzero(~self.plain), self.others, strict=True):
            kept[number] = rule.holds(Z, x0)
        return kept

    def refuse(self, Z: Floats, x0: Floats, held: Bools) -> None:
        """Set `held` (m,) to False, in place, where candidates Z (m, d) of x0 (d,), or of a row each, break a rule."""
        program = self.program
        if len(program.sign):
            own = np.ascontiguousarray(np.atleast_2d(x0))
            check_rules(program, np.ascontiguousarray(Z), own, np.empty(len(program.does)), held)
        for rule in self.others:
            held &= rule.holds(Z, x0)


@numba.njit(inline="always")
def compares(sign: Any, left: Any, right: Any, unknown_from: Any, tolerance: Any, bare: Any) -> Any:
    """Whether a comparison of two values holds, as `compare` and `Atom` say."""
    missing = np.isnan(left) or np.isnan(right)
    same = left == right or (bare and np.isnan(left) and np.isnan(right))
    if sign == 0:
        return same or (tolerance > 0 and abs(left - right) <= tolerance)
    if sign == 1:
        return not same and (bare or not missing)
    if same and sign in (3, 5):
        return True
    if missing or left >= unknown_from or right >= unknown_from:
        return False
    return left < right if sign < 4 else left > right


@inner
def _value(program: Any, side: Any, candidate: Any, own: Any, stack: Any) -> Any:
    """Return the value of one side of an atom; NaN (unknown) where it is not finite."""
    top = -1
    for step in range(program.side[side], program.side[side + 1]):
        does = program.does[step]
        if does == CONSTANT:
            top += 1
            stack[top] = program.constant[step]
        elif does == OF_ROW:
            top += 1
            stack[top] = own[program.column[step]]
        elif does == OF_CANDIDATE:
            top += 1
            stack[top] = candidate[program.column[step]]
        elif does == ABSOLUTE:
            stack[top] = abs(stack[top])
        else:
            right = stack[top]
            top -= 1
            if does == ADD:
                found = stack[top] + right
            elif does == SUBTRACT:
                found = stack[top] - right
            elif does == MULTIPLY:
                found = stack[top] * right
            else:
                found = stack[top] / right if right != 0 else np.nan
            stack[top] = found if np.isfinite(found) else np.nan
    return stack[0]


@inner
def _holds(program: Any, atom: Any, candidate: Any, own: Any, stack: Any) -> Any:
    """Whether an atom holds."""
    left = _value(program, 2 * atom, candidate, own, stack)
    right = _value(program, 2 * atom + 1, candidate, own, stack)
    unknown_from, tolerance = program.unknown_from[atom], program.tolerance[atom]
    return compares(program.sign[atom], left, right, unknown_from, tolerance, program.bare[atom])


@inner
def keeps(program: Any, first: Any, last: Any, candidate: Any, own: Any, stack: Any) -> Any:
    """Whether the rules from number `first` on, up to `last`, hold for a candidate (d,) of a row `own` (d,)."""
    for rule in range(first, last):
        then = program.rule[rule + 1] - 1
        applies = True
        for atom in range(program.rule[rule], then):
            applies = applies and _holds(program, atom, candidate, own, stack)
        if applies and not _holds(program, then, candidate, own, stack):
            return False
    return True


@kernel
def check_rules(program: RuleProgram, Z: Array, x0: Array, stack: Array, held: Array) -> None:
    """Set `held` (m,) to False for candidates Z (m, d) of rows x0 (m, d), or of one (1, d), that break a rule."""
    rules = program.rule.size - 1
    for row in range(held.size):
        if held[row]:
            held[row] = keeps(program, 0, rules, Z[row], x0[row if len(x0) > 1 else 0], stack)


@kernel
def check_each(program: RuleProgram, Z: Array, x0: Array, stack: Array, held: Array) -> None:
    """Write to `held` (r, m) which rules hold for candidates Z (m, d) of a row x0 (1, d)."""
    for rule in range(held.shape[0]):
        for row in range(held.shape[1]):
            held[rule, row] = keeps(program, rule, rule + 1, Z[row], x0[0], stack)
