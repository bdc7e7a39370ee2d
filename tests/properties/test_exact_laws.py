"""Exact search against enumeration: nearest answers, honest proofs, whatever it is started with."""

from dataclasses import replace
from itertools import count, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from exact_worlds import TOLERANCE, Drawn, Enumerated, drawn
from hypothesis import example, given
from hypothesis import strategies as st
from laws import dear

from mlflow_cf.engine.best_first import BestFirst
from mlflow_cf.engine.engine import Engine
from mlflow_cf.engine.frontier import CandidateSet
from mlflow_cf.engine.nearest import Sought
from mlflow_cf.policy import Distance
from mlflow_cf.policy.limits import Variety
from mlflow_cf.proof import certify

OPENED = ("forest", "forest", "linear", "network")
WORLD = Drawn(
    seed=0, grid=False, constraints={}, distance=Distance(0.5, 0.5, 0), count=1,
    query={"age": 20, "income": 0.0, "grade": "low", "job": "a", "member": False, "rooms": 1},
    model="forest", task="value", goal="third", quantile=0.5, least=None,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def small_limits():
    """Boxes are parted and rules left untabulated in small problems, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.engine.thresholds.MOST_LISTED", 6)
        patch.setattr("mlflow_cf.engine.thresholds.MOST_ALONE", 6)
        patch.setattr("mlflow_cf.engine.thresholds.SET_UP", 0)
        patch.setattr("mlflow_cf.engine.thresholds.LONG_SEARCH", 1)
        patch.setattr("mlflow_cf.engine.thresholds.TELLING", 0.0)
        patch.setattr("mlflow_cf.problem.actions.MOST_COMBINATIONS", 15)
        yield


def opened(models=OPENED):
    return drawn(models).filter(lambda world: world.open)


def is_exact(found, expected, answers):
    np.testing.assert_array_equal(found.rows, expected.rows[answers])
    assert found.proofs == ("optimal",) * len(answers)
    assert list(found.bounds) == expected.distance[answers].tolist()
    assert found.exhausted
    assert found.note is None


def some_rows(world, expected, share):
    """Return counterfactuals that another explainer might have found."""
    chosen = np.random.default_rng(world.seed).random(len(expected.rows)) < share
    return expected.rows[chosen]


@dear(2)
@given(opened())
def test_answers_are_those_of_enumeration(world):
    expected = Enumerated(world)
    answers = expected.answers(world.count)
    found = world.certified(world.row_task())
    is_exact(found, expected, answers)
    if len(answers):
        np.testing.assert_array_equal(world.proved(world.row_task(), found.rows, polish=True).rows, found.rows)


LINEAR = replace(WORLD, model="linear", task="two", goal="label")
NETWORK, TREES = replace(LINEAR, model="network"), replace(LINEAR, model="forest")


@dear(3)
@given(opened(), st.sampled_from([1.0, 1.5, np.inf]))
@example(LINEAR, np.inf)
@example(NETWORK, 1.5)
@example(TREES, 1.5)
def test_what_a_search_finds_soon_has_the_answer_of_enumeration(world, farther):
    """Nothing else is left to be proved then. But for linear models, an answer is known before, however far it is."""
    world = replace(world, count=1)
    expected, task = Enumerated(world), world.row_task()
    problem, answers = task.engine.problem, expected.answers(1)
    limit = min([np.inf, *(farther * expected.distance[answers])])
    sought = Sought(limit, 100 * TOLERANCE, 1 if limit < np.inf else 0)
    known = task.engine.nearest(sought, task.budget, 2)
    if known is None:
        assert (world, farther) not in ((LINEAR, np.inf), (NETWORK, 1.5), (TREES, 1.5))
        return
    rows = problem.rows(known.codes)
    assert problem.check(rows).all()
    assert task.distance(rows[world.accepts(rows)]).min() == expected.distance[answers[0]]
    is_exact(world.certified(task, world.proved(task, rows, polish=True)), expected, answers)


def test_what_changes_cost_but_for_the_largest_limits_no_distance():
    """All costs together are less than the nearest answer's distance, of which the largest change is the most."""
    world = replace(
        WORLD, seed=930, distance=Distance(0.2, 0.3, 0.5), query={**WORLD.query, "income": 9.5},
        model="linear", task="two", goal="label", quantile=1.0,
    )  # fmt: skip
    expected = Enumerated(world)
    assert expected.distance[0] == pytest.approx(1.74)
    is_exact(world.certified(world.row_task()), expected, expected.answers(1))


@dear(2)
@given(opened(), st.sampled_from([0.2, 0.4, 0.8]), st.sampled_from([0.0, 0.2, 1.0]))
def test_near_copies_are_no_answers(world, least, share):
    """Whatever was known before: answers stand for all that is near them."""
    world, expected = replace(world, count=4), Enumerated(world)
    task = varied(world.row_task(), Variety("sets", least))
    known = world.proved(task, some_rows(world, expected, share), polish=True)
    is_exact(world.certified(task, known), expected, expected.answers(4, least))


@dear(2)
@given(opened(), st.sampled_from([0.0, 0.05, 0.2, 0.8]), st.sampled_from([0.0, 0.2, 1.0]), st.integers(2, 5))
def test_the_nearest_that_differ_by_so_much_are_those_of_enumeration(world, least, share, many):
    """Whatever was known before, and whatever they change."""
    world, expected = replace(world, count=many), Enumerated(world)
    task = varied(world.row_task(), Variety("near", least))
    known = world.proved(task, some_rows(world, expected, share), polish=True)
    is_exact(world.certified(task, known), expected, expected.nearest(many, least))


def varied(task, variety):
    """Return a case whose answers differ as `variety` says."""
    return replace(task, engine=Engine(replace(task.problem, variety=variety)))


shares = st.sampled_from([0.02, 0.2, 1.0])


@dear(2)
@given(opened(), shares, st.booleans(), st.booleans())
def test_answers_do_not_depend_on_what_was_known(world, share, polish, shifted):
    """Nor on half of the tolerance between the structure and the judge."""
    expected = Enumerated(world)
    task = world.row_task(structure=world.shifted if shifted else None)
    known = world.proved(task, some_rows(world, expected, share), polish=polish)
    is_exact(world.certified(task, known), expected, expected.answers(world.count))


@dear(2)
@given(opened(("forest", "forest", "linear")), shares)
def test_what_sweeps_and_pairs_prove_is_what_boxes_prove(world, share):
    known = world.proved(world.row_task(), some_rows(world, Enumerated(world), share), polish=True)
    swept = world.certified(world.row_task(), known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "few", None)
        bounded = world.certified(world.row_task(), known)
    np.testing.assert_array_equal(swept.rows, bounded.rows)
    assert (swept.proofs, swept.bounds, swept.exhausted) == (bounded.proofs, bounded.bounds, bounded.exhausted)


@dear(2)
@given(opened(), st.integers(1, 5), st.sampled_from([0.0, 0.2, 1.0]))
def test_a_structure_that_lies_proves_nothing_wrong(world, other, share):
    """What it wrongly believes in is refused by the judge; what it wrongly refuses is noticed where it is known."""
    expected = Enumerated(world)
    liar = replace(world, seed=world.seed + other)._structure(world.shift)
    task = world.row_task(structure=liar)
    answers = expected.answers(world.count)
    best = world.certified(task, world.proved(task, expected.rows[answers], polish=True))
    if best.note:
        np.testing.assert_array_equal(best.rows, expected.rows[answers])
        assert best.proofs == ()
    else:
        is_exact(best, expected, answers)
    known = world.proved(task, some_rows(world, expected, share), polish=True)
    found = world.certified(task, known)
    assert all(row.tobytes() in expected.known for row in found.rows)
    if BestFirst(task.engine, task.budget, np.inf, TOLERANCE).misses(known.rows).any():
        assert found.note.cause == "disagree"
        assert found.proofs == ()


def is_honest(world, found, expected):
    """Check every claim about answers that a budget cut short."""
    sets = [changed.tobytes() for changed in world.row_task().problem.changed(found.rows)]
    firsts = [key not in sets[:at] for at, key in enumerate(sets)]
    assert firsts == sorted(firsts, reverse=True)  # repetitions come last
    known = [row.tobytes() for row in found.rows]
    minimal = [at for at in range(len(expected.rows)) if expected.minimal(at)]
    for at, (proof, bound) in enumerate(zip(found.proofs, found.bounds, strict=True)):
        if proof == "none":
            assert bound is None
            continue
        if firsts[at]:
            others = [other for other in minimal if expected.changed[other].tobytes() not in sets[:at]]
        else:
            others = [other for other in minimal if expected.rows[other].tobytes() not in known[:at]]
        assert bound <= world.row_task().distance(found.rows)[at]
        assert all(bound <= expected.distance[other] for other in others[:1])
        if proof == "optimal":
            assert bound == expected.distance[others[0]]
            # of those that are as near, a search that was cut short may not have seen the first
            assert known[at] == expected.rows[others[0]].tobytes() or not found.exhausted
        else:
            assert not found.exhausted
    if not len(found.rows) and found.exhausted:
        assert not len(expected.rows)


@dear(2)
@given(opened(), st.sampled_from([0.0, 0.02, 0.2, 1.0]), st.booleans(), st.integers(0, 99))
def test_a_small_budget_is_kept_and_proves_less(world, share, polish, percent):
    expected, enough = Enumerated(world), world.row_task()
    known = world.proved(enough, some_rows(world, expected, share), polish=polish)
    world.certified(enough, known)
    task = world.row_task(evaluations=enough.budget.used * percent // 100)
    found, asked = world.asked(task, known)
    assert asked <= task.budget.used <= enough.budget.used * percent // 100
    assert not found.exhausted or not enough.budget.used
    is_honest(world, found, expected)


@given(opened(), shares, st.integers(0, 100))
def test_nothing_is_asked_when_time_is_up(world, share, ticks):
    check_the_clock(world, share, ticks)


def test_nothing_is_asked_when_time_is_up_between_granting_and_asking():
    """A row was granted, then the clock was read again for rows ahead, and the row was asked late."""
    check_the_clock(WORLD, 0.02, 48)


def check_the_clock(world, share, ticks):
    expected = Enumerated(world)
    task = world.row_task()
    known = world.proved(task, some_rows(world, expected, share), polish=True)
    clock = count()
    now = [0]

    def tick():
        now[0] = next(clock)
        return now[0]

    def ask():
        assert now[0] < ticks

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.problem.budget.time", SimpleNamespace(perf_counter=tick))
        task.budget.start(ticks, ticks)
        found, _ = world.asked(task, known, ask)
    is_honest(world, found, expected)


class Watched(BestFirst):
    """A search that checks after every step that no counterfactual is lost, and that none is nearer than its box."""

    expected: Enumerated

    def __init__(self, engine, budget, limit, tolerance, sets=None, known=None):
        super().__init__(engine, budget, limit, tolerance, sets, known)
        codes = self.expected.codes(self.problem)
        listed = [set(self.actions.code[a:b].tolist()) for a, b in pairwise(self.actions.start)]
        wanted = [all(code in some for code, some in zip(line, listed, strict=True)) for line in codes.tolist()]
        if sets is not None:
            asked = [any((changed == some).all() for some in sets) for changed in self.expected.changed]
            wanted = [one and other for one, other in zip(wanted, asked, strict=True)]
        self.places = {line.tobytes(): at for at, line in enumerate(codes)}
        keys = zip(self.expected.distance.tolist(), self.expected.changed.sum(axis=1).tolist(), codes, strict=True)
        self.wanted = [
            ((distance, changes, tuple(line.tolist())), line)
            for (distance, changes, line), here in zip(keys, wanted, strict=True)
            if here and distance <= limit and self._counts(line)
        ]
        self._check(self.wanted, list(self._frontier))

    def _counts(self, line):
        """Whether a counterfactual must come, for it may be an answer.

        No answer has a needless change; a single one of two changes is the nearest of these.
        """
        at, far, changed = self.places[line.tobytes()], self.expected.distance, self.expected.changed
        if not self.expected.minimal(at):
            return False
        first = changed[at].sum() != 2 or not (changed[far < far[at]].sum(axis=1) == 2).any()
        return self.problem.count > 1 or first

    def _look_into(self, box):
        before = {id(entry) for _, entry in self._frontier}
        done = super()._look_into(box)
        if done:
            # what changes fewer groups than boxes answer for waits as a leaf since the start
            mine = [(key, line) for key, line in self.wanted if key[1] >= self.within.least]
            inside = [(key, line) for key, line in mine if self._inside(box.mask, line)]
            self._check(inside, [(low, entry) for low, entry in self._frontier if id(entry) not in before])
        return done

    def _holds(self, entry, line):
        if isinstance(entry, CandidateSet):
            return (entry.codes == line).all(axis=1).any()
        return self._inside(entry.mask, line)

    def _inside(self, mask, line):
        parts = enumerate(pairwise(self.actions.start))
        return all(mask[a:b][self.actions.code[a:b] == line[number]].any() for number, (a, b) in parts)

    def _check(self, wanted, entries):
        for key, line in wanted:
            if (line != self.problem.own).tobytes() not in self.closed:
                assert any(low <= key and self._holds(entry, line) for low, entry in entries)


@dear(3)
@given(opened())
def test_no_counterfactual_is_lost(world):
    watched = type("WatchedHere", (Watched,), {"expected": Enumerated(world)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify, "BestFirst", watched)
        world.certified(world.row_task())


@dear(3)
@given(opened((*OPENED, "none", "none")), st.floats(0, 1))
def test_candidates_come_in_the_order_of_their_keys(world, part):
    expected = Enumerated(world)
    limit = np.inf if part > 0.7 or not len(expected.rows) else expected.distance[int(part * len(expected.rows))]
    task = world.row_task()
    search = type("WatchedHere", (Watched,), {"expected": expected})(task.engine, task.budget, limit, TOLERANCE)
    leaves = list(iter(search.next, None))
    assert all(one.key < two.key for one, two in pairwise(leaves))
    met = {row.tobytes() for row in expected.rows}
    rows = [task.problem.rows(leaf.codes[None])[0] for leaf in leaves]
    accepted = [leaf.key for leaf, row in zip(leaves, rows, strict=True) if row.tobytes() in met]
    wanted = [key for key, _ in search.wanted]
    assert [key for key in accepted if key in wanted] == wanted
    assert not search.cut
