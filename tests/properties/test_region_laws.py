"""Causal equations and hulls as rows of programs: what they leave is what holds, and the nearest of it is found."""

from dataclasses import replace

import numpy as np
import pytest
from causal_worlds import causal_lists
from exact_worlds import TOLERANCE, Enumerated, drawn
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from laws import dear

from mlflow_cf.constraints.expressions import Computed
from mlflow_cf.explainers.hull import Enlarged, Region, corners
from mlflow_cf.features.embedding import Embedding
from mlflow_cf.milp.minimise import lower_bound, minimise
from mlflow_cf.milp.model import Model
from mlflow_cf.milp.program import Affine, NotLinearError, Program
from mlflow_cf.milp.rules import add_equation
from mlflow_cf.milp.solve import Effort, solve
from mlflow_cf.milp.variables import Variables, domains_of
from mlflow_cf.problem import Budget

worlds = drawn(("forest", "linear")).filter(lambda world: world.open)


def obeying():
    """Return problems with causal equations and no other constraints."""
    held = st.builds(lambda world, causal: replace(world, constraints={"causal": causal}), worlds, causal_lists())
    return held.filter(lambda world: world.open)


def empty_program(problem):
    """Return a program that has variables for all admissible tuples, and nothing else."""
    domains = domains_of(problem)
    assume(domains is not None)
    program = Program()
    return program, Variables.add(program, problem, domains)


def feasible(program, variables, row):
    """Whether a program leaves a row, all tuples of which it knows."""
    fixed = replace(program, row_lower=[*program.row_lower], row_upper=[*program.row_upper], entries=[*program.entries])
    for variable in variables.groups:
        wanted = row[list(variable.columns)]
        same = ((variable.actions == wanted) | (np.isnan(variable.actions) & np.isnan(wanted))).all(axis=1)
        assert same.sum() == 1
        chosen = Affine(variable.selectors[same], np.ones(1), 0.0, 0.0, 1.0)
        fixed.require([chosen], 1.0, 1.0)
    return solve(fixed, Effort()).status == "optimal"


def some_rows(variables, seed, count=8):
    """Return rows of admissible tuples, the row's own among them."""
    rng = np.random.default_rng(seed)
    rows = np.tile(variables.problem.x0, (count, 1))
    for variable in variables.groups:
        places = rng.integers(len(variable.actions), size=count)
        keeps = rng.random(count) < 0.5
        own = variables.problem.x0[list(variable.columns)]
        known = ((variable.actions == own) | (np.isnan(variable.actions) & np.isnan(own))).all(axis=1)
        places = np.where(keeps & known.any(), known.argmax(), places)
        rows[:, list(variable.columns)] = variable.actions[places]
    return rows


@dear(2)
@given(obeying(), st.integers(0, 99))
def test_rows_of_equations_are_equations(world, seed):
    problem = world.row_task().problem
    for rule in problem.linking:
        if isinstance(rule.then.left, Computed):
            program, variables = empty_program(problem)
            try:
                add_equation(program, variables, rule.then.left.by)
            except NotLinearError:  # such as the whole part of a sum; it is said, and nothing is proved then
                reject()
            Z = some_rows(variables, seed)
            missed = rule.then.left.by.values(Z, problem.x0)
            for row, excess in zip(Z, missed, strict=True):
                if abs(excess) > 1e-5 or excess == 0:  # a solver's tolerance tells no more
                    assert feasible(program, variables, row) == (excess <= 0)


regions = st.builds(
    Enlarged,
    st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    st.sampled_from(["l1", "l2", "linf"]),
    st.sampled_from([0.0, 0.0, 9.0]),
)


def region_of(world, enlarged, seed, clusters):
    rng = np.random.default_rng(seed)
    background = world.bound_policy.background
    embedding = Embedding.fit(world.space, background)
    points = embedding.vectors(background[rng.random(len(background)) < 0.7])
    assume(len(points))
    return Region(embedding, points, rng.integers(clusters, size=len(points)), enlarged)


def inside_of(region, Z):
    """Return (m,) whether rows lie in a region, up to rounding."""
    apart = np.array([region.apart(vector) for vector in region.embedding.vectors(Z)])
    return (apart <= region.enlarged.eps + 1e-6) | bool(region.enlarged.penalty)


@dear(2)
@given(worlds, regions, st.integers(0, 99), st.integers(1, 3))
def test_rows_of_a_region_are_the_region(world, enlarged, seed, clusters):
    problem, region = world.row_task().problem, region_of(world, enlarged, seed, clusters)
    program, variables = empty_program(problem)
    region.add(program, variables)
    Z = some_rows(variables, seed)
    for row, inside in zip(Z, inside_of(region, Z), strict=True):
        apart = region.apart(region.embedding.vectors(row[None])[0])
        if enlarged.penalty or not 1e-7 < abs(apart - enlarged.eps) < 1e-4:
            assert feasible(program, variables, row) == inside


@given(worlds, st.integers(0, 99))
def test_mixtures_of_points_are_inside(world, seed):
    region = region_of(world, Enlarged(), seed, 1)
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(len(region.points)))
    mixture = shares @ region.points
    assert region.apart(mixture) == pytest.approx(0, abs=1e-7)
    away = region.points.max(axis=0)  # above all points in one coordinate, by so much
    away[0] += 0.25
    assert region.apart(away) >= 0.25 - 1e-7
    near = replace(region, enlarged=Enlarged(norm="linf"))
    assert near.apart(away) <= region.apart(away) + 1e-7


@given(
    st.integers(1, 60),
    st.integers(0, 6),
    st.integers(0, 2),
    st.integers(0, 3),
    st.sampled_from([3, 1000]),
    st.integers(),
)
def test_corners_have_the_hull_of_all_points(count, inner, flat, levels, values, seed):
    """Numbers, some of which follow from others or stay the same, beside levels; few values make many points one."""
    rng = np.random.default_rng(abs(seed))
    numbers = rng.integers(0, values, size=(count, inner)) / values
    followed = numbers[:, :flat] @ rng.integers(-1, 2, size=(min(flat, inner), flat)) if flat else numbers[:, :0]
    points = np.hstack([numbers, followed, rng.integers(0, 2, size=(count, levels)), np.zeros((count, 1))])
    kept = corners(points)
    assert len(np.unique(kept)) == len(kept) > 0
    hull = Region(None, points[kept], np.zeros(len(kept), dtype=np.intp))
    assert all(hull.apart(point) <= 1e-7 for point in points)


def test_corners_of_a_square_with_two_levels():
    square = np.array([[x, y] for x in range(4) for y in range(4)], dtype=np.float64)
    points = np.vstack([np.column_stack([square, np.zeros(16)]), np.column_stack([square[:5], np.ones(5)])])
    assert points[corners(points)].tolist() == [
        [0, 0, 0], [0, 3, 0], [3, 0, 0], [3, 3, 0], [0, 0, 1], [0, 3, 1], [1, 0, 1]
    ]  # fmt: skip


def plain():
    """Return problems with equations whose target and distance are linear."""
    tasks = st.sampled_from(["two", "margin", "shares"])
    linear = st.builds(
        lambda world, task: replace(
            world, task=task, least=None, distance=world.distance.model_copy(update={"scale": "range"})
        ),
        obeying(),
        tasks,
    )
    return linear.filter(lambda world: world.open)


@dear(8)
@given(plain(), regions, st.integers(0, 99), st.integers(1, 2))
def test_the_nearest_of_a_region_is_found(world, enlarged, seed, clusters):
    """Under causal equations too, whatever their tables; up to what the solver tells apart."""
    region = region_of(world, replace(enlarged, penalty=0.0), seed, clusters)
    expected = Enumerated(world)
    inside = inside_of(region, expected.rows)
    nearest = expected.distance[inside].min(initial=np.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.problem.actions.MOST_COMBINATIONS", 15)
        model = Model(world.row_task().problem, families=(region,))
        low = lower_bound(replace(model, margin=-TOLERANCE), Budget(10**7), 0)
        found = minimise(model, (), Budget(10**7), 0)
    assert low.bound <= nearest + 1e-6
    if found.row is not None:
        assert found.cost >= nearest - 1e-6
        assert world.bound_policy.covering(world.space).accepts(found.row[None], world.x0)[0]
        assert inside_of(region, found.row[None])[0]
