"""Compiled kernels that follow sequences of actions step by step; they do the same as `ActionModel.step`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlflow_cf.constraints.programs import RuleProgram, keeps, value_of
from mlflow_cf.features import Floats
from mlflow_cf.kernel import inner, kernel

Ints = NDArray[np.int64]
CHANGE, SET, CHOOSE = range(3)  # kinds of actions


class ActionProgram(NamedTuple):
    """An action model as arrays; a span is a pair of positions, start and end, in another array.

    Attributes:
        program: all expressions and rules, of a state (the candidate) beside the one before (the row).
        actions: (n, 8) column, kind, span in `effects`, span of the effort in `program` (-1: the scaled change), span
            of the rules that are its conditions.
        effects: (e, 3) column, span in `program`.
        edges: (k, 5) column that becomes cheaper, span of the factor in `program` (-1: cases), span in `cases`.
        cases: (c,) the rule of each case; shares: (c,) its factor; otherwise: (k,) the factor where no case holds.
        grid: (d, 2) least value and step of numbers on a grid, step 0 of others.
        levels: (d,) how many levels are known, -1 for numbers; largest: of a number.
        least: (d,) least change that counts; scale, weight, unknown_from: (d,) of scaled changes.
    """

    program: RuleProgram
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
def _snapped(model: ActionProgram, column: int, value: float) -> float:
    low, step = model.grid[column, 0], model.grid[column, 1]
    return low + np.round((value - low) / step) * step if step > 0 else value


@inner
def _changed(model: ActionProgram, column: int, after: float, before: float) -> bool:
    """Whether a feature counts as changed; the step is refused anyway where its value is not known."""
    if after == before or (np.isnan(after) and np.isnan(before)):
        return False
    return not abs(after - before) < model.least[column]


@inner
def _known(model: ActionProgram, column: int, value: float) -> bool:
    if model.levels[column] < 0:
        return abs(value) <= model.largest
    return bool(0 <= value < model.levels[column] and value == np.floor(value))


@inner
def _scaled(model: ActionProgram, column: int, after: float, before: float) -> float:
    """Return the weighted change of a feature as a share of its scale; 1 where it has none, or something is missing."""
    if after == before or (np.isnan(after) and np.isnan(before)):
        return 0.0
    limit, weight = model.unknown_from[column], model.weight[column]
    if np.isnan(after) or np.isnan(before) or after >= limit or before >= limit or model.scale[column] == 0:
        return float(weight)
    return float(weight * abs(after - before) / model.scale[column])


@inner
def _edge_factor(model: ActionProgram, edge: int, state: Floats, stack: Floats) -> float:
    """Return the factor in [0, 1] of one edge, from one feature to another."""
    spans = model.edges[edge]
    if spans[1] >= 0:
        factor = value_of(model.program, spans[1], spans[2], state, state, stack)
        return 1.0 if np.isnan(factor) else min(max(factor, 0.0), 1.0)
    for at in range(spans[3], spans[4]):
        if keeps(model.program, model.cases[at], model.cases[at] + 1, state, state, stack):
            return float(model.shares[at])
    return float(model.otherwise[edge])


@inner
def _discount(model: ActionProgram, scratch: Scratch) -> float:
    """Return the discount g of a step: the mean over changed features of their mean factor.

    Edges to one feature are adjacent.
    """
    total, counted, at = 0.0, 0, 0
    while at < len(model.edges):
        column, helps, shares = model.edges[at, 0], 0, 0.0
        while at < len(model.edges) and model.edges[at, 0] == column:
            if scratch.changed[column]:
                shares += _edge_factor(model, at, scratch.before, scratch.stack)
            helps += 1
            at += 1
        if scratch.changed[column]:
            total += shares / helps
            counted += 1
    return total / counted if counted else 1.0


@inner
def _apply_action(model: ActionProgram, action: int, value: float, state: Floats, scratch: Scratch) -> float:
    """Apply one action to `state`, in place, and return its effort, or -1 if it is impossible."""
    spans, before, stack = model.actions[action], scratch.before, scratch.stack
    column = spans[0]
    for at in range(len(state)):
        before[at] = state[at]
        scratch.changed[at] = False
    state[column] = _snapped(model, column, state[column] + value if spans[1] == CHANGE else value)
    moved = False
    for at in range(spans[2], spans[3]):
        other = model.effects[at, 0]
        becomes = value_of(model.program, model.effects[at, 1], model.effects[at, 2], state, before, stack)
        state[other] = _snapped(model, other, becomes)
        scratch.changed[other] = _changed(model, other, state[other], before[other])
        if not _known(model, other, state[other]):
            return -1.0
        moved |= scratch.changed[other]
    scratch.changed[column] = _changed(model, column, state[column], before[column])
    if not (_known(model, column, state[column]) and (moved or scratch.changed[column])):
        return -1.0
    if not keeps(model.program, spans[6], spans[7], state, before, stack):
        return -1.0
    if spans[4] < 0:
        return _scaled(model, column, state[column], before[column])
    effort = value_of(model.program, spans[4], spans[5], state, before, stack)
    return effort if effort >= 0 else -1.0


@kernel
def walk_all(model: ActionProgram, sequences: Sequences, scratch: Scratch, ends: Ends) -> None:
    """Follow sequences from the states in `ends`, which it fills in; all counts and costs there start at 0."""
    for number in range(len(sequences.actions)):
        state = ends.states[number]
        ends.valid[number] = sequences.actions[number, 0] >= 0
        for place in range(sequences.actions.shape[1]):
            action = sequences.actions[number, place]
            if action < 0:
                break
            effort = _apply_action(model, action, sequences.values[number, place], state, scratch)
            if effort < 0:
                for column in range(len(state)):
                    state[column] = scratch.before[column]
                ends.valid[number] = False
                break
            if sequences.unit > 0:
                effort = np.round(effort / sequences.unit) * sequences.unit
            ends.cost[number] += effort * _discount(model, scratch)
            ends.steps[number] += 1
            for column in range(len(state)):
                if scratch.changed[column]:
                    ends.often[number, column] += 1
