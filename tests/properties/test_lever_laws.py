"""Levers against enumeration: for every set of groups the nearest answer that changes nothing else, or none."""

from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest
from exact_worlds import TOLERANCE, Drawn, Enumerated, drawn
from hypothesis import example, given
from hypothesis import strategies as st
from laws import dear

from mlflow_cf.levers.nearest import nearest_of_levers
from mlflow_cf.levers.sets import LeverSets
from mlflow_cf.policy import Distance
from mlflow_cf.proof.pipeline import run_inquiries

OPENED = ("forest", "forest", "linear", "network")
FORCED = Drawn(  # the row's own age is not among the values that it may take, which is a single one
    seed=0,
    grid=False,
    constraints={"immutable": [], "ranges": {"age": [23, 23]}},
    distance=Distance(0.5, 0.5, 0, scale="range"),
    query={"age": 20, "income": 0.0, "grade": "low", "job": "a", "member": False, "rooms": 1},
    count=1,
    model="linear",
    task="value",
    goal="label",
    quantile=0.8,
    least=None,
)


def opened(models=OPENED):
    return drawn(models).filter(lambda world: world.open)


def answered(world, sets, *, smallest, evaluations=10**7, structure=None):
    """Return what every set can do, and its answer."""
    task = world.row_task(evaluations, structure)
    wanted = LeverSets(tuple(sets), smallest)
    (told,) = run_inquiries(world.judge, world.space, [nearest_of_levers(task, wanted, TOLERANCE)])
    assert not isinstance(told, Exception), told
    assert [one.groups for one in told.sets] == list(sets)
    assert task.budget.used <= evaluations
    return told


def nearest(expected, groups):
    """Return the position of the nearest counterfactual that changes nothing but some groups; None: there is none."""
    inside = np.isin(np.arange(len(expected.groups)), groups)
    kept = np.flatnonzero(~(expected.changed & ~inside).any(axis=1))
    return int(kept[0]) if len(kept) else None


def sets_up_to(most, groups):
    return list(chain.from_iterable(combinations(range(groups), size) for size in range(1, most + 1)))


def is_nearest(told, one, expected, at):
    np.testing.assert_array_equal(told.verified.rows[one.at], expected.rows[at])
    assert told.verified.proofs[one.at] == "optimal"
    assert told.verified.bounds[one.at] == expected.distance[at]


@dear(2)
@given(opened(), st.integers(1, 3))
@example(FORCED, 1)
def test_all_sets_up_to_a_size(world, most):
    expected = Enumerated(world)
    sets = sets_up_to(most, len(expected.groups))
    told = answered(world, sets, smallest=True)
    works = {groups: nearest(expected, groups) for groups in sets}
    for one in told.sets:
        below = [some for some in sets if set(some) < set(one.groups) and works[some] is not None]
        if works[one.groups] is None:
            assert one.status == "infeasible"
        elif below:
            assert one.status == "implied"
            assert one.by in below
        else:
            assert one.status == "found"
            is_nearest(told, one, expected, works[one.groups])


@dear(2)
@given(opened(), st.data())
def test_named_sets(world, data):
    expected = Enumerated(world)
    group = st.integers(0, len(expected.groups) - 1)
    named = st.lists(st.sets(group, min_size=1).map(lambda some: tuple(sorted(some))), min_size=1, max_size=5)
    sets = data.draw(named)
    told = answered(world, sets, smallest=False)
    for one in told.sets:
        at = nearest(expected, one.groups)
        assert one.status == ("infeasible" if at is None else "found")
        if at is not None:
            is_nearest(told, one, expected, at)


@dear(4)
@given(opened(), st.integers(1, 5), st.booleans())
def test_a_structure_that_lies_leads_to_no_wrong_answer(world, other, smallest):
    """What it wrongly believes in is refused by the judge, and then nothing that it says is a proof."""
    expected = Enumerated(world)
    liar = replace(world, seed=world.seed + other)._structure(world.shift)
    told = answered(world, sets_up_to(2, len(expected.groups)), smallest=smallest, structure=liar)
    refused = any("disagree" in one.reason for one in told.sets)
    assert not (refused and {one.status for one in told.sets} & {"infeasible"})
    assert not (refused and set(told.verified.proofs) - {"none"})
    for one in told.sets:
        if one.status == "found":
            row = told.verified.rows[one.at]
            assert row.tobytes() in expected.known
            assert set(np.flatnonzero(world.row_task().problem.changed(row[None])[0])) <= set(one.groups)


@dear(2)
@given(opened(), st.booleans(), st.integers(0, 99))
def test_a_small_budget_is_kept_and_claims_nothing_wrong(world, smallest, percent):
    expected = Enumerated(world)
    sets = sets_up_to(3, len(expected.groups))
    enough = world.row_task()
    (_,) = run_inquiries(
        world.judge, world.space, [nearest_of_levers(enough, LeverSets(tuple(sets), smallest), TOLERANCE)]
    )
    evaluations = enough.budget.used * percent // 100
    told = answered(world, sets, smallest=smallest, evaluations=evaluations)
    for one in told.sets:
        at = nearest(expected, one.groups)
        if one.status == "infeasible":
            assert at is None
        elif one.status == "found":
            assert told.verified.rows[one.at].tobytes() in expected.known
            if told.verified.proofs[one.at] == "optimal":
                is_nearest(told, one, expected, at)
        elif one.status == "implied":
            assert nearest(expected, one.by) is not None
        else:
            assert one.status in ("budget", "not_found")


@dear(4)
@given(drawn(("none",)).filter(lambda world: world.open), st.booleans())
def test_of_a_model_that_is_not_opened_nothing_is_proved(world, smallest):
    expected = Enumerated(world)
    sets = sets_up_to(2, len(expected.groups))
    told = answered(world, sets, smallest=smallest)
    assert set(told.verified.proofs) <= {"none"}
    forced = np.flatnonzero(~world.row_task().problem.own_allowed)
    for one in told.sets:
        at = nearest(expected, one.groups)
        if one.status == "found":
            assert told.verified.rows[one.at].tobytes() in expected.known
            if len(one.groups) == 1:  # the model itself was asked about all values
                assert told.verified.rows[one.at].tobytes() == expected.rows[at].tobytes()
        elif one.status == "infeasible" or (one.status == "not_found" and len(one.groups) == 1 and not len(forced)):
            assert at is None  # the constraints alone leave nothing, or none of all values does


@pytest.fixture(scope="module", autouse=True, params=[0, 2**17], ids=["searched", "combined"])
def small_limits(request):
    """Boxes are parted in small problems, too, and larger sets are searched, or their combinations scored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.engine.thresholds.MOST_LISTED", 6)
        patch.setattr("mlflow_cf.engine.thresholds.MOST_ALONE", 6)
        patch.setattr("mlflow_cf.levers.nearest.AHEAD", 1)
        patch.setattr("mlflow_cf.levers.nearest.MOST_COMBINED", request.param)
        patch.setattr("mlflow_cf.levers.grid.AT_ONCE", 2)
        yield
