"""Several answers against enumeration: as many as are wanted wherever there are so many, changed sets apart first."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from exact_worlds import Enumerated, drawn
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from people import CONSTRAINTS, people, wrapped

from mlflow_cf.engine import listed, thresholds
from mlflow_cf.engine.best_first import BestFirst
from mlflow_cf.engine.frontier import Frontier, Node
from mlflow_cf.explainers import GeCo
from mlflow_cf.explainers.geco import around
from mlflow_cf.explainers.geco.around import CLOSE, Around
from mlflow_cf.explainers.geco.sweeps import Sweeps
from mlflow_cf.goal import Scorer
from mlflow_cf.goal.scorer import certainly_met
from mlflow_cf.goal.targets import SumTarget, rate_sums
from mlflow_cf.problem import Budget
from mlflow_cf.proof.pipeline import Answer, Proving, search, verify_all
from mlflow_cf.structures.structure import linked

TOLERANCE = 1e-6


def opened():
    return drawn(("forest", "forest", "linear", "network")).filter(lambda world: world.open)


def answers(world):
    """Return what GeCo's candidates become, and the sets that they change; None where it is evident that none exist."""
    task = world.row_task()
    found = search(task, GeCo(last_resort=False).search, 0)
    if isinstance(found, Answer):
        return None
    (verified,) = verify_all(world.judge, world.space, [found], Proving(polish=True))
    verified = verified.verified
    return verified, task.problem.changed(verified.rows), task


@dear(2)
@given(opened(), st.integers(2, 5))
def test_there_are_as_many_as_are_wanted_wherever_there_are_so_many(world, count):
    world = replace(world, count=count)
    expected = Enumerated(world)
    wanted = expected.answers(count)
    found = answers(world)
    if found is None:
        assert not len(wanted)
        return
    verified, changed, task = found
    if not len(verified.rows):
        return
    assert len(verified.rows) == len(wanted)
    sets = [line.tobytes() for line in changed]
    distinct = len({line.tobytes() for line in expected.changed[wanted]})
    assert len(set(sets)) == len(set(sets[:distinct])) == distinct
    far = task.distance(verified.rows)
    assert all(one <= two for part in (far[:distinct], far[distinct:]) for one, two in pairwise(part))
    assert all(row.tobytes() in expected.known for row in verified.rows)


@dear(5)
@given(
    st.sampled_from(["logistic", "network", "network value", "forest", "boosting"]), st.integers(0, 2),
    st.integers(0, len(CONSTRAINTS) - 2), st.integers(0, 52), st.integers(2, 5),
)  # fmt: skip
def test_answers_without_generations_are_those_of_certificates(kind, seed, constraints, first, count):
    """Where all of one and two changes is known, and nothing that is larger may be as near, nothing else is sought."""
    explained, rows = wrapped(kind, seed, constraints), people(seed + 400, 60).iloc[first : first + 8]
    found = explained.explain(rows, count=count, why_not=False)
    certified = explained.explain(rows, count=count, certify=True, max_evaluations=400_000, why_not=False)
    for one, other in zip(found, certified, strict=True):
        proved = other.counterfactuals and all(answer.proof == "optimal" for answer in other.counterfactuals)
        if proved and not one.diagnostics["generations"]:
            far = [[answer.distance for answer in each.counterfactuals] for each in (one, other)]
            np.testing.assert_allclose(*map(sorted, far), atol=1e-9)


@dear(2)
@given(drawn(("forest",)).filter(lambda world: world.open), st.integers(1, 3), st.data())
def test_nothing_nearer_changes_the_same_groups_once_all_of_it_was_looked_at(world, count, data):
    expected = Enumerated(world)
    if not len(expected.rows):
        return
    task = replace(world, count=count).row_task()
    members = Sweeps(task.engine, task.budget, 20, 5, range(1, 3)).members
    known = expected.codes(members.problem)[data.draw(st.integers(0, len(expected.rows) - 1))]
    members.score(known[None])
    if not members.population.favourable.any():
        return
    changed = known != members.problem.own
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(around, "AT_ONCE", 20)
        patch.setattr(thresholds, "SET_UP", 0)
        if not Around(members, CLOSE).of(changed):
            return
    found = members.population.codes[members.population.favourable]
    inside = ~(expected.changed & ~changed).any(axis=1)
    nearest = expected.distance[inside].min()
    best = found[[members.problem.distance(found).argmin()]]
    if world.accepts(members.problem.rows(best))[0]:
        np.testing.assert_allclose(members.problem.distance(best), nearest, atol=1e-12)
    else:  # the structure's scores are as high as the target asks, the model's lower by less than the tolerance
        assert members.problem.distance(best) < nearest
        assert not members.scorer.decisions(members.scorer.structure.sums(members.problem.encoded(best)), CLOSE)[1]


@given(drawn(("forest",)).filter(lambda world: world.open), st.integers(2, 5), st.integers(0, 2**16))
def test_a_box_is_listed_as_its_candidates_are_one_by_one(world, count, seed):
    """Whether all rows of a box are rated together, and redundant changes found among them, changes nothing."""
    task = replace(world, count=count).row_task()
    search_of_all = BestFirst(task.engine, task.budget, np.inf, TOLERANCE)
    choices, rng = search_of_all.actions, np.random.default_rng(seed)
    if not all(np.diff(choices.start)):
        return

    fresh = world.row_task().budget

    def waiting(add, *candidates):
        search_of_all._frontier = Frontier(task.problem.own, search_of_all.redundant)
        assert add(*candidates)
        leaves = iter(lambda: search_of_all._frontier.pop(np.inf, fresh), None)
        return [(leaf.key, leaf.certain) for leaf in leaves]

    for share in (0.3, 0.6, 0.6, 0.6, 0.9, 1.0):
        box = rng.random(len(choices.code)) < share
        box[[rng.integers(start, stop) for start, stop in pairwise(choices.start)]] = True
        node = Node(np.packbits(box), len(box))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(thresholds, "SET_UP", 0)
            together = waiting(search_of_all._list, node, box)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listed.Listed, "rated", lambda *_: None)
            patch.setattr(search_of_all, "_alone", 2**20)
            one_by_one = waiting(search_of_all._list, node, box)
        assert together == one_by_one


@dear(1)
@given(opened(), st.integers(1, 3), st.integers(1, 300))
def test_nodes_count_as_evaluations(world, count, most):
    """However little the nodes of a search cost, there are no more of them than evaluations."""
    world = replace(world, count=count)
    task = world.row_task(most)
    search_of_all = BestFirst(task.engine, task.budget, np.inf, TOLERANCE)
    steps = 0
    for name in ("_part", "_list"):
        step = getattr(search_of_all, name)

        def counted(node, mask, step=step):
            nonlocal steps
            steps += 1
            return step(node, mask)

        setattr(search_of_all, name, counted)
    leaves = sum(1 for _ in iter(search_of_all.next, None))
    assert task.budget.used <= most
    assert steps + leaves <= 2 * task.budget.used + 1


@given(
    st.sampled_from(["softmax", "sigmoid", "identity"]), st.integers(2, 4), st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.4, 0.7]), st.sampled_from(["label", "other"]),
)  # fmt: skip
def test_what_surely_meets_a_target_does_wherever_it_is_between_its_bounds(link, classes, seed, least, kind):
    rng = np.random.default_rng(seed)
    target = SumTarget(link, 0, classes, classes, kind, 0, least, -np.inf, np.inf, 1.0, False)
    middle = rng.normal(0, 2, (40, classes)) if link != "identity" else rng.dirichlet(np.ones(classes), 40)
    width = rng.random((40, 1)) * (0.1 if link == "identity" else 1.0)
    low, high = middle - width, middle + width
    sure = certainly_met(low, high, [target], 1e-3)
    for _ in range(20):
        favourable, _, margin = rate_sums(low + rng.random(low.shape) * (high - low), [target])
        assert favourable[sure].all()
        if kind == "label":
            assert (margin[sure & (least == 0)] >= 0).all()


@given(
    st.sampled_from(["softmax", "sigmoid", "identity"]), st.integers(1, 4), st.integers(0, 2**32 - 1),
    st.sampled_from(["label", "other"]), st.sampled_from([1.0, 10.0, 100.0]),
)  # fmt: skip
def test_verdicts_hold_whatever_the_scores_are_off_by(link, outputs, seed, kind, spread):
    """Sums of one class against the rest may be far apart and have equal shares: both are 1."""
    rng = np.random.default_rng(seed)
    classes, doubt = max(outputs, 2), 4e-6
    if link != "sigmoid" and outputs == 1:
        return
    target = SumTarget(link, 0, outputs, classes, kind, int(rng.integers(classes)), 0.0, -np.inf, np.inf, 1.0, False)
    sums = rng.normal(0, spread, (200, outputs)).round(rng.integers(0, 6))
    scorer = Scorer(None, None, (target,))
    may, sure = scorer.decisions(sums, doubt)
    assert (may | ~sure).all()
    scores = linked(sums, link)
    unit = np.maximum(1.0, np.abs(scores).max(axis=1, keepdims=True))
    for _ in range(10):
        label = (scores + rng.uniform(-0.5, 0.5, scores.shape) * doubt * unit).argmax(axis=1)
        favourable = (label == target.column) == (kind == "label")
        assert may[favourable].all()
        assert favourable[sure].all()


@given(drawn(("forest",)).filter(lambda world: world.open), st.integers(1, 3))
def test_no_other_values_of_the_best_changed_set_are_nearer(world, count):
    world = replace(world, count=count)
    found = answers(world)
    if found is None or not len(found[0].rows):
        return
    verified, changed, task = found
    expected = Enumerated(world)
    inside = (expected.changed <= changed[0]).all(axis=1)
    if changed[0].sum() >= 3:
        assert task.distance(verified.rows)[0] <= expected.distance[inside].min() + 1e-9


@dear(2)
@given(opened(), st.integers(1, 4), st.sampled_from([(1, 1, 1, 0), (4, 64, 2, 16), (2**20, 256, 8, 64)]))
def test_pairs_are_the_same_however_few_are_looked_at_together(world, count, at_once):
    few, other = (replace(world, count=count).row_task().engine.few for _ in range(2))
    if few is None or other is None or not few.tells_pairs:
        return
    every = few.pairs(np.inf, CLOSE, Budget(10**9))
    assert every is not None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(("VALUES_AT_ONCE", "CELLS_AT_ONCE", "LISTED_AT_ONCE"), at_once[:3], strict=True):
            patch.setattr(thresholds, name, value)
        patch.setattr(thresholds, "PAIRED_FIRST", at_once[3])
        some = other.pairs(np.inf, CLOSE, Budget(10**9))
    # the table of one pair of columns may have more numbers than are made at once, but not more than 256
    assert some is None or sorted(map(tuple, some.tolist())) == sorted(map(tuple, every.tolist()))
    assert some is not None or at_once[1] < 256
