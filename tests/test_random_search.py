"""Random search: what a round does, when it stops, what the budget sees."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
from worlds import background, explained, lottery

from mlflow_cf import GeCo, InputError, RandomSearch
from mlflow_cf.constraints import Constraints
from mlflow_cf.explainers.registry import explainer_of, explainer_to_dict
from mlflow_cf.features import FeatureSpace
from mlflow_cf.goal import Rating
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy, Budget, Problem

# a: 9 of 10 rows hold 0, so that drawing by frequency would show
DATA = pd.DataFrame(
    {"a": [0] * 18 + [1, 2], "b": [0, 1, 2, 3] * 5, "c": [0, 1] * 10, "d": [0.0, 0.5, 2.0, 10.0, 3.5] * 4}
)


@dataclass
class Watched:
    """Rates rows by a function of their codes and keeps what it was shown."""

    favourable: Callable[[np.ndarray], np.ndarray]
    seen: list[np.ndarray] = field(default_factory=list)

    def __call__(self, Z):
        self.seen.append(Z.copy())
        flags = self.favourable(Z)
        return Rating(flags, flags.astype(float))


def problem_of(favourable, count=1, constraints=None, values="observed", row=(0, 0, 0, 0.0)) -> Problem:
    space = FeatureSpace.infer(DATA)
    bound_policy = BoundPolicy.build(space, space.encode(DATA), Constraints.read(constraints), Distance(), values)
    x0 = np.array(row, dtype=float)
    return bound_policy.bind(x0, space=space, count=count, rate=Watched(favourable), rate_background=lambda: None)


def search(problem, explainer=None, most=100_000, seed=0):
    return (explainer or RandomSearch()).search(problem, Budget(most), np.random.default_rng(seed))


def nothing(Z):
    return np.zeros(len(Z), dtype=bool)


def everything(Z):
    return np.ones(len(Z), dtype=bool)


def changes(problem, Z):
    return problem.changed(Z).sum(axis=1)


def test_a_round_redraws_one_more_group():
    problem = problem_of(nothing)
    found = search(problem)
    assert found.diagnostics == {"rounds": 4, "favourable": 0}
    assert found.rows.shape == (0, 4)
    most = [changes(problem, Z).max() for Z in problem.rate.seen]
    assert most == [1, 2, 3, 4]
    # the first round meets every single change: 2 + 3 + 1 + 4, each scored once
    assert len(problem.rate.seen[0]) == 10
    everywhere = np.concatenate(problem.rate.seen)
    assert len(np.unique(everywhere, axis=0)) == len(everywhere)


def test_values_are_drawn_evenly_not_by_frequency():
    counts = np.zeros(3)
    for seed in range(300):
        problem = problem_of(nothing, row=(1, 0, 0, 0.0))
        search(problem, RandomSearch(copies=1), seed=seed)
        first = problem.rate.seen[0][0]
        counts[int(first[0])] += first[0] != 1
    assert counts[1] == 0
    assert counts[0] == pytest.approx(counts[2], rel=0.5)  # 18 rows of the background hold 0, one holds 2


def test_it_stops_after_two_rounds_when_enough_are_favourable():
    problem = problem_of(everything, count=3)
    found = search(problem)
    assert found.diagnostics["rounds"] == 2
    assert set(changes(problem, found.rows)) == {1, 2}
    distance = problem.bound_distance.distance(problem.columns, found.rows, problem.x0)
    assert (np.diff(distance) >= 0).all()


def test_it_goes_on_until_enough_are_favourable():
    problem = problem_of(lambda Z: (Z[:, :3] > 0).all(axis=1), count=2)
    found = search(problem)
    assert found.diagnostics["rounds"] == 3
    assert (found.rows[:, :3] > 0).all()
    assert len(found.rows) >= 2


def test_the_best_single_change_is_found():
    problem = problem_of(lambda Z: Z[:, 3] >= 3)
    assert search(problem).rows[0].tolist() == [0, 0, 0, 3.5]


@pytest.mark.parametrize("most", [0, 1, 9, 10, 11, 200])
def test_the_budget_is_asked_before_every_batch(most):
    problem = problem_of(nothing)
    budget = Budget(most)
    RandomSearch().search(problem, budget, np.random.default_rng(0))
    assert sum(map(len, problem.rate.seen)) == budget.used <= most
    # there are 3 * 4 * 2 * 5 - 1 rows to try
    assert budget.cut == ("evaluations" if most < 119 else "")


def test_a_late_clock_stops_it():
    problem = problem_of(nothing)
    budget = Budget(1000)
    budget.start(until=0.0, deadline=0.0)
    assert len(RandomSearch().search(problem, budget, np.random.default_rng(0)).rows) == 0
    assert not problem.rate.seen
    assert budget.cut == "clock"


def test_same_generator_same_rows():
    rows = [search(problem_of(lambda Z: Z.sum(axis=1) > 5, count=5), seed=seed).rows for seed in (1, 1, 2)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert rows[1].shape != rows[2].shape or (rows[1] != rows[2]).any()


def test_immutable_groups_and_what_rules_reject_are_never_scored():
    constraints = {"immutable": ["a"], "increasing": ["d"], "ranges": {"b": [0, 2]}, "max_changes": 2}
    problem = problem_of(nothing, constraints=constraints, row=(0, 0, 0, 0.5))
    found = search(problem)
    assert found.diagnostics["rounds"] == 3
    Z = np.concatenate(problem.rate.seen)
    assert problem.check(Z).all()
    assert (Z[:, 0] == 0).all()
    assert Z[:, 1].max() == 2
    assert Z[:, 3].min() == 0.5


def test_groups_stay_whole():
    problem = problem_of(nothing, constraints={"groups": [["b", "c"]]})
    search(problem)
    known = set(zip(DATA["b"], DATA["c"], strict=True))
    assert {(b, c) for Z in problem.rate.seen for _, b, c, _ in Z.tolist()} <= known


def test_rules_are_repaired():
    problem = problem_of(nothing, constraints={"rules": ["IF x_cf.a > x.a THEN x_cf.b >= 2"]})
    search(problem)
    first = problem.rate.seen[0]
    assert problem.check(np.concatenate(problem.rate.seen)).all()
    assert ((first[:, 0] > 0) & (first[:, 1] >= 2)).any()
    assert not ((first[:, 0] > 0) & (first[:, 1] < 2)).any()


def test_what_a_rule_rejects_now_may_be_mended_by_the_next_round():
    together = {"rules": ["x_cf.a + x_cf.b != 1", "x_cf.a + x_cf.b != 2", "x_cf.c + x_cf.b != 3"]}
    problem = problem_of(lambda Z: (Z[:, 0] == 1) & (Z[:, 1] == 2), constraints=together)
    found = search(problem)
    assert problem.check(found.rows).all()
    assert (found.rows[:, :2] == [1, 2]).all()


def test_a_group_that_must_change_changes_in_every_copy():
    problem = problem_of(nothing, constraints={"ranges": {"b": [2, 3]}})
    search(problem)
    Z = np.concatenate(problem.rate.seen)
    assert set(Z[:, 1]) == {2, 3}
    counts = np.bincount(problem.rate.seen[0][:, 1].astype(int))
    assert counts[2] > 0 < counts[3]


def test_continuous_numbers_are_drawn_between_the_backgrounds():
    problem = problem_of(nothing, values="continuous")
    search(problem)
    drawn = np.concatenate(problem.rate.seen)[:, 3]
    assert len(set(drawn) - set(DATA["d"])) > 100
    assert 0 <= drawn.min() < drawn.max() <= 10


def test_without_polish_needless_changes_stay():
    model = OpenModel("test", ("no", "yes"), lambda rows: np.where(rows["income"] >= 2.5, "yes", "no"))
    frame = background(1)
    row = pd.DataFrame({name: frame[name].iloc[:1] for name in frame}).assign(income=0.0, age=20)
    counts = {}
    for polish in (True, False):
        found = explained(model, frame, explainer=RandomSearch(polish=polish)).explain(row, count=10)[0]
        counts[polish] = {answer.n_changed for answer in found.counterfactuals}
    assert counts[True] == {1}
    assert counts[False] == {1, 2}


def test_options():
    assert explainer_of("random_search") == RandomSearch()
    floor = RandomSearch(copies=50, polish=False)
    assert explainer_of(explainer_to_dict(floor)) == floor
    with pytest.raises(InputError, match=r"explainer\.copies: 0 is no whole number from 1 on"):
        RandomSearch(copies=0)


def test_it_is_a_floor_for_geco():
    frame = background(3, rows=40)
    model = lottery(5, share=0.3)
    rows = frame[model.decide(frame) == "no"].iloc[:8]
    random, geco = (
        [found.counterfactuals[0].distance for found in explained(model, frame, explainer=explainer).explain(rows)]
        for explainer in (RandomSearch(polish=False), GeCo())
    )
    assert np.mean(geco) <= np.mean(random)
