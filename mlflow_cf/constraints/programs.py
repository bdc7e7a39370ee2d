"""Rules as programs in postfix notation for a compiled kernel, which checks rows against all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.expressions import (
    Apply,
    Changed,
    Computed,
    Const,
    Expression,
    Recoded,
    Ref,
    evaluate,
    rebuilt,
    references,
)
from mlflow_cf.constraints.rules import Bools, Comparison, Rule
from mlflow_cf.features import Floats
from mlflow_cf.kernel import inner, kernel

Array = NDArray[Any]
Span = tuple[int, int]
SIGNS: Final[tuple[Comparison, ...]] = ("==", "!=", "<", "<=", ">", ">=")
# Instructions: three put a constant, or a value of the query row or the candidate, on the stack; four compute with what
# lies on top, and six with what lies on top and below it.
CONSTANT, OF_ROW, OF_CANDIDATE, RECODE, ABSOLUTE, FLOOR, EXP, ADD, SUBTRACT, MULTIPLY, DIVIDE, MIN, MAX = range(13)
COMPUTED: Final = ("abs", "floor", "exp", "+", "-", "*", "/", "min", "max")  # in the order of their instructions
OPERATIONS: Final = dict(zip(COMPUTED, range(ABSOLUTE, MAX + 1), strict=True))


class RuleProgram(NamedTuple):
    """Rules and other expressions as arrays; a span is a pair of positions, start and end, among the instructions.

    Attributes:
        rule: (r + 1,) where the atoms of every rule start: its conditions, and last what must hold.
        sign: (a,) place of every atom's sign in `SIGNS`; bare: (a,) whether neither side is arithmetic.
        unknown_from, tolerance: (a,) as in `Atom`.
        side: (a, 4) the spans of both sides of every atom.
        does, place: (s,) the instructions, and the column or table of each; constant: (s,) its number.
        tables: the tables of recoded levels, each behind its length.
    """

    rule: Array
    sign: Array
    bare: Array
    unknown_from: Array
    tolerance: Array
    side: Array
    does: Array
    place: Array
    constant: Array
    tables: Array

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> RuleProgram:
        """Return the program of rules that can be compiled; see `is_compiled`."""
        writer = ProgramWriter()
        writer.rules(rules)
        return writer.program()


@dataclass
class ProgramWriter:
    """A program that is being written."""

    _rule: list[int] = field(default_factory=lambda: [0])
    _atoms: list[tuple[int, bool, float, float]] = field(default_factory=list)
    _side: list[tuple[int, ...]] = field(default_factory=list)
    _code: list[tuple[int, int, float]] = field(default_factory=list)
    _tables: list[float] = field(default_factory=list)

    def rules(self, rules: Iterable[Rule]) -> Span:
        """Write rules, and return the numbers of the first one and of that after the last one."""
        first = len(self._rule) - 1
        for rule in rules:
            for atom in (*rule.when, rule.then):
                self._side.append((*self.expression(atom.left), *self.expression(atom.right)))
                bare = not (isinstance(atom.left, Apply) or isinstance(atom.right, Apply))
                self._atoms.append((SIGNS.index(atom.sign), bare, atom.unknown_from, atom.tolerance))
            self._rule.append(len(self._atoms))
        return first, len(self._rule) - 1

    def expression(self, expression: Expression) -> Span:
        """Write an expression, and return its span."""
        start = len(self._code)
        self._write(rebuilt(expression, _folded))
        return start, len(self._code)

    def program(self) -> RuleProgram:
        """Return what was written."""
        sign, bare, unknown_from, tolerance = zip(*self._atoms, strict=True) if self._atoms else ((),) * 4
        does, place, constant = zip(*self._code, strict=True) if self._code else ((),) * 3
        return RuleProgram(
            np.array(self._rule, dtype=np.int64),
            np.array(sign, dtype=np.int64),
            np.array(bare, dtype=np.bool_),
            np.array(unknown_from, dtype=np.float64),
            np.array(tolerance, dtype=np.float64),
            np.array(self._side, dtype=np.int64).reshape(-1, 4),
            np.array(does, dtype=np.int64),
            np.array(place, dtype=np.int64),
            np.array(constant, dtype=np.float64),
            np.array(self._tables, dtype=np.float64),
        )

    def _write(self, expression: Expression) -> None:
        match expression:
            case Const(value):
                self._code.append((CONSTANT, 0, value))
            case Ref(side, column):
                self._code.append((OF_ROW if side == "x" else OF_CANDIDATE, column, 0.0))
            case Apply(function, (first, *others)):
                self._write(first)
                for other in others:  # what the operands before it come to lies below it
                    self._write(other)
                    self._code.append((OPERATIONS[function], 0, 0.0))
                if not others:
                    self._code.append((OPERATIONS[function], 0, 0.0))
            case Recoded(of, _, _, table):
                self._write(of)
                self._code.append((RECODE, len(self._tables), 0.0))
                self._tables += [len(table), *table]
            case Changed() | Computed():
                raise TypeError(f"{type(expression).__name__} cannot be compiled")


def _folded(expression: Expression) -> Expression:
    """Return the value of what mentions none of a row."""
    if isinstance(expression, Apply) and not any(references(expression)):
        return Const(float(evaluate(expression, np.empty((1, 0)), np.empty(0))[0]))
    return expression


def is_compiled(part: Rule | Expression) -> bool:
    """Whether a kernel can check a rule, or evaluate an expression: all but "in", counts of changes, and functions."""
    match part:
        case Rule():
            atoms = (*part.when, part.then)
            return all(atom.sign != "in" and is_compiled(atom.left) and is_compiled(atom.right) for atom in atoms)
        case Recoded(of):
            return is_compiled(of)
        case Apply(_, several):
            return all(map(is_compiled, several))
    return isinstance(part, Const | Ref)


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
        plain = [is_compiled(rule) for rule in every]
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
def value_of(program: Any, start: Any, end: Any, candidate: Any, own: Any, stack: Any) -> Any:
    """Return the value of an expression, a span of instructions; a number that is not finite is unknown."""
    top = -1
    for step in range(start, end):
        does, place = program.does[step], program.place[step]
        if does <= OF_CANDIDATE:
            top += 1
            if does == CONSTANT:
                stack[top] = program.constant[step]
            else:
                stack[top] = own[place] if does == OF_ROW else candidate[place]
        elif does == RECODE:
            stack[top] = _recoded(program.tables, place, stack[top])
        else:
            top -= does >= ADD
            found = _between(does, stack[top], stack[top + 1]) if does >= ADD else _function(does, stack[top])
            stack[top] = found if np.isfinite(found) else np.nan
    return stack[0]


@inner
def _between(does: Any, left: Any, right: Any) -> Any:
    if does == ADD:
        return left + right
    if does == SUBTRACT:
        return left - right
    if does == MULTIPLY:
        return left * right
    if does == DIVIDE:
        return left / right if right != 0 else np.nan
    if np.isnan(left) or np.isnan(right):
        return np.nan
    return min(left, right) if does == MIN else max(left, right)


@inner
def _function(does: Any, value: Any) -> Any:
    if does == ABSOLUTE:
        return abs(value)
    return np.floor(value) if does == FLOOR else np.exp(value)


@inner
def _recoded(tables: Any, place: Any, code: Any) -> Any:
    """Return the code of a level in another feature; infinite for a level that the other lacks."""
    if np.isnan(code):
        return np.nan
    return tables[place + 1 + int(code)] if code < tables[place] else np.inf


@inner
def _holds(program: Any, atom: Any, candidate: Any, own: Any, stack: Any) -> Any:
    """Whether an atom holds."""
    spans = program.side[atom]
    left = value_of(program, spans[0], spans[1], candidate, own, stack)
    right = value_of(program, spans[2], spans[3], candidate, own, stack)
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
