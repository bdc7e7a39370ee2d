"""Weighted draws of codes, many rows at once."""

from __future__ import annotations

import numpy as np

from mlflow_cf.constraints.rules import Bools
from mlflow_cf.features import Floats
from mlflow_cf.problem import Codes, Problem
from mlflow_cf.problem.points import limits, with_values

UNIFORM_DRAWS = 500  # of a continuous number
FEW = 16  # codes per code drawn


def draw_distinct(weights: Floats, rows: int, size: int, rng: np.random.Generator) -> Codes:
    """Draw without replacement, with probability proportional to weight, independently for every row.

    Args:
        weights: (t,) weights >= 0; 0 is never drawn.
        rows: number of independent draws r.
        size: codes per draw; fewer if fewer have weight.
        rng: source of randomness.

    Returns:
        (r, min(size, number of positive weights)) codes.

    Draws with replacement are such a draw once repeated codes are left out. What too few of them leave open, the
    smallest of independent exponentials divided by the weights decide (Efraimidis and Spirakis 2006).
    """
    possible = np.flatnonzero(weights)
    if len(possible) <= size:
        return np.tile(possible, (rows, 1))
    drawn = np.empty((rows, size), dtype=np.intp)
    left = np.arange(rows)
    taken = np.zeros((rows, 0), dtype=np.intp)
    if len(possible) > FEW * size:  # else exponentials for all of them are as fast
        taken, distinct = _with_replacement(weights[possible], rows, size, rng)
        enough = distinct.sum(axis=1) == size
        drawn[enough] = taken[enough][distinct[enough]].reshape(-1, size)
        left = np.flatnonzero(~enough)
        taken = np.where(distinct, taken, taken[:, :1])[left]
    keys = rng.standard_exponential((len(left), len(possible))) / weights[possible]
    np.put_along_axis(keys, taken, -1.0, axis=1)  # first of all
    drawn[left] = np.argpartition(keys, size - 1, axis=1)[:, :size]
    return possible[drawn]


def _with_replacement(weights: Floats, rows: int, size: int, rng: np.random.Generator) -> tuple[Codes, Bools]:
    """Return (r, 2 size) codes drawn with replacement, and which of them are the first `size` distinct of their row."""
    shares = weights.cumsum()
    drawn = (shares / shares[-1]).searchsorted(rng.random((rows, 2 * size)), side="right")
    order = np.argsort(drawn, axis=1, kind="stable")
    ascending = np.take_along_axis(drawn, order, axis=1)
    first = np.ones(drawn.shape, dtype=np.bool_)
    np.put_along_axis(first, order[:, 1:], ascending[:, 1:] != ascending[:, :-1], axis=1)
    return drawn, first & (first.cumsum(axis=1) <= size)


def draw_by_row(weights: Floats, rows: Codes, rng: np.random.Generator) -> Codes:
    """Draw one code for every entry of `rows`, from the weights of that row.

    Args:
        weights: (u, t) weights >= 0; rows that are asked for have a positive one.
        rows: (r,) which row of `weights` each draw uses.
        rng: source of randomness.
    """
    cumulative = weights.cumsum(axis=1)
    with np.errstate(invalid="ignore"):
        shares = cumulative / cumulative[:, -1:]
    # rows of shares end in 1; laid end to end they are one ascending line, on which every draw is one look-up
    line = (np.nan_to_num(shares) + np.arange(len(weights))[:, None]).ravel()
    # a draw just below 1 may round up to the next row's start; the last code with weight is meant then
    last = (cumulative < cumulative[:, -1:]).sum(axis=1)
    found = np.searchsorted(line, rows + rng.random(len(rows)), side="right") - rows * weights.shape[1]
    drawn: Codes = np.minimum(found, last[rows])
    return drawn


def with_draws(problem: Problem, rng: np.random.Generator) -> Problem:
    """Return the problem with uniform draws among the actions of its continuous features, half and half by weight."""
    if all(group.interval is None for group in problem.groups):
        return problem
    draws = {
        number: rng.uniform(*limits(problem, group), size=UNIFORM_DRAWS)
        for number, group in enumerate(problem.groups)
        if group.interval is not None
    }
    return with_values(problem, draws)
