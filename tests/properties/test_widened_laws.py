"""Regions around counterfactuals: every admissible row in them is one, and sides marked maximal end where they must."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from exact_worlds import TOLERANCE, Drawn, Enumerated, drawn
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from laws import dear

from mlflow_cf.engine.thresholds import SCORE_TOLERANCES
from mlflow_cf.problem import Budget
from mlflow_cf.regions import Side, widen


def inside(side: Side, values: np.ndarray) -> np.ndarray:
    """Return which values lie in a side."""
    if side.levels:
        return np.isin(values, side.levels)
    return (side.low <= values) & (values <= side.high)


def admissible(world: Drawn, column: int) -> np.ndarray:
    """Return the values that the rules about a single feature leave, ascending."""
    problem = world.row_task().problem
    group = problem.groups[int(problem.owner[column])]
    values = group.actions[group.admissible, group.columns.index(column)]
    return values[~np.isnan(values)]


def rows_of(world: Drawn, row: np.ndarray, sides: Sequence[Side], forced: dict[int, np.ndarray]) -> np.ndarray:
    """Return all admissible rows of a region, with other values `forced` for some columns."""
    several = []
    for side in sides:
        values = admissible(world, side.column)
        several.append(forced.get(side.column, np.union1d(values[inside(side, values)], row[[side.column]])))
    found = np.tile(row, (int(np.prod([len(some) for some in several])), 1))
    for side, values in zip(sides, np.array(list(product(*several))).T, strict=True):
        found[:, side.column] = values
    return found


def beyond(side: Side, values: np.ndarray) -> list[float]:
    """Return the values next to a side."""
    if side.levels:
        return [value for value in values.tolist() if value not in side.levels]
    return [*values[values < side.low].tolist()[-1:], *values[values > side.high].tolist()[:1]]


def check(world: Drawn, row: np.ndarray, sides: Sequence[Side], known: set[bytes]) -> None:
    """Check a region by all of its rows, and its maximal sides by the rows next to them."""
    assert all(one.tobytes() in known for one in rows_of(world, row, sides, {}))
    for side in sides:
        values = admissible(world, side.column)
        assert inside(side, row[[side.column]]).all()
        if not side.maximal:
            continue
        for value in beyond(side, values):
            next_to = rows_of(world, row, sides, {side.column: np.array([value])})
            assert any(one.tobytes() not in known for one in next_to)
        assert not side.lowest or not (values < side.low).any()
        assert not side.highest or not (values > side.high).any()


@pytest.mark.parametrize("model", ["forest", "linear", "network"])
@settings(dear(2), suppress_health_check=[HealthCheck.filter_too_much])  # many worlds that are drawn have no answer
@given(st.data(), st.integers(0, 10**6), st.booleans(), st.sampled_from([10**7, 10**7, 60, 300]))
def test_every_row_of_a_region_is_a_counterfactual(
    model: str,
    data: st.DataObject,
    pick: int,
    every: bool,  # noqa: FBT001  drawn
    evaluations: int,
) -> None:
    world = data.draw(drawn(models=(model,)))
    assume(world.open)
    enumerated, problem = Enumerated(world), world.row_task().problem
    assume(len(enumerated.rows))
    at = pick % len(enumerated.rows)
    row = enumerated.rows[at]
    pairs = zip(enumerated.groups, enumerated.changed[at], strict=True)
    changed = [column for group, flag in pairs if flag or every for column in group]
    columns = sorted(column for column in changed if not np.isnan(row[column]))
    sides = widen(problem, row, columns, SCORE_TOLERANCES * TOLERANCE, Budget(evaluations))
    assert [side.column for side in sides] == columns
    check(world, row, sides, enumerated.known)
