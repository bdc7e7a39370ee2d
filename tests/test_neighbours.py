"""Neighbourhoods against brute force: every change of a single group, tried one by one."""

from typing import Any

import numpy as np
import pytest
from forest_worlds import DISTANCES, RULES, forest_model, opened_problem
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from laws import dear
from worlds import background, constraint_dicts, explained, stepped, table, wide_rows

from mlflow_cf.engine.engine import Engine
from mlflow_cf.errors import InputError
from mlflow_cf.explainers.geco import neighbours as picking
from mlflow_cf.explainers.geco.neighbours import Neighbours, RatedNeighbours
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.targets import SumTarget
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.problem.points import with_points
from mlflow_cf.search.cascade import Cascade
from mlflow_cf.search.population import Keys

PLENTY = 10**7
seeds = st.integers(0, 2**20)
rules = st.lists(st.sampled_from(RULES), unique=True, max_size=3)


class Found:
    """Neighbours as rows (n, G); what is in doubt is rated as its row is."""

    def __init__(self, problem: Problem, near: RatedNeighbours) -> None:
        self.codes = near.codes(np.arange(len(near.distance)))
        self.distance, self.shortfall = near.distance, near.shortfall
        self.favourable = near.verdict > 0
        doubtful = near.verdict < 0
        if doubtful.any():
            self.favourable[doubtful] = problem.rate_codes(self.codes[doubtful]).favourable

    def __len__(self) -> int:
        return len(self.codes)


class World:
    """A random problem, its neighbourhoods, and some candidates that meet its constraints."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self.cascade = Cascade(problem)
        rng = np.random.default_rng(seed)
        drawn = np.column_stack([rng.integers(len(group.actions), size=12) for group in problem.groups])
        drawn = np.where(rng.random(drawn.shape) < 0.6, problem.own, drawn)
        drawn = self.cascade.repair(np.concatenate([problem.own[None, :], drawn]))
        if all(group.own_allowed for group in problem.groups) and self.lawful(problem.own[None, :], least=0)[0]:
            drawn = np.concatenate([problem.own[None, :], drawn])
        self.parents: Codes = np.unique(drawn, axis=0)[:5]

    def lawful(self, codes: Codes, least: int = 1) -> Any:
        """Return which candidates (m, G) meet every rule and change no more groups than may be, and not too few."""
        problem, changes = self.problem, (codes != self.problem.own).sum(axis=1)
        Z = problem.rows(codes)
        met = (changes >= least) & (changes <= problem.most_changes)
        for rule in (*problem.linking, *(rule for group in problem.groups for rule in group.rules)):
            met &= rule.holds(Z, problem.x0)
        return met

    def neighbourhoods(self) -> Neighbours:
        assert self.problem.scorer is not None
        return Neighbours(Engine(self.problem), self.problem.scorer, self.cascade, Keys(self.problem))

    def of(self, parents: Codes, cutoff: float, budget: Budget | None = None) -> tuple[Found, Codes]:
        near, others = self.neighbourhoods().of(parents, cutoff, budget or Budget(PLENTY))
        return Found(self.problem, near), others

    def shortfalls(self, codes: Codes) -> Any:
        """Return what candidates (m, G) lack to be favourable, by the sums of their rows."""
        assert self.problem.scorer is not None
        return self.problem.scorer.measures(self.problem.encoded(codes))[2]

    def children(self, parent: Codes, number: int) -> Codes:
        """Return every candidate that differs from `parent` in this group alone; own tuples come back if allowed."""
        group = self.problem.groups[number]
        codes = np.delete(np.arange(len(group.actions)), [parent[number]])
        codes = codes[group.own_allowed | (codes != group.own)]
        children = np.tile(parent, (len(codes), 1))
        children[:, number] = codes
        return children

    def lone(self, number: int) -> bool:
        return len(self.problem.groups[number].columns) == 1

    def moved(self, parent: Codes, found: Codes, number: int) -> Any:
        """Return which of `found` differ from `parent` in this group alone."""
        return np.array([np.flatnonzero(row != parent).tolist() == [number] for row in found], dtype=bool)


def distances(problem: Problem, codes: Codes) -> Any:
    """Return distances by the metric, from whole rows."""
    return problem.bound_distance.distance(problem.columns, problem.rows(codes), problem.x0)


@st.composite
def worlds(draw: Any, values: str = "observed") -> World:
    seed = draw(seeds)
    frame = background(seed) if values == "observed" else stepped(seed)
    constraints = {**draw(constraint_dicts), "rules": draw(rules)}
    distance, query = draw(st.sampled_from(DISTANCES)), table([draw(wide_rows)], frame)
    try:
        wrapped = explained(forest_model(seed, frame), frame, constraints, distance=distance, values=values)
    except InputError:
        reject()  # groups whose rules depend on each other in a circle
    problem, _ = with_points(opened_problem(wrapped, query))
    world = World(problem, seed)
    assume(len(world.parents) and not problem.rate_codes(problem.own[None, :]).favourable[0])
    return world


def cutoff_of(world: World, share: float) -> float:
    """Return a cutoff that leaves about so much of the neighbours of the parents."""
    if share == 1:
        return np.inf
    groups = range(len(world.problem.groups))
    far = np.concatenate([distances(world.problem, world.children(p, n)) for p in world.parents for n in groups])
    return float(np.quantile(far, share)) if len(far) else np.inf


shares = st.sampled_from([1, 1, 0.3, 0.7])


@dear(2)
@given(worlds(), shares)
def test_every_neighbour_is_lawful_nearer_than_the_bar_and_rated_as_a_row(world: World, share: float) -> None:
    problem, cutoff = world.problem, cutoff_of(world, share)
    found, others = world.of(world.parents, cutoff)
    if len(found):
        assert found.favourable.tolist() == problem.rate_codes(found.codes).favourable.tolist()
        np.testing.assert_allclose(found.shortfall, world.shortfalls(found.codes), rtol=0, atol=1e-5)
        far = distances(problem, found.codes)
        assert (far < cutoff + 1e-12).all()
        np.testing.assert_allclose(found.distance, far, rtol=1e-12)
    assert world.lawful(found.codes).all()
    assert world.lawful(others).all()
    for row in found.codes:
        moves = [np.flatnonzero(row != parent) for parent in world.parents]
        assert any(len(moved) == 1 and world.lone(moved[0]) for moved in moves)


@given(worlds())
def test_neighbours_of_candidates_that_break_a_rule_are_lawful_too(world: World) -> None:
    _, undone = world.problem.undone_codes(world.parents)
    found, others = world.of(np.concatenate([undone, world.parents]), np.inf)
    assert world.lawful(found.codes).all()
    assert world.lawful(others).all()


@dear(2)
@given(worlds(), shares)
def test_the_nearest_favourable_neighbour_of_every_group_is_found(world: World, share: float) -> None:
    check_nearest(world, share)


@dear(8)
@given(worlds("continuous"), shares)
def test_the_nearest_favourable_number_of_an_interval_is_found(world: World, share: float) -> None:
    check_nearest(world, share)


def check_nearest(world: World, share: float) -> None:
    problem, cutoff = world.problem, cutoff_of(world, share)
    for parent in world.parents:
        found, others = world.of(parent[None, :], cutoff)
        for number in range(len(problem.groups)):
            children = world.children(parent, number)
            children = children[world.lawful(children) & (distances(problem, children) < cutoff)]
            if not len(children):
                continue
            if not world.lone(number):  # left to be scored one by one
                assert {tuple(child) for child in children.tolist()} <= {tuple(row) for row in others.tolist()}
                continue
            check_group(world, parent, children, found, world.moved(parent, found.codes, number))


def check_group(world: World, parent: Codes, children: Codes, found: Found, mine: Any) -> None:
    """Compare the neighbours found that are of one group with all its lawful children nearer than the cutoff."""
    problem = world.problem
    rating, far = problem.rate_codes(children), distances(problem, children)
    nearest = far[rating.favourable].min(initial=np.inf)
    near = distances(problem, found.codes[mine]) if mine.any() else np.empty(0)
    # a tuple that the model cannot tell from the candidate's own one, or from that of the row, is no news
    known = np.array([parent, problem.own])[: 1 + ((parent != problem.own).sum() == 1)]
    if nearest < np.inf and not (
        problem.rate_codes(known).favourable[0] and distances(problem, parent[None, :])[0] <= nearest
    ):
        assert near[found.favourable[mine]].min(initial=np.inf) <= nearest + 1e-12
    before = world.shortfalls(children[far < nearest])
    if len(before):
        reached = found.shortfall[mine][near < nearest + 1e-12].min(initial=np.inf)
        assert min(reached, world.shortfalls(known).min()) <= before.min() + 1e-5


@dear(2)
@given(worlds(), shares)
def test_what_breaks_a_rule_over_groups_is_repaired(world: World, share: float) -> None:
    problem, cutoff = world.problem, cutoff_of(world, share)
    _, others = world.of(world.parents, cutoff)
    expected: set[tuple[int, ...]] = set()
    needed: set[tuple[int, ...]] = set()
    for parent in world.parents:
        for number in range(len(problem.groups)):
            children = world.children(parent, number)
            held = np.ones(len(children), dtype=bool)
            for joint in world.cascade.joint_rules:
                held &= joint.holds(children)
            if world.lone(number):
                children = children[~held]
            changes = (children != problem.own).sum(axis=1)
            near = (distances(problem, children) < cutoff) & (changes <= problem.most_changes)
            expected.update(map(tuple, world.cascade.repair(children).tolist()))
            needed.update(map(tuple, world.cascade.repair(children[near]).tolist()))
    found = set(map(tuple, others.tolist()))
    assert found <= expected
    assert needed <= found | set(map(tuple, world.parents.tolist()))


@dear(2)
@given(worlds())
def test_nothing_comes_twice(world: World) -> None:
    neighbours = world.neighbourhoods()
    changes: set[tuple[int, ...]] = set()
    for parent in world.parents:
        found = Found(world.problem, neighbours.of(parent[None, :], np.inf, Budget(PLENTY))[0])
        rows = [tuple(row) for row in found.codes.tolist()]
        assert len(set(rows)) == len(rows)
        moves = [(int(np.flatnonzero(row != parent)[0]), *row) for row in found.codes]
        assert changes.isdisjoint(moves)
        changes.update(moves)
    budget = Budget(PLENTY)
    near, others = neighbours.of(world.parents, np.inf, budget)
    assert (len(near.distance), len(others), budget.used) == (0, 0, 0)


@dear(2)
@given(worlds(), st.integers(0, 60))
def test_the_budget_counts_what_is_swept(world: World, most: int) -> None:
    problem = world.problem
    for parent in world.parents:
        whole, cut = Budget(PLENTY), Budget(most)
        neighbours = world.neighbourhoods()
        sizes = sum(neighbours.sizes[n] for n in range(len(problem.groups)) if world.lone(n))
        found, others = world.of(parent[None, :], np.inf, whole)
        assert len(found) <= whole.used <= sizes
        again, _ = world.of(parent[None, :], np.inf, cut)
        assert cut.used <= most
        assert len(again) in {0, len(found)}
        if most >= whole.used:
            assert (len(again), cut.used, cut.cut) == (len(found), whole.used, "")
        else:
            assert (len(again), cut.cut) == (0, "evaluations")
        del others


def test_a_spent_budget_sweeps_nothing() -> None:
    frame = background(0)
    wrapped = explained(forest_model(0, frame), frame)
    world = World(opened_problem(wrapped, frame.iloc[[2]]), 0)
    found, others = world.of(world.parents, np.inf, Budget(0))
    assert (len(found), len(others)) == (0, 0)
    late = Budget(PLENTY)
    late.start(0.0, None)
    found, others = world.of(world.parents, np.inf, late)
    assert (len(found), len(others), late.cut) == (0, 0, "clock")


def test_a_rule_over_groups_that_have_no_choice() -> None:
    frame = background(0)
    constraints = {"immutable": ["age", "rooms"], "rules": ["x_cf.age + x_cf.rooms <= 26"]}
    made = explained(forest_model(0, frame, trees=8, depth=5), frame, constraints)
    rows = frame[made.model.decide(frame) == "no"]
    cascade = Cascade(opened_problem(made, rows.iloc[:1]))
    assert cascade.joint_rules[0].groups == ()
    assert cascade.joint_rules[0].holds(np.tile(cascade.problem.own, (3, 1))).tolist() == [True] * 3
    found = made.explain(rows)
    assert "invalid" not in {one.status for one in found}
    assert "found" in {one.status for one in found}


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_what_is_in_doubt_grows_with_the_sums(scale: float) -> None:
    """Sums of a sweep are rounded by a share of their size: far inside is nothing to be sure of next to large ones."""
    target = SumTarget("identity", 0, 1, 1, "interval", -1, 0.0, scale, np.inf, 100.0 * min(scale, 1e4) / 1e4, False)
    gaps = scale * np.array([-1e-3, -2e-6, 2e-6, 1e-3])
    unasked: Any = None
    rated = picking._rated((scale + gaps).reshape(1, 4, 1), Scorer(unasked, unasked, (target,)))
    assert rated.verdict.tolist() == [[0, -1, -1, 1]]
