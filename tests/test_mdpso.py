"""MD-PSO: information value, boxes, corners, the swarm and its objective, clusters; worked by hand."""

import json
import math
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from worlds import bind, constraint_dicts, setting_of, stepped, table, wide_rows

import mlflow_cf
from mlflow_cf import MDPSO, InputError
from mlflow_cf.constraints import Constraints
from mlflow_cf.explainers.mdpso import mdpso as module
from mlflow_cf.explainers.mdpso.active import Active, active_set, bins_of, information_value
from mlflow_cf.explainers.mdpso.landed import Fitness, Landed, PaperSum, by_distance, gaps
from mlflow_cf.explainers.mdpso.mdpso import Swarm
from mlflow_cf.explainers.mdpso.selection import k_means, picked, spares
from mlflow_cf.explainers.registry import explainer_of, explainer_to_dict
from mlflow_cf.features import Embedding, FeatureSpace
from mlflow_cf.goal import Rating
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy, Budget, Problem

NAN = math.nan
# every number from 0 to 10, so that boxes are easy to read; a level of three, a truth value
FRAME = pd.DataFrame(
    {
        "a": np.arange(30) % 11.0,
        "b": (np.arange(30) * 7) % 11.0,
        "job": list("abc") * 10,
        "owner": [True, False, False] * 10,
    }
)
ROW = (6.0, 0.0, 1.0, 0.0)
ALIKE = (0.0,) * 4  # information values


def problem_of(
    favourable: Any = None,
    constraints: Mapping[str, Any] | None = None,
    row: tuple[float, ...] = ROW,
    values: Any = "observed",
    count: int = 1,
    frame: pd.DataFrame = FRAME,
) -> Problem:
    space = FeatureSpace.infer(frame)
    bound_policy = BoundPolicy.build(space, space.encode(frame), Constraints.read(constraints), Distance(), values)

    def rate(Z: Any) -> Rating:
        flags = np.asarray(favourable(Z), dtype=bool)
        return Rating(flags, np.where(flags, 0.8, 0.2))

    return bound_policy.bind(np.array(row), space=space, count=count, rate=rate, rate_background=lambda: None)


def active_of(problem: Problem, telling: tuple[float, ...] = ALIKE, h: int = 10, **options: Any) -> Active:
    embedding = Embedding.fit(problem.space, problem.background)
    return active_set(problem, embedding, np.array(telling), h, MDPSO(**options).ends)


def names(active: Active) -> list[str]:
    return [active.problem.space.names[unit.group.columns[0]] for unit in active.units]


def box(active: Active, name: str) -> list[float]:
    unit = names(active).index(name)
    part = active.parts[unit]
    return [round(float(end), 9) for end in (active.low[part.start], active.high[part.start])]


def search(problem: Problem, explainer: MDPSO | None = None, most: int = 100_000, seed: int = 0) -> Any:
    explainer = explainer or MDPSO(box="absolute", epsilon=1)
    width = len(problem.space)
    learned = module.Learned(
        {"information": np.zeros((1, width)), **Embedding.fit(problem.space, problem.background).to_arrays()},
        {"column": 0},
    )
    return explainer.bound(learned)(problem, Budget(most), np.random.default_rng(seed))


class TestInformationValue:
    def test_as_worked_by_hand(self) -> None:
        positives, negatives = np.array([30, 20, 50]), np.array([10, 40, 50])
        assert information_value(positives, negatives, smoothing=0) == pytest.approx(0.3584, abs=5e-5)
        assert information_value(positives, negatives) == pytest.approx(0.3443, abs=5e-5)

    def test_no_bin_is_infinite_and_no_class_tells_without_the_other(self) -> None:
        assert 1 < information_value(np.array([50, 0]), np.array([0, 50])) < 20
        assert information_value(np.array([3, 4]), np.array([0, 0])) == 0

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=8))
    def test_it_is_never_negative_and_the_same_for_the_opposite(self, bins: list[tuple[int, int]]) -> None:
        positives, negatives = np.array(bins).T
        value = information_value(positives, negatives)
        assert value >= -1e-12
        assert information_value(negatives, positives) == pytest.approx(value)

    def test_bins_of_a_number(self) -> None:
        feature = FeatureSpace.infer(pd.DataFrame({"x": np.arange(100.0)})).features[0]
        bins, counts = bins_of(feature, np.arange(100.0))
        assert np.bincount(bins).tolist() == [10] * 10
        assert counts.all()
        far = np.append(np.arange(100.0), [1e6, NAN])
        bins, counts = bins_of(feature, far)
        assert np.flatnonzero(~counts).tolist() == [100]
        assert (bins[101], bins[:100].max()) == (-1, 9)

    def test_where_all_but_the_far_ones_are_alike_none_is_far(self) -> None:
        codes = np.array([0.0] * 20 + [5.0])
        feature = FeatureSpace.infer(pd.DataFrame({"x": codes})).features[0]
        _, counts = bins_of(feature, codes)
        assert counts.all()

    def test_labels_of_training_count_and_else_predictions(self) -> None:
        frame = pd.DataFrame({"a": np.arange(40.0), "b": np.tile([0.0, 1, 2, 3], 10)})
        model = RandomForestClassifier(20, random_state=0).fit(frame, frame["a"] >= 20)
        told = []
        for labels in (None, (frame["b"] >= 2).to_numpy()):
            explained = mlflow_cf.wrap(model, frame, labels, target=True, explainer=MDPSO(box="absolute"))
            told.append(explained.learned.arrays["information"][1])
        assert told[0][0] > 1 > told[0][1]
        assert told[1][1] > 1 > told[1][0]


class TestActiveSet:
    def test_the_most_telling_first_and_ties_by_column(self) -> None:
        problem = problem_of()
        assert names(active_of(problem, (0.1, 0.1, 0.3, 0.1), h=2, box="absolute")) == ["a", "job"]
        assert names(active_of(problem, (0.1, 0.2, 0.3, 0.4), h=3, box="absolute")) == ["b", "job", "owner"]

    def test_what_must_change_comes_first_and_beside(self) -> None:
        problem = problem_of(constraints={"ranges": {"b": [5, 9]}})
        assert names(active_of(problem, (0.9, 0.0, 0.0, 0.0), h=1)) == ["b"]
        assert names(active_of(problem, (0.9, 0.0, 0.0, 0.0), h=2)) == ["a", "b"]

    def test_what_may_not_change_is_none_of_it(self) -> None:
        problem = problem_of(constraints={"immutable": ["a", "job"]})
        assert names(active_of(problem, box="absolute")) == ["b", "owner"]

    def test_the_next_takes_the_place_of_what_is_frozen(self) -> None:
        active = active_of(problem_of(), (0.1, 0.9, 0.2, 0.3), h=2)
        assert (names(active), active.frozen) == (["job", "owner"], ("b",))


class TestBoxes:
    @pytest.mark.parametrize(
        ("own", "kind", "ends"),
        [
            (6.0, "relative", [0.3, 0.9]),
            (9.0, "relative", [0.45, 1]),
            (6.0, "absolute", [0.1, 1]),
            (2.0, "absolute", [0, 0.7]),
            (0.0, "absolute", [0, 0.5]),
            (15.0, "relative", [0.75, 1.5]),
            (NAN, "relative", [0, 1]),
        ],
    )
    def test_as_worked_by_hand(self, own: float, kind: Any, ends: list[float]) -> None:
        assert box(active_of(problem_of(row=(own, *ROW[1:])), box=kind), "a") == ends

    def test_epsilon_by_feature(self) -> None:
        active = active_of(problem_of(), box="absolute", epsilon_by_feature={"b": 0.2})
        assert (box(active, "a"), box(active, "b")) == ([0.1, 1], [0, 0.2])

    def test_they_are_cut_to_what_constraints_leave(self) -> None:
        constraints = {"increasing": ["a"], "ranges": {"b": [None, 3]}}
        active = active_of(problem_of(constraints=constraints), box="absolute")
        assert (box(active, "a"), box(active, "b")) == ([0.6, 1], [0, 0.3])

    def test_a_box_without_what_must_be_does_not_count(self) -> None:
        active = active_of(problem_of(constraints={"ranges": {"a": [1, 2]}}))
        assert box(active, "a") == [0.1, 0.2]
        codes, _ = active.land(active.low[:, None])
        assert active.problem.groups[0].actions[codes[0, 0]] == 1


class TestLanding:
    def test_corners_as_worked_by_hand(self) -> None:
        active = active_of(problem_of(), box="absolute")
        X = np.tile(active.own[:, None], 3)
        job, owner = active.parts[2], active.parts[3]
        X[job] = np.array([[0.2, 0.7, 0.6], [0.5, 0.5, 0.1], [0.9, 0.2, 0.9]]).T
        X[owner] = [[0.49, 0.5, 1.0]]
        codes, _ = active.land(X)
        assert codes[:, 2].tolist() == [1, 0, 0]
        assert codes[:, 3].tolist() == [0, 1, 1]

    def test_numbers_go_to_the_nearest_value_in_the_box(self) -> None:
        active = active_of(problem_of())
        X = np.tile(active.own[:, None], 4)
        X[0] = [0.3, 0.34, 0.45, 0.9]  # 4.5 is as near to 4 as to 5, which is nearer to the row's own 6
        rows = active.problem.rows(_whole(active, active.land(X)[0]))
        assert rows[:, 0].tolist() == [3, 3, 5, 9]

    def test_groups_go_to_their_nearest_tuple(self) -> None:
        frame = FRAME.assign(b=FRAME["a"])
        problem = problem_of(constraints={"groups": [["a", "b"]]}, row=(6.0, 6.0, 1.0, 0.0), frame=frame)
        active = active_of(problem, box="absolute")
        X = active.own[:, None].copy()
        X[:2, 0] = [0.33, 0.31]
        (row,) = problem.rows(_whole(active, active.land(X)[0]))
        assert row[0] == row[1] == 3

    @given(st.lists(wide_rows, min_size=1, max_size=2), constraint_dicts, st.sampled_from(["observed", "continuous"]))
    def test_whatever_the_row_and_the_constraints_what_lands_is_admissible(self, rows, constraints, values) -> None:
        frame = stepped(1)
        bound_policy = setting_of(frame, constraints, values=values)
        problem = bind(bound_policy, table(rows[:1], frame))
        active = active_of(problem, (0.0,) * len(problem.space), box="absolute")
        if not active.units:
            return
        rng = np.random.default_rng(0)
        X = active.low[:, None] + rng.random((len(active.low), 40)) * (active.high - active.low)[:, None]
        X[:, 0] = active.own
        landed = Landed(active, Budget(0), 100)
        whole, numbers, _ = landed._repaired(*active.land(X))
        Z = landed._rows(whole, numbers)
        changed = problem.changed(Z)
        assert not changed[0, active.numbers[active.free]].any()
        limits = problem.changes_left(_codes(problem, landed, whole)) >= 0
        wanted = changed.any(axis=1) & limits & _own_where_it_must(problem, changed)
        assert problem.check(Z)[wanted].all()


def _whole(active: Active, codes: Any) -> Any:
    whole = np.tile(active.problem.own, (len(codes), 1))
    whole[:, active.numbers] = codes
    return whole


def _codes(problem: Problem, landed: Landed, codes: Any) -> Any:
    whole = np.tile(problem.own, (len(codes), 1))
    whole[:, landed.groups] = codes
    return whole


def _own_where_it_must(problem: Problem, changed: Any) -> Any:
    must = [number for number, group in enumerate(problem.groups) if not group.own_allowed]
    return changed[:, must].all(axis=1)


def two(Z: Any) -> Any:
    """Want a large b, or level c where a is small."""
    return (Z[:, 1] >= 5) | ((Z[:, 0] <= 3) & (Z[:, 2] == 2))


class TestSwarm:
    def test_one_batch_an_iteration_and_no_row_twice(self) -> None:
        seen: list[Any] = []
        problem = problem_of(lambda Z: seen.append(Z.copy()) or two(Z))
        found = search(problem, MDPSO(box="absolute", epsilon=1, iterations=20))
        Z = np.concatenate(seen)
        assert len(seen) <= 21
        assert max(map(len, seen)) <= 50
        assert len(np.unique(Z, axis=0)) == len(Z)
        assert problem.check(Z[problem.changed(Z).any(axis=1)]).all()
        assert found.diagnostics["iterations"] == 20

    def test_answers_are_favourable_and_the_nearest_is_found(self) -> None:
        problem = problem_of(two)
        found = search(problem)
        assert two(found.rows).all()
        assert found.rows[0].tolist() == [6, 5, 1, 0]

    @pytest.mark.parametrize("most", [0, 1, 49, 50, 51, 400])
    def test_the_budget_is_asked_before_every_batch(self, most: int) -> None:
        seen: list[int] = []
        problem = problem_of(lambda Z: seen.append(len(Z)) or two(Z))
        budget = Budget(most)
        learned = module.Learned(
            {"information": np.zeros((1, 4)), **Embedding.fit(problem.space, problem.background).to_arrays()},
            {"column": 0},
        )
        MDPSO(box="absolute").bound(learned)(problem, budget, np.random.default_rng(0))
        assert sum(seen) == budget.used <= most
        assert budget.cut == ("evaluations" if most < 400 else "")

    def test_same_generator_same_rows(self) -> None:
        clusters = MDPSO(box="absolute", epsilon=1, pick="best")
        rows = [search(problem_of(two, count=3), clusters, seed=seed).rows for seed in (1, 1, 2)]
        np.testing.assert_array_equal(rows[0], rows[1])
        assert rows[1].shape != rows[2].shape or (rows[1] != rows[2]).any()

    def test_particles_stay_in_the_box_and_within_half_of_it(self) -> None:
        active = active_of(problem_of(two))
        how = MDPSO(c1=9, c2=9, snap_back=0, iterations=1)
        swarm = Swarm(active, Landed(active, Budget(9_999), 1_050), how, np.random.default_rng(0))
        for _ in range(10):
            before = swarm.X.copy()
            swarm.run()
            assert (active.low[:, None] <= swarm.X).all()
            assert (active.high[:, None] >= swarm.X).all()
            assert (np.abs(swarm.X - before) <= 0.5 * (active.high - active.low)[:, None] + 1e-12).all()

    def test_inertia_falls_in_a_line(self) -> None:
        assert [round(MDPSO(iterations=4).kept_velocity(at), 9) for at in range(4)] == [0.7, 0.6, 0.5, 0.4]

    def test_snapping_back_keeps_answers_sparse(self) -> None:
        changed = []
        for often in (0.0, 0.5):
            problem = problem_of(lambda Z: Z[:, 1] >= 5)
            explainer = MDPSO(box="absolute", epsilon=1, snap_back=often, iterations=15, particles=10, spares=False)
            found = search(problem, explainer)
            changed.append(problem.changed(found.rows).sum(axis=1).mean())
        assert changed[1] < changed[0]

    def test_snapped_positions_are_those_of_rows(self) -> None:
        problem = problem_of(two)
        active = active_of(problem, box="absolute")
        how = MDPSO(snap_position=True, iterations=10)
        swarm = Swarm(active, Landed(active, Budget(9_999), 550), how, np.random.default_rng(0))
        swarm.run()
        levels = swarm.X[active.parts[2]]
        assert (np.sort(levels, axis=0) == [[0], [0], [1]]).all()
        codes, _ = active.land(swarm.X)
        before = swarm.X.copy()
        swarm._land()
        assert np.array_equal(before, swarm.X)
        assert codes.shape == (50, 4)

    def test_most_changes_are_kept(self) -> None:
        problem = problem_of(two, constraints={"max_changes": 1})
        found = search(problem)
        assert len(found.rows)
        assert (problem.changed(found.rows).sum(axis=1) == 1).all()

    def test_rules_are_repaired_and_what_breaks_one_is_never_scored(self) -> None:
        seen: list[Any] = []
        rules = {"rules": ["IF x_cf.b > x.b THEN x_cf.job == 'c'", "x_cf.a + x_cf.b != 12"]}
        problem = problem_of(lambda Z: seen.append(Z.copy()) or two(Z), constraints=rules)
        found = search(problem)
        Z = np.concatenate(seen)
        assert problem.check(Z[problem.changed(Z).any(axis=1)]).all()
        assert len(found.rows)
        assert ((found.rows[:, 1] == 0) | (found.rows[:, 2] == 2)).all()

    def test_continuous_numbers_are_anything_in_the_box(self) -> None:
        frame = FRAME.assign(a=FRAME["a"].replace(3, 3.5), b=FRAME["b"].replace(3, 3.5))
        problem = problem_of(two, values="continuous", frame=frame)
        found = search(problem, MDPSO(box="absolute", epsilon=1))
        between = found.rows[(found.rows[:, :2] % 1 != 0).any(axis=1)]
        assert len(between)
        assert found.rows[0, 1] == pytest.approx(5, abs=0.05)
        assert problem.check(found.rows).all()

    def test_a_missing_value_is_kept_or_filled_in(self) -> None:
        frame = FRAME.assign(a=FRAME["a"].where(FRAME["a"] != 3))
        problem = problem_of(two, row=(NAN, *ROW[1:]), frame=frame)
        found = search(problem)
        assert np.isnan(found.rows[0, 0])

    def test_nothing_may_change(self) -> None:
        found = search(problem_of(two, constraints={"immutable": list(FRAME)}))
        assert (found.rows.shape, found.diagnostics["active"]) == ((0, 4), [])


class TestObjective:
    def test_valid_first_then_what_the_score_lacks_then_distance(self) -> None:
        fitness = by_distance(np.array([1, 1, 0, 0], bool), np.array([0.6, 0.9, 0.4, 0.3]), np.array([0.5, 0.2, 0, 0]))
        assert fitness.order.tolist() == [1, 0, 2, 3]
        assert fitness.best == 1

    def test_the_papers_sum_as_worked_by_hand(self) -> None:
        problem = problem_of()
        Z = np.tile(problem.x0, (2, 1))
        Z[0, 0] = 8  # of a range of 10
        valid = np.array([True, False])
        found = PaperSum(problem).fitness(valid, np.array([0, 0.3]), Z)
        assert found.first == pytest.approx([1.05, 0.3])
        assert problem.bound_distance.distance(problem.columns, Z, problem.x0)[0] == pytest.approx(0.15)
        assert PaperSum(problem, (2, 10, 0.5)).fitness(valid, np.array([0, 0.3]), Z).first == pytest.approx([1, 0.6])

    def test_the_papers_sum_prefers_the_row_itself(self) -> None:
        found = {
            objective: len(search(problem_of(two), MDPSO(box="absolute", objective=objective, spares=False)).rows)
            for objective in ("distance", "paper")
        }
        assert found["paper"] < found["distance"]
        weighted = MDPSO(box="absolute", objective="paper", weights=(10, 1, 1))
        assert two(search(problem_of(two), weighted).rows).all()

    def test_what_a_probability_lacks(self) -> None:
        problem = problem_of()
        assert gaps(problem, np.array([True, False]), np.array([0.9, 0.2])) == pytest.approx([0, 0.3])


class TestSelection:
    POINTS = np.array([[0.0, 0], [0.1, 0], [0, 0.1], [5, 5], [5, 5.1], [9, 0]])

    def test_clusters_are_the_blobs(self) -> None:
        found = k_means(self.POINTS, 3, np.random.default_rng(0))
        assert len({*found[:3]}) == len({*found[3:5]}) == 1
        assert len({*found}) == 3

    def test_more_clusters_than_distinct_points(self) -> None:
        found = k_means(np.zeros((4, 2)), 3, np.random.default_rng(0))
        assert found.tolist() == [0] * 4

    def test_the_best_of_each_cluster_first_then_the_rest(self) -> None:
        fitness = Fitness(-np.ones(6), np.array([0.3, 0.1, 0.2, 0.5, 0.4, 0.6]), np.ones(6, bool))
        order = picked(self.POINTS, fitness, 3, "best", np.random.default_rng(0))
        assert order.tolist() == [1, 4, 5, 2, 0, 3]
        assert picked(self.POINTS, fitness, 1, "best", np.random.default_rng(0)).tolist() == [1, 2, 0, 4, 3, 5]
        assert picked(self.POINTS, fitness, 3, "nearest", np.random.default_rng(0)).tolist() == [1, 2, 0, 4, 3, 5]
        drawn = [picked(self.POINTS, fitness, 3, "random", np.random.default_rng(seed)).tolist() for seed in range(9)]
        assert all(len({*order[:3]} & {0, 1, 2}) == 1 for order in drawn)
        assert len({order[0] for order in drawn}) > 1
        assert all(sorted(order) == list(range(6)) for order in drawn)


def test_spares_change_what_no_answer_before_them_does() -> None:
    sets = {"a": [1, 0, 0], "b": [0, 1, 0], "ab": [1, 1, 0], "c": [0, 0, 1], "bc": [0, 1, 1]}
    answers, beside = (np.array([sets[name] for name in some], bool) for some in (["a"], ["ab", "bc", "a", "b", "c"]))
    assert spares(answers, beside, 1).tolist()[:3] == [1, 3, 4]
    assert sorted(spares(answers, beside, 1)) == [0, 1, 2, 3, 4]
    assert len(spares(answers, beside[:0], 1)) == 0


def wrapped(explainer: Any = None, **options: Any) -> Any:
    model = RandomForestClassifier(20, random_state=0).fit(NUMBERS, NUMBERS["b"] > 5)
    chosen = MDPSO(box="absolute") if explainer is None else explainer
    return mlflow_cf.wrap(model, NUMBERS, target=True, explainer=chosen, **options)


NUMBERS = FRAME[["a", "b"]]


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"box": "round"}, "box"),
            ({"objective": "other"}, "objective"),
            ({"pick": "worst"}, "pick"),
            ({"among": "none"}, "among"),
            ({"epsilon": -1}, "epsilon"),
            ({"h": 0}, "h"),
            ({"particles": 2.5}, "particles"),
            ({"iterations": True}, "iterations"),
            ({"c3": math.inf}, "c3"),
            ({"snap_back": 2}, "snap_back"),
            ({"weights": (1, 1)}, "weights"),
            ({"weights": (1, 1, NAN)}, "weights"),
            ({"epsilon_by_feature": {"a": -1}}, "epsilon_by_feature.a"),
        ],
    )
    def test_what_is_refused(self, options: Any, path: str) -> None:
        with pytest.raises(InputError, match=rf"^explainer\.{path}: "):
            MDPSO(**options)

    def test_name_and_options_restore_it(self) -> None:
        floor = MDPSO(particles=5, weights=(1, 2, 3), epsilon_by_feature={"a": 0.1})
        assert explainer_of(explainer_to_dict(floor)) == floor
        assert explainer_of({"name": "mdpso", "options": {"weights": [1, 2, 3]}}) == MDPSO(weights=(1, 2, 3))

    def test_features_that_are_not_there(self) -> None:
        with pytest.raises(InputError, match=r"explainer\.epsilon_by_feature\.ab: not a feature"):
            wrapped(MDPSO(box="absolute", epsilon_by_feature={"ab": 1}))

    def test_requests_with_other_options_learn_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        explained = wrapped()
        monkeypatch.setattr(module, "information_values", None)
        row = NUMBERS[NUMBERS["b"] <= 5].head(1)
        for options in ({"particles": 20}, {"box": "relative", "objective": "paper"}, {"pick": "random"}):
            asked = {"name": "mdpso", "options": options}
            assert explained.explain(row, explainer=asked, count=2)[0].status in ("found", "not_found")

    def test_zeros_are_warned_of(self) -> None:
        frame = NUMBERS.assign(a=np.where(NUMBERS["a"] < 7, 0.0, NUMBERS["a"]))
        model = RandomForestClassifier(5, random_state=0).fit(frame, frame["b"] > 5)
        text = r"explainer\.box: .* as many rows have of a; use MDPSO\(box='absolute'\)"
        with pytest.warns(UserWarning, match=text):
            explained = mlflow_cf.wrap(model, frame, target=True, explainer="mdpso")
        row = frame[(frame["a"] == 0) & frame["b"].between(1, 4)].head(1)
        assert explained.explain(row)[0].diagnostics["frozen"] == ["a"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            mlflow_cf.wrap(model, frame, target=True, explainer=MDPSO(box="absolute"))


class TestRegression:
    def model(self) -> Any:
        from sklearn.linear_model import LinearRegression  # noqa: PLC0415

        return LinearRegression().fit(NUMBERS, NUMBERS["a"] + 2 * NUMBERS["b"])

    def test_an_interval(self) -> None:
        target = {"low": 20, "high": 24}
        explained = mlflow_cf.wrap(self.model(), NUMBERS, target=target, explainer=MDPSO(box="absolute", epsilon=1))
        (found,) = explained.explain(NUMBERS[:1])
        assert 20 <= found.counterfactuals[0].prediction <= 24

    @pytest.mark.parametrize(("low", "which"), [(1e6, "no row"), (-1e6, "every row")])
    def test_an_interval_that_tells_nothing(self, low: float, which: str) -> None:
        with pytest.raises(InputError, match=rf'^explainer: {which} .* use "geco"'):
            mlflow_cf.wrap(self.model(), NUMBERS, target={"low": low}, explainer=MDPSO(box="absolute"))


def test_a_class_of_two_rows_and_constant_features() -> None:
    frame = NUMBERS.assign(same=1.0)
    labels = np.zeros(30, dtype=int)
    labels[[3, 9]] = 1
    model = RandomForestClassifier(10, random_state=0, bootstrap=False).fit(frame, labels)
    explained = mlflow_cf.wrap(model, frame, labels, target=1, explainer=MDPSO(box="absolute", epsilon=1))
    (found,) = explained.explain(frame[:1])
    assert found.status in ("found", "not_found")
    assert "same" not in found.diagnostics["active"]


def test_several_classes_and_any_other_than_now() -> None:
    labels = np.select([NUMBERS["a"] < 3, NUMBERS["b"] < 5], ["x", "y"], "z")
    model = RandomForestClassifier(20, random_state=0).fit(NUMBERS, labels)
    explained = mlflow_cf.wrap(model, NUMBERS, labels, target="x", explainer=MDPSO(box="absolute"), seal=(), seed=3)
    row = NUMBERS[labels == "y"].head(1)
    assert explained.explain(row)[0].counterfactuals[0].prediction == "x"
    for target, wanted in (({"label": "z"}, {"z"}), ({"other": True}, {"x", "z"})):
        (found,) = explained.explain(row, target=target)
        assert found.counterfactuals[0].prediction in wanted


STORED = MDPSO(box="absolute", epsilon_by_feature={"a": 0.7}, weights=(1, 2, 3))
ASKED = NUMBERS[NUMBERS["b"] <= 5].head(4)


def stored(folder: Path) -> str:
    """Store the model of `wrapped(STORED)`, and return where."""
    model = RandomForestClassifier(20, random_state=0).fit(NUMBERS, NUMBERS["b"] > 5)
    mlflow_cf.save_model(model, str(folder / "model"), NUMBERS, target=True, explainer=STORED)
    return str(folder / "model")


def told(explained: Any) -> list[Any]:
    """Return what is answered, as JSON has it; without what differs from call to call."""
    answers = [one.to_dict() for one in explained.explain(ASKED, count=3)]
    return [json.loads(json.dumps({key: one[key] for key in ("status", "counterfactuals")})) for one in answers]


def test_stored_and_loaded_it_answers_bit_for_bit_and_learns_nothing(tmp_path, monkeypatch) -> None:
    explained, folder = wrapped(STORED), stored(tmp_path)
    monkeypatch.setattr(MDPSO, "learn", None)
    for name in ("information_values", "Embedding"):
        fits = getattr(module, name)
        monkeypatch.setattr(module, name, SimpleNamespace(from_arrays=getattr(fits, "from_arrays", None)))
    loaded = mlflow_cf.load_model(folder)
    for name, array in explained.learned.arrays.items():
        assert array.tobytes() == loaded.learned.arrays[name].tobytes()
    assert told(loaded) == told(explained)
    assert loaded.searches.own.explainer == STORED


@pytest.mark.system
def test_another_process_answers_bit_for_bit(tmp_path) -> None:
    code = f"""
import sys; sys.path = {sys.path!r}
import json, mlflow_cf, test_mdpso as t
mlflow_cf.MDPSO.learn = None
print(json.dumps(t.told(mlflow_cf.load_model({stored(tmp_path)!r}))))"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout.splitlines()[-1]) == told(wrapped(STORED))
