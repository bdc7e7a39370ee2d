"""Regions around counterfactuals: every admissible row inside is accepted, and sides marked maximal are."""

from itertools import product

import numpy as np
import pytest
from exact_worlds import TOLERANCE, Drawn, Enumerated, drawn
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import dear

from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.problem import Budget, Problem
from mlflow_cf.regions.grow import FoundSide, region_of

MOST = 3_000  # rows of a box that are tried
OFF = SCORE_TOLERANCES * TOLERANCE


def inside(problem: Problem, row: np.ndarray, sides: tuple[FoundSide, ...], seed: int) -> np.ndarray:
    """Return admissible rows of a region, all of them or some that are drawn."""
    choices = [np.array([value]) for value in row]
    for side in sides:
        group = problem.groups[int(problem.owner[side.column])]
        if len(group.columns) > 1:
            assert side.low == side.high == row[side.column]
            continue
        values = group.actions[group.admissible, 0]
        if problem.space.features[side.column].has_order:
            choices[side.column] = values[(values >= side.low) & (values <= side.high)]
        else:
            choices[side.column] = values[np.isin(values, side.codes)]
    if np.prod([float(len(some)) for some in choices]) <= MOST:
        return np.array(list(product(*choices)))
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.choice(some, MOST) for some in choices])


def beyond(problem: Problem, sides: tuple[FoundSide, ...], side: FoundSide) -> list[tuple[FoundSide, ...]]:
    """Return the regions that have one more value of a side."""
    group = problem.groups[int(problem.owner[side.column])]
    values = group.actions[group.admissible, 0]
    values = np.unique(values[~np.isnan(values)])
    larger = []
    if problem.space.features[side.column].has_order:
        below, above = values[values < side.low], values[values > side.high]
        larger += [side._replace(low=below[-1])] if len(below) else []
        larger += [side._replace(high=above[0])] if len(above) else []
    else:
        larger += [side._replace(codes=np.append(side.codes, one)) for one in np.setdiff1d(values, side.codes)]
    return [tuple(new if one is side else one for one in sides) for new in larger]


def check_region(world: Drawn, *, everything: bool) -> None:
    task = world.row_task()
    answers = Enumerated(world).rows
    assume(len(answers))
    row, problem = answers[0], task.problem
    sides = region_of(problem, row, OFF, Budget(10**6), everything=everything)
    rows = inside(problem, row, sides, world.seed)
    assert (rows == row).all(axis=1).any() or np.isnan(row).any()
    assert problem.check(rows).all()
    assert world.accepts(rows).all()
    if np.prod([float(len(side.codes)) for side in sides]) > MOST:
        return
    for side in sides:
        for larger in beyond(problem, sides, side) if side.maximal else []:
            rows = inside(problem, row, larger, world.seed)
            assert len(rows) > MOST / 2 or not (problem.check(rows) & world.accepts(rows)).all()


@pytest.mark.parametrize("model", ["forest", "linear", "network"])
@given(st.data(), st.booleans())
@dear(2)
def test_every_row_of_a_region_is_a_counterfactual(model: str, data: st.DataObject, everything: bool) -> None:  # noqa: FBT001
    world = data.draw(drawn(models=(model,)))
    assume(world.open)
    check_region(world, everything=everything)
