"""GeCo's operators one by one, its stop rules, and what it must find."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checker import Checker
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from worlds import problem_of

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import GeCo
from mlflow_cf.explainers.geco.deltas import Places
from mlflow_cf.explainers.geco.draws import MOST_CODES, Drawn, Draws
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.problem import Budget, Codes, Problem
from mlflow_cf.search.cascade import draw_by_row, draw_distinct
from mlflow_cf.search.population import Population, changed_sets, fittest, none_scored, score_candidates
from mlflow_cf.wrapping import assemble

RNG = np.random.default_rng(3)
FRAME = pd.DataFrame(
    {
        "debt": RNG.integers(0, 400, 40),
        "hours": RNG.integers(30, 80, 40),
        "income": RNG.normal(40, 10, 40).round(1),
        "job": RNG.choice(["a", "b", "c"], 40),
        "member": RNG.random(40) < 0.5,
    }
)
QUERY = pd.DataFrame({"debt": [390], "hours": [70], "income": [20.0], "job": ["a"], "member": [False]})


def decide(rows: pd.DataFrame) -> np.ndarray:
    return (rows["debt"] <= 100).to_numpy().astype(int)


def score(rows: pd.DataFrame) -> np.ndarray:
    good = np.where(rows["debt"] <= 100, 0.6, 0.4 - rows["debt"] / 2000) + rows["income"] / 1000
    return np.column_stack([1 - good, good])


def wrapped(model: OpenModel | None = None, frame: pd.DataFrame = FRAME, **options: Any) -> ExplainedModel:
    model = model or OpenModel("test", (0, 1), decide, score, score_kind="probability")
    return assemble(model, frame, None, WrapOptions(**options))


@pytest.fixture
def problem() -> Problem:
    return problem_of(wrapped(), QUERY)


def started(problem: Problem, seed: int = 0, q: int = 100) -> Draws:
    return Draws(problem, Budget(10**6), np.random.default_rng(seed), q)


def whole(run: Draws, blocks: Iterable[Places]) -> Codes:
    """Return the candidates of all blocks by code."""
    return np.concatenate([run.deltas.codes(block) for block in blocks])


def random_codes(problem: Problem, size: int, seed: int = 1) -> Codes:
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(len(group.actions), size=size) for group in problem.groups])
    stay = rng.random(codes.shape) < 0.5
    return np.where(stay, problem.own, codes)


class TestScore:
    def test_formula(self, problem: Problem) -> None:
        codes = random_codes(problem, 200)
        scored = score_candidates(problem, codes)
        raw = problem.space.decode(problem.rows(codes))
        grade = score(raw)[:, 1]
        distance = problem.distance(codes)
        good = decide(raw) == 1
        assert scored.favourable.tolist() == good.tolist()
        assert scored.merit.tolist() == grade.tolist()
        assert scored.score == pytest.approx(np.where(good, distance, distance + 1 + (1 - grade)), abs=1e-12)
        assert scored.fresh.all()

    def test_fittest_is_the_whole_order_cut(self, problem: Problem) -> None:
        scored = score_candidates(problem, random_codes(problem, 300))

        def key(member: int) -> tuple[Any, ...]:
            codes = scored.codes[member]
            changes = int((codes != problem.own).sum())
            return (not scored.favourable[member], scored.score[member], changes, -scored.merit[member], *codes)

        expected = sorted(range(300), key=key)
        for most in (1, 7, 100, 299, 300, 1000):
            best = fittest(problem, scored, most)
            assert best.codes.tolist() == scored.codes[expected[:most]].tolist()

    def test_ties(self, problem: Problem) -> None:
        """Same score: fewer changed groups, then the higher grade, then the smaller codes."""
        own = problem.own
        codes = np.array([own, own, own, own, own])
        codes[0, [0, 1]] += [-1, 1]
        codes[1, 0] -= 3
        codes[2, 0] -= 2
        codes[3, 0] -= 1
        codes[4, 1] -= 1
        same = np.full(5, 0.25)
        grade = np.array([0.9, 0.7, 0.7, 0.8, 0.8])
        tied = Population(codes, np.ones(5, dtype=bool), same, grade, np.ones(5, dtype=bool))
        best = fittest(problem, tied, 5)
        # 3 and 4 have the best grade: 3 has the smaller code of debt; then 1 before 2; the two changes of 0 come last
        assert best.codes.tolist() == codes[[3, 4, 1, 2, 0]].tolist()

    def test_favourable_comes_first_however_far_away(self) -> None:
        """Distances are not cut at 1: the row may lie far outside the background."""
        model = OpenModel("test", (0, 1), lambda rows: (rows["debt"] <= 100).to_numpy().astype(int))
        far = QUERY.assign(debt=10**12)
        found = wrapped(model).explain(far)[0]
        assert found.status == "found"
        assert found.counterfactuals[0].n_changed == 1
        assert found.counterfactuals[0].distance > 10**6
        problem = problem_of(wrapped(model), far)
        scored = score_candidates(problem, random_codes(problem, 200))
        best = fittest(problem, scored, 200)
        assert best.favourable.tolist() == sorted(best.favourable, reverse=True)


class TestDraws:
    @pytest.mark.parametrize(
        "weights",
        [np.array([1.0, 0, 2, 3, 6]), np.append(np.tile([1.0, 0, 2, 5], 15), 30), np.append(np.ones(50), 2000)],
        ids=["few codes", "many codes", "one weighs most"],
    )
    def test_without_replacement_by_weight(self, weights: np.ndarray) -> None:
        """Inclusion probabilities of successive draws, against their exact values; 5 standard errors wide."""
        size, rows, total = 2, 40_000, weights.sum()
        drawn = draw_distinct(weights, rows, size, np.random.default_rng(7))
        assert drawn.shape == (rows, size)
        assert (drawn[:, 0] != drawn[:, 1]).all()
        exact: Counter[int] = Counter()
        for one, two in permutations(np.flatnonzero(weights).tolist(), 2):
            chance = weights[one] / total * weights[two] / (total - weights[one])
            exact[one] += chance
            exact[two] += chance
        counts = Counter(drawn.ravel().tolist())
        assert set(counts) <= set(exact)
        for code, chance in exact.items():
            error = np.sqrt(chance * (1 - chance) / rows)
            assert counts[code] / rows == pytest.approx(chance, abs=5 * error)

    def test_few_enough_are_all_drawn(self) -> None:
        drawn = draw_distinct(np.array([0.0, 5, 1, 0]), 3, 2, np.random.default_rng(0))
        assert drawn.tolist() == [[1, 2]] * 3
        assert draw_distinct(np.zeros(3), 4, 2, np.random.default_rng(0)).shape == (4, 0)

    def test_one_each_from_its_own_weights(self) -> None:
        weights = np.array([[0.0, 1, 0, 3], [2.0, 0, 2, 0], [0, 0, 0, 0]])
        rows = np.array([0, 1] * 20_000)
        drawn = draw_by_row(weights, rows, np.random.default_rng(11))
        for row, chances in ((0, {1: 0.25, 3: 0.75}), (1, {0: 0.5, 2: 0.5})):
            counts = Counter(drawn[rows == row].tolist())
            assert set(counts) == set(chances)
            for code, chance in chances.items():
                assert counts[code] / 20_000 == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / 20_000))

    def test_never_a_code_without_weight(self) -> None:
        rng = np.random.default_rng(2)
        weights = rng.random((300, 17)) * (rng.random((300, 17)) < 0.3)
        weights[:, 5] += 1e-12
        rows = rng.integers(300, size=50_000)
        assert (weights[rows, draw_by_row(weights, rows, rng)] > 0).all()


class TestOperators:
    def test_mutate(self, problem: Problem) -> None:
        run = started(problem)
        parents = random_codes(problem, 30)
        expected = sum(
            min(5, group.proposals) * int((parents[:, number] == group.own).sum())
            for number, group in enumerate(problem.groups)
        )
        children = whole(run, run.mutate(parents, 5))
        assert len(children) == expected
        together = {tuple(parent) for parent in parents.tolist()}
        for child in children.tolist():
            grown = [n for n in range(5) if child[n] != problem.own[n]]
            assert any((*child[:n], problem.own[n], *child[n + 1 :]) in together for n in grown)

    def test_mutate_draws_distinct_tuples_per_parent(self, problem: Problem) -> None:
        run = started(problem)
        children = whole(run, run.mutate(problem.own[None, :], 20))
        assert len({tuple(child) for child in children.tolist()}) == len(children)
        changed = children != problem.own
        assert (changed.sum(axis=1) == 1).all()
        assert changed.sum(axis=0).tolist() == [min(20, group.proposals) for group in problem.groups]

    def test_crossover_joins_the_best_of_every_two_changed_sets(self, problem: Problem) -> None:
        run = started(problem)
        population = fittest(problem, score_candidates(problem, random_codes(problem, 60)), 60)
        changed, first = changed_sets(problem, population.codes)
        sets = [tuple(line) for line in changed.tolist()]
        assert [sets.index(line) for line in dict.fromkeys(sets)] == first.tolist()
        best = population.codes[first]
        children = whole(run, run.cross(population))
        pairs = [(one, two) for one in range(len(best)) for two in range(one + 1, len(best))]
        for child, (one, two) in zip(children.tolist(), pairs, strict=False):
            for n, code in enumerate(child):
                mine, yours = best[one][n], best[two][n]
                own = problem.own[n]
                if own not in (mine, yours):
                    assert code in (mine, yours)
                else:  # changed in one parent only: from that parent
                    assert code == (mine if mine != own else yours)

    def test_crossover_tosses_a_fair_coin(self, problem: Problem) -> None:
        own = problem.own
        one, two = own.copy(), own.copy()
        one[[0, 1]] += [-1, -1]
        two[[0, 2]] += [-2, 1]
        population = fittest(problem, score_candidates(problem, np.array([one, two])), 2)
        run = started(problem)
        first = [int(whole(run, run.cross(population))[0, 0]) for _ in range(2000)]
        counts = Counter(first)
        assert set(counts) == {one[0], two[0]}
        assert counts[one[0]] == pytest.approx(1000, abs=4 * np.sqrt(500))

    @pytest.mark.parametrize("distance", [(0.5, 0.5, 0.0), (0.2, 0.3, 0.5)], ids=str)
    def test_selective_mutation_comes_nearer(self, distance: Any) -> None:
        problem = problem_of(wrapped(distance=distance), QUERY)
        run = started(problem)
        best = random_codes(problem, 40)
        best = best[(best != problem.own).any(axis=1)]
        before = problem.distance(best)
        nearest_possible = []
        for number, group in enumerate(problem.groups):
            members = np.flatnonzero(best[:, number] != group.own)
            weights = run._nearer_weights(best[members], number, before[members])
            for member, line in zip(members, weights, strict=True):
                for code in range(len(group.actions)):
                    moved = best[member].copy()
                    moved[number] = code
                    nearer = problem.distance(moved[None, :])[0] < before[member]
                    assert line[code] == (group.weights[code] if nearer else 0)
            nearest_possible.append(weights.any())
        assert any(nearest_possible)
        children = whole(run, run._nearer(best))
        alone = children[: -len(best)]
        assert len(alone)
        reachable = {tuple(parent) for parent in best.tolist()}
        for child in alone.tolist():  # one group of one member, never a level, never back to the row's own tuple
            parents = [p for p in reachable if sum(a != b for a, b in zip(p, child, strict=True)) == 1]
            moved = {next(n for n in range(5) if p[n] != child[n]) for p in parents}
            assert moved & {0, 1, 2}
        together = children[-len(best) :]
        assert (problem.distance(together) <= before).all()
        assert ((together != problem.own) == (best != problem.own)).all()
        assert (together[:, [3, 4]] == best[:, [3, 4]]).all()

    def test_selective_mutation_of_members_that_changed_no_number(self) -> None:
        problem = problem_of(wrapped(distance=(0.2, 0.3, 0.5)), QUERY)
        best = problem.own[None, :].copy()
        best[0, 3] = (best[0, 3] + 1) % 3
        run = started(problem)
        assert whole(run, run._nearer(best)).tolist() == best.tolist()

    def test_a_group_that_must_change_does(self) -> None:
        problem = problem_of(wrapped(constraints={"ranges": {"hours": [None, 60]}}), QUERY)
        run = started(problem)
        assert not problem.groups[1].own_allowed
        repaired = run.cascade.repair(np.repeat(problem.own[None, :], 50, axis=0))
        assert len(repaired) == 50
        assert ((repaired != problem.own).sum(axis=1) == 1).all()
        assert (problem.rows(repaired)[:, 1] <= 60).all()
        assert len(set(repaired[:, 1].tolist())) > 5  # drawn for each of them

    def test_repair_drops_what_changes_too_much_or_nothing(self) -> None:
        problem = problem_of(wrapped(constraints={"max_changes": 2}), QUERY)
        codes = random_codes(problem, 200)
        changes = (codes != problem.own).sum(axis=1)
        repaired = started(problem).cascade.repair(codes)
        assert repaired.tolist() == codes[(changes > 0) & (changes <= 2)].tolist()


class TestDrawn:
    """Constructions for models that are not opened."""

    def test_neighbours_of_many_members_are_made_a_few_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On 300 columns, those of 250 members took 1 GB and a second in which nobody asked the clock."""
        frame = pd.DataFrame(RNG.normal(size=(60, 120)), columns=[f"c{number}" for number in range(120)])
        asked = problem_of(
            wrapped(OpenModel("test", (0, 1), lambda rows: np.zeros(len(rows), dtype=int)), frame), frame
        )
        run = started(asked)
        drawn, made, clock = Drawn(run, none_scored(asked), 20), [], iter([False, False, True])
        monkeypatch.setattr(drawn, "score", lambda codes: made.append(codes.size))
        monkeypatch.setattr(Budget, "spent", property(lambda _: next(clock)))
        drawn.around(random_codes(asked, 80))
        assert len(made) == 2
        assert max(made) <= 2 * MOST_CODES


class TestSearch:
    def test_best_answer_is_the_largest_debt_that_is_small_enough(self) -> None:
        """GeCo section 10: M = [debt <= 100]."""
        largest = FRAME["debt"][FRAME["debt"] <= 100].max()
        labels_only = OpenModel("test", (0, 1), decide)
        for model in (None, labels_only):
            for seed in range(5):
                found = wrapped(model).explain(QUERY, seed=seed)[0]
                assert found.counterfactuals[0].row["debt"] == largest
                assert [change.feature for change in found.counterfactuals[0].changes] == ["debt"]

    def test_hours_beyond_their_range_change_in_every_answer(self) -> None:
        limits = {"ranges": {"hours": [None, 60]}}
        found = wrapped().explain(QUERY, count=5, constraints=limits)[0]
        assert len(found.counterfactuals) == 5
        checker = Checker(decide, FRAME, [limits], 1)
        for answer in found.counterfactuals:
            assert answer.row["hours"] <= 60
            assert checker.faults(QUERY.iloc[0], answer.row) == []
        nearest = FRAME["hours"][FRAME["hours"] <= 60].max()
        assert found.counterfactuals[0].row["hours"] == nearest

    def test_a_row_that_is_favourable_once_repaired(self) -> None:
        """It only has to leave its forbidden value behind: the repaired row is the first candidate."""
        model = OpenModel("test", (0, 1), lambda rows: (rows["hours"] != 70).to_numpy().astype(int))
        found = wrapped(model, constraints={"ranges": {"hours": [None, 60]}}).explain(QUERY)[0]
        assert [change.feature for change in found.counterfactuals[0].changes] == ["hours"]

    def test_max_changes(self) -> None:
        model = OpenModel("test", (0, 1), lambda rows: ((rows["debt"] < 200) & (rows["job"] == "b")).astype(int))
        needs_two = wrapped(model).explain(QUERY)[0]
        assert needs_two.counterfactuals[0].n_changed == 2
        assert wrapped(model, constraints={"max_changes": 1}).explain(QUERY)[0].status == "not_found"
        assert wrapped(model, constraints={"max_changes": 2}).explain(QUERY)[0].status == "found"
        grouped = {"max_changes": 1, "groups": [["debt", "job"]]}
        assert wrapped(model, constraints=grouped).explain(QUERY)[0].counterfactuals[0].n_changed == 2

    def test_groups_stay_observed(self) -> None:
        groups = {"groups": [["debt", "job", "member"]]}
        observed = set(FRAME[["debt", "job", "member"]].itertuples(index=False, name=None))
        for answer in wrapped().explain(QUERY, count=5, constraints=groups)[0].counterfactuals:
            assert tuple(answer.row[name] for name in ("debt", "job", "member")) in observed

    def test_generations(self) -> None:
        for least in (1, 3, 7):
            found = wrapped(explainer=GeCo(min_generations=least)).explain(QUERY)[0]
            assert found.diagnostics["generations"] >= least
        assert wrapped(explainer=GeCo(max_generations=1)).explain(QUERY)[0].diagnostics["generations"] == 1

    def test_ends_when_there_is_nothing_new(self) -> None:
        frame = pd.DataFrame({"x": [1, 2, 3], "y": ["p", "q", "p"]})
        never = OpenModel("test", (0, 1), lambda rows: np.zeros(len(rows), dtype=int))
        found = wrapped(never, frame, explainer=GeCo(max_generations=10**6, last_resort=False)).explain(
            frame.iloc[[0]]
        )[0]
        assert found.status == "not_found"
        assert found.evaluations == 5  # 3 x 2 combinations without the row itself, each scored once

    def test_no_row_is_scored_twice(self) -> None:
        seen: Counter[tuple[Any, ...]] = Counter()

        def count(rows: pd.DataFrame) -> np.ndarray:
            seen.update(rows.itertuples(index=False, name=None))
            return np.zeros(len(rows), dtype=int)

        loan = wrapped(OpenModel("test", (0, 1), count), explainer=GeCo(last_resort=False))
        seen.clear()
        found = loan.explain(QUERY)[0]
        assert found.evaluations == sum(seen.values()) - 1
        assert max(seen.values()) == 1

    def test_count_brings_distinct_changed_sets_first(self) -> None:
        model = OpenModel("test", (0, 1), lambda rows: ((rows["debt"] < 200) | (rows["job"] == "b")).astype(int))
        answers = wrapped(model).explain(QUERY, count=10)[0].counterfactuals
        sets = [frozenset(change.feature for change in answer.changes) for answer in answers]
        distinct = list(dict.fromkeys(sets))
        assert set(distinct) == {frozenset({"debt"}), frozenset({"job"})}  # others would undo a needless change
        assert set(sets[:2]) == set(distinct)
        rows = [tuple(answer.row.items()) for answer in answers]
        assert len(set(rows)) == len(rows)
        for part in (answers[: len(distinct)], answers[len(distinct) :]):
            assert all(one.distance <= two.distance for one, two in pairwise(part))

    @pytest.mark.parametrize("count", [20, 30])
    def test_more_results_than_survivors(self, count: int) -> None:
        with pytest.raises(InputError, match=f"count: {count} results need more than 20 survivors; raise GeCo's q"):
            wrapped(limits={"count": 90}).explain(QUERY, count=count, explainer=GeCo(q=20))

    def test_continuous_values(self) -> None:
        frame = FRAME.assign(income=FRAME["income"].astype("float32"))
        model = OpenModel("test", (0, 1), lambda rows: ((rows["income"] > 33.3) & (rows["income"] < 33.4)).astype(int))
        query = QUERY.assign(income=QUERY["income"].astype("float32"))
        if not ((frame["income"] > 33.3) & (frame["income"] < 33.4)).any():
            assert wrapped(model, frame).explain(query)[0].status == "not_found"
        limits = {"ranges": {"income": [33, 34]}, "immutable": ["debt", "hours", "job", "member"]}
        found = wrapped(model, frame, values="continuous", constraints=limits).explain(query)[0]
        assert found.status == "found"
        assert 33.3 < found.counterfactuals[0].row["income"] < 33.4
        checker = Checker(model.decide, frame, [limits], 1, values="continuous")
        assert checker.faults(query.iloc[0], found.counterfactuals[0].row) == []


@pytest.mark.parametrize("explainer", ["geco", "exact", "ceocl"])
def test_a_network_that_ignores_a_column_is_searched_through_the_others(explainer: str) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.integers(0, 10, 200), "b": rng.integers(0, 6, 200), "c": rng.normal(size=200)})
    steps = make_column_transformer((StandardScaler(), ["a", "b"]))  # leaves c out
    network = MLPClassifier((20,), solver="lbfgs", max_iter=300, random_state=0)
    model = make_pipeline(steps, network).fit(rows, rows["a"] + rows["b"] > 8)
    refused = rows[~model.predict(rows)].head(3)
    wrapped = mlflow_cf.wrap(model, rows, target=True, explainer=explainer)
    kept = mlflow_cf.wrap(model, rows, target=True, explainer=explainer, constraints={"immutable": ["c"]})
    found, expected = wrapped.explain(refused, count=2), kept.explain(refused, count=2)
    for one, other in zip(found, expected, strict=True):
        assert one.status == "found"
        assert [each.distance for each in one.counterfactuals] == [each.distance for each in other.counterfactuals]


def test_levels_with_the_same_effect_are_no_line_of_steps() -> None:
    rng = np.random.default_rng(0)
    plans = rng.choice(["basic", "p1", "p2", "p3"], 200, p=[0.7, 0.1, 0.1, 0.1])
    rows = pd.DataFrame({"income": rng.integers(10, 100, 200), "plan": plans})
    encoder = OneHotEncoder(min_frequency=0.3)  # p1, p2 and p3 become one column
    steps = make_column_transformer((encoder, ["plan"]), (StandardScaler(), ["income"]))
    model = make_pipeline(steps, LogisticRegression()).fit(rows, rows["income"] - 30 * (plans == "basic") > 40)
    refused = rows[~model.predict(rows)]
    wrapped = mlflow_cf.wrap(model, rows, target=True, constraints={"immutable": ["income"]})
    for one, (_, row) in zip(wrapped.explain(refused), refused.iterrows(), strict=True):
        others = pd.DataFrame([row] * 4).assign(plan=["basic", "p1", "p2", "p3"])
        assert one.status == ("found" if model.predict(others).any() else "infeasible")
