"""Compiled kernels that follow sequences of actions step by step; they do the same as `ActionModel.step`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.features import Floats
from mlflow_cf.kernel import inner, kernel

Ints = NDArray[np.int64]
# Instructions of expressions, in postfix order; arithmetic comes last.
CONST, BEFORE, AFTER, RECODE, ABS, FLOOR, EXP, ADD, SUB, MUL, DIV, MIN, MAX = range(13)
EQ, NE, LT, LE, GT, GE = range(6)  # comparisons
CHANGE, SET, CHOOSE = range(3)  # kinds of actions


class ActionProgram(NamedTuple):
    """An action model as arrays; a span is a pair of positions, start and end, in another array.

    Attributes:
        code: (i, 2) instruction and its column or place; number: (i,) its constant.
        tables: level tables, each behind its length.
        atoms: (a, 6) sign, spans of both sides in `code`, whether both are bare; limits: (a, 2) first code without a
            rank, tolerance.
        rules: (r, 2) span in `atoms`; the last atom must hold if all others do.
        actions: (n, 8) column, kind, span in `effects`, span of the effort in `code` (-1: the scaled change), span of
            the conditions in `rules`.
        effects: (e, 3) column, span in `code`.
        edges: (k, 5) column that becomes cheaper, span of the factor in `code` (-1: cases), span in `cases`.
        cases: (c,) the rule of each case; shares: (c,) its factor; otherwise: (k,) the factor where no case holds.
        grid: (d, 2) least value and step of numbers on a grid, step 0 of others.
        levels: (d,) how many levels are known, -1 for numbers; largest: of a number.
        least: (d,) least change that counts; scale, weight, unknown_from: (d,) of scaled changes.
    """

    code: Ints
    number: Floats
    tables: Floats
    atoms: Ints
    limits: Floats
    rules: Ints
    actions: Ints
    effects: Ints
    edges: Ints
    cases: Ints
    shares: Floats
    otherwise: Floats
    grid: Floats
    levels: Ints
    least: Floats
    scale: Floats
    weight: Floats
    unknown_from: Floats
    largest: float


class Scratch(NamedTuple):
    """Working memory of one walk: the state before a step (d,), which features it changed (d,), a stack of values."""

    before: Floats
    changed: NDArray[np.bool_]
    stack: Floats


class Sequences(NamedTuple):
    """Actions (m, t), -1 where there is no more, and their values (m, t); `unit` is that of efforts, 0: not rounded."""

    actions: Ints
    values: Floats
    unit: float


class Ends(NamedTuple):
    """The ends of m sequences, or the states where they stop at an impossible step.

    Attributes:
        states: (m, d) codes; cost: (m,) of all steps; often: (m, d) how many steps changed each feature.
        steps: (m,) how many were done; valid: (m,) whether that is all of one or more.
    """

    states: Floats
    cost: Floats
    often: Ints
    steps: Ints
    valid: NDArray[np.bool_]


@inner
def _value(program: ActionProgram, start: int, end: int, after: Floats, before: Floats, stack: Floats) -> float:
    """Return the value of an expression, a span of `code`."""
    top = -1
    for at in range(start, end):
        op, place = program.code[at, 0], program.code[at, 1]
        if op <= AFTER:
            top += 1
            stack[top] = program.number[at] if op == CONST else before[place] if op == BEFORE else after[place]
        elif op == RECODE:
            stack[top] = _recoded(program, place, stack[top])
        elif op < ADD:
            stack[top] = _function(op, stack[top])
        else:
            top -= 1
            stack[top] = _arithmetic(op, stack[top], stack[top + 1])
    return float(stack[0])


@inner
def _recoded(program: ActionProgram, place: int, code: float) -> float:
    if np.isnan(code):
        return np.nan
    if code >= program.tables[place]:
        return np.inf
    return float(program.tables[place + 1 + int(code)])


@inner
def _function(op: int, value: float) -> float:
    if op == ABS:
        result = abs(value)
    elif op == FLOOR:
        result = np.floor(value)
    else:
        result = np.exp(value)
    return result if np.isfinite(result) else np.nan


@inner
def _arithmetic(op: int, left: float, right: float) -> float:
    if np.isnan(left) or np.isnan(right):
        return np.nan
    if op == ADD:
        result = left + right
    elif op == SUB:
        result = left - right
    elif op == MUL:
        result = left * right
    elif op == DIV:
        result = left / right if right != 0 else np.nan
    elif op == MIN:
        result = min(left, right)
    else:
        result = max(left, right)
    return result if np.isfinite(result) else np.nan


@inner
def _equal(left: float, right: float, bare: int, tolerance: float) -> bool:
    if bare == 1 and np.isnan(left) and np.isnan(right):
        return True
    return left == right or (tolerance > 0 and abs(left - right) <= tolerance)


@inner
def _atom_holds(program: ActionProgram, at: int, after: Floats, before: Floats, stack: Floats) -> bool:
    atom, tolerance = program.atoms[at], program.limits[at, 1]
    sign, bare = atom[0], atom[5]
    left = _value(program, atom[1], atom[2], after, before, stack)
    right = _value(program, atom[3], atom[4], after, before, stack)
    same = _equal(left, right, bare, tolerance if sign == EQ else 0.0)
    unknown = np.isnan(left) or np.isnan(right)
    if sign == NE:
        return not same and (bare == 1 or not unknown)
    if same or sign == EQ:
        return same and sign in (EQ, LE, GE)
    if unknown or max(left, right) >= program.limits[at, 0]:
        return False
    return left < right if sign in (LT, LE) else left > right


@inner
def _rule_holds(program: ActionProgram, rule: int, after: Floats, before: Floats, stack: Floats) -> bool:
    end = program.rules[rule, 1]
    for at in range(program.rules[rule, 0], end - 1):
        if not _atom_holds(program, at, after, before, stack):
            return True
    return _atom_holds(program, end - 1, after, before, stack)


@inner
def _snapped(program: ActionProgram, column: int, value: float) -> float:
    low, step = program.grid[column, 0], program.grid[column, 1]
    return low + np.round((value - low) / step) * step if step > 0 else value


@inner
def _changed(program: ActionProgram, column: int, after: float, before: float) -> bool:
    """Whether a feature counts as changed; the step is refused anyway where its value is not known."""
    if after == before or (np.isnan(after) and np.isnan(before)):
        return False
    return not abs(after - before) < program.least[column]


@inner
def _known(program: ActionProgram, column: int, value: float) -> bool:
    if program.levels[column] < 0:
        return abs(value) <= program.largest
    return bool(0 <= value < program.levels[column] and value == np.floor(value))


@inner
def _scaled(program: ActionProgram, column: int, after: float, before: float) -> float:
    """Return the weighted change of a feature as a share of its scale; 1 where it has none, or something is missing."""
    if after == before or (np.isnan(after) and np.isnan(before)):
        return 0.0
    limit, weight = program.unknown_from[column], program.weight[column]
    if np.isnan(after) or np.isnan(before) or after >= limit or before >= limit or program.scale[column] == 0:
        return float(weight)
    return float(weight * abs(after - before) / program.scale[column])


@inner
def _edge_factor(program: ActionProgram, edge: int, state: Floats, stack: Floats) -> float:
    """Return the factor in [0, 1] of one edge, from one feature to another."""
    spans = program.edges[edge]
    if spans[1] >= 0:
        factor = _value(program, spans[1], spans[2], state, state, stack)
        return 1.0 if np.isnan(factor) else min(max(factor, 0.0), 1.0)
    for at in range(spans[3], spans[4]):
        if _rule_holds(program, program.cases[at], state, state, stack):
            return float(program.shares[at])
    return float(program.otherwise[edge])


@inner
def _discount(program: ActionProgram, scratch: Scratch) -> float:
    """Return the discount g of a step: the mean over changed features of their mean factor.

    Edges to one feature are adjacent.
    """
    total, counted, at = 0.0, 0, 0
    while at < len(program.edges):
        column, helps, shares = program.edges[at, 0], 0, 0.0
        while at < len(program.edges) and program.edges[at, 0] == column:
            if scratch.changed[column]:
                shares += _edge_factor(program, at, scratch.before, scratch.stack)
            helps += 1
            at += 1
        if scratch.changed[column]:
            total += shares / helps
            counted += 1
    return total / counted if counted else 1.0


@inner
def _apply_action(program: ActionProgram, action: int, value: float, state: Floats, scratch: Scratch) -> float:
    """Apply one action to `state`, in place, and return its effort, or -1 if it is impossible."""
    spans, before, stack = program.actions[action], scratch.before, scratch.stack
    column = spans[0]
    for at in range(len(state)):
        before[at] = state[at]
        scratch.changed[at] = False
    state[column] = _snapped(program, column, state[column] + value if spans[1] == CHANGE else value)
    moved = False
    for at in range(spans[2], spans[3]):
        other = program.effects[at, 0]
        becomes = _value(program, program.effects[at, 1], program.effects[at, 2], state, before, stack)
        state[other] = _snapped(program, other, becomes)
        scratch.changed[other] = _changed(program, other, state[other], before[other])
        if not _known(program, other, state[other]):
            return -1.0
        moved |= scratch.changed[other]
    scratch.changed[column] = _changed(program, column, state[column], before[column])
    if not (_known(program, column, state[column]) and (moved or scratch.changed[column])):
        return -1.0
    for at in range(spans[6], spans[7]):
        if not _rule_holds(program, at, state, before, stack):
            return -1.0
    if spans[4] < 0:
        return _scaled(program, column, state[column], before[column])
    effort = _value(program, spans[4], spans[5], state, before, stack)
    return effort if effort >= 0 else -1.0


@kernel
def walk_all(program: ActionProgram, sequences: Sequences, scratch: Scratch, ends: Ends) -> None:
    """Follow sequences from the states in `ends`, which it fills in; all counts and costs there start at 0."""
    for number in range(len(sequences.actions)):
        state = ends.states[number]
        ends.valid[number] = sequences.actions[number, 0] >= 0
        for place in range(sequences.actions.shape[1]):
            action = sequences.actions[number, place]
            if action < 0:
                break
            effort = _apply_action(program, action, sequences.values[number, place], state, scratch)
            if effort < 0:
                for column in range(len(state)):
                    state[column] = scratch.before[column]
                ends.valid[number] = False
                break
            if sequences.unit > 0:
                effort = np.round(effort / sequences.unit) * sequences.unit
            ends.cost[number] += effort * _discount(program, scratch)
            ends.steps[number] += 1
            for column in range(len(state)):
                if scratch.changed[column]:
                    ends.often[number, column] += 1
