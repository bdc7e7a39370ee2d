"""GeCo by sweeps: what it must find, what it obeys, and that nothing is left to chance."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from checker import Checker, Condition, Ruler
from forest_worlds import DISTANCES, RULES, forest_model, opened_problem
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import THOROUGH, dear, many
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from worlds import (
    FEATURES,
    GRADES,
    ORDERS,
    background,
    constraint_dicts,
    explained,
    lottery,
    row_dicts,
    stepped,
    table,
    wide_rows,
)

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import GeCo
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Target
from mlflow_cf.problem import Budget
from mlflow_cf.search.population import apart
from mlflow_cf.words.result import Explanation
from mlflow_cf.wrapping import assemble

SWEEPS, DRAWS = GeCo(sweep=True), GeCo(sweep=False)
LARGE = {"trees": 8, "depth": 5}
seeds = st.integers(0, 2**20)
# rows with levels the background lacks are scored by the model, not by what was opened of it
known_rows = wide_rows.filter(lambda row: row["job"] != "z" and row["grade"] != "odd")


def _rank(value: Any) -> int:
    return GRADES.index(value) if value in GRADES else -1


MEANT: dict[str, Condition] = {
    RULES[0]: lambda old, new: (
        min(_rank(old["grade"]), _rank(new["grade"])) < 0
        or _rank(new["grade"]) <= _rank(old["grade"])
        or new["age"] >= old["age"] + 1
    ),
    RULES[2]: lambda _, new: new["job"] != "a" or new["member"],
    RULES[3]: lambda _, new: new["rooms"] is not None and new["age"] + new["rooms"] <= 26,
}
meant = st.lists(st.sampled_from(sorted(MEANT)), unique=True, max_size=2)


def wrapped(model: OpenModel, frame: pd.DataFrame, **options: Any) -> ExplainedModel:
    made = assemble(model, frame, None, WrapOptions(features=FEATURES, explainer=SWEEPS, **options))
    assert made.opened.structure is not None, made.opened.note
    return made


def check(checker: Checker, query: dict[str, Any], found: Explanation, ruler: Ruler) -> None:
    """Check answers by the model and the constraints themselves; changed sets that differ come first, by distance."""
    assert found.status in {"found", "not_found", "infeasible", "already"}, found.reason
    sets = []
    for answer in found.counterfactuals:
        assert checker.faults(query, answer.row) == []
        assert answer.distance == pytest.approx(ruler.distance(query, answer.row), abs=1e-9)
        sets.append(tuple(checker.changed_groups(query, answer.row)))
    distinct = len(set(sets))
    assert len(set(sets[:distinct])) == distinct
    assert all(one.distance <= two.distance for one, two in pairwise(found.counterfactuals[:distinct]))


@dear(2)
@given(seeds, constraint_dicts, meant, known_rows, st.integers(1, 5), st.sampled_from(DISTANCES))
def test_answers_hold_and_no_single_change_is_nearer(
    seed: int, constraints: dict[str, Any], rules: list[str], query: dict[str, Any], count: int, weights: Any
) -> None:
    frame, model = background(seed), forest_model(seed, background(seed))
    demands = {**constraints, "rules": rules}
    try:
        made = wrapped(model, frame, target="yes", constraints=demands, distance=weights)
    except InputError:
        return  # groups whose rules depend on each other in a circle
    found = made.explain(table([query], frame), count=count)[0]
    checker = Checker(model.decide, frame, [constraints], "yes", ORDERS, rules=[MEANT[rule] for rule in rules])
    ruler = Ruler(frame, *weights, orders=ORDERS)
    check(checker, query, found, ruler)
    if found.status == "already":
        return
    singles = [
        {**query, **{name: line[name] for name in group}} for group in checker.groups() for line in row_dicts(frame)
    ]
    near = [ruler.distance(query, row) for row in singles if not checker.faults(query, row)]
    if near and all(rule(query, query) for rule in checker.rules) and not any(_own_breaks(checker, query)):
        assert found.status == "found"
        assert found.counterfactuals[0].distance <= min(near) + 1e-9


def _own_breaks(checker: Checker, query: dict[str, Any]) -> list[str]:
    return [fault for fault in checker.broken(query, query) if fault != "nothing changed"]


@dear(2)
@given(seeds, st.sampled_from(["grid", "continuous"]), constraint_dicts, known_rows)
def test_answers_hold_beyond_observed_values(
    seed: int, values: Any, constraints: dict[str, Any], query: dict[str, Any]
) -> None:
    frame = stepped(seed)
    model = forest_model(seed, frame)
    features = {**FEATURES, "age": {"step": 1}, "rooms": {"step": 1}}
    features |= {"income": {"step": 0.5}} if values == "grid" else {}
    options = WrapOptions("yes", constraints, SWEEPS, features, values=values)
    found = assemble(model, frame, None, options).explain(table([query], frame), count=3)[0]
    grids = {"age": (20, 26, 1), "rooms": (1, 4, 1)} | ({"income": (0.0, 2.5, 0.5)} if values == "grid" else {})
    checker = Checker(model.decide, frame, [constraints], "yes", ORDERS, values, grids)
    check(checker, query, found, Ruler(frame, orders=ORDERS))


class TestChance:
    def test_the_seed_does_not_matter(self) -> None:
        frame = background(5, 40)
        made = wrapped(forest_model(5, frame, **LARGE), frame, target="yes", constraints={"rules": list(RULES[:2])})
        rows = frame[made.model.decide(frame) == "no"][:5]
        answers = [
            [[cf.row for cf in found.counterfactuals] for found in made.explain(rows, count=3, seed=seed)]
            for seed in range(20)
        ]
        assert all(answer == answers[0] for answer in answers)
        assert sum(map(bool, answers[0])) > 3

    def test_nothing_is_drawn(self) -> None:
        class Untouched(np.random.Generator):
            def __getattribute__(self, name: str) -> Any:
                raise AssertionError(name)

        frame = stepped(2)
        made = wrapped(forest_model(2, frame), frame, target="yes", values="continuous")
        (query,) = [frame.iloc[[n]] for n in range(len(frame)) if made.model.decide(frame.iloc[[n]])[0] == "no"][:1]
        problem = opened_problem(made, query)
        candidates = SWEEPS.search(problem, Budget(10**6), Untouched(np.random.PCG64()))
        assert len(candidates.rows)

    @pytest.mark.parametrize("seed", range(6))
    def test_drawing_is_the_same_with_and_without_a_structure(self, seed: int) -> None:
        frame = background(seed, 30)
        model = forest_model(seed, frame)
        constraints = {"rules": [RULES[seed % 3]], "groups": [["income", "rooms"]] if seed % 2 else []}
        opened = wrapped(model, frame, target="yes", constraints=constraints)
        blind = explained(replace(model, compile=None), frame, constraints)
        assert blind.opened.structure is None
        rows = frame[model.decide(frame) == "no"][: many(5, len(frame))]
        with_it, without = (
            [[cf.row for cf in found.counterfactuals] for found in made.explain(rows, count=2, explainer=DRAWS)]
            for made in (opened, blind)
        )
        assert with_it == without


def test_several_answers_where_a_number_has_very_many_values() -> None:
    """What grows with the square of the values does not end: 60,000 of them took 27 GB."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60_000, 2)), columns=["a", "b"])
    made = mlflow_cf.wrap(LogisticRegression().fit(frame, frame["a"] + frame["b"] > 1), frame, target=True)
    (found,) = made.explain(frame[frame["a"] + frame["b"] < 0].iloc[:1], count=3)
    assert len(found.counterfactuals) == 3


def test_a_model_that_is_not_opened_is_refused() -> None:
    frame = background(0)
    made = explained(lottery(0), frame)
    refused = frame[made.model.decide(frame) == "no"]
    with pytest.raises(InputError, match=r"explainer\.sweep: the model could not be opened; .*describe\(\) says why"):
        made.explain(refused, explainer=SWEEPS)
    assert made.explain(refused, explainer=GeCo(sweep="auto"))


class TestLimits:
    FRAME = background(11, 60)
    MODEL = forest_model(11, FRAME, **LARGE)
    ROWS = FRAME[MODEL.decide(FRAME) == "no"]

    @pytest.mark.parametrize("most", [1, 2, 3, 5, 9, 17, 33, 65, 200, 1000])
    def test_never_more_rows_than_allowed(self, most: int) -> None:
        for groups in ([], [["job", "grade"], ["income", "rooms"]]):
            made = wrapped(self.MODEL, self.FRAME, target="yes", constraints={"groups": groups})
            for found in made.explain(self.ROWS[: many(8, len(self.ROWS))], max_evaluations=most, count=2):
                assert found.evaluations <= most
                assert found.status in {"found", "budget"} if most < 200 else {"found", "not_found"}
                if most < 3:
                    assert found.status == "budget"
                    assert "evaluation limit" in found.reason

    def test_the_clock(self) -> None:
        made = wrapped(self.MODEL, self.FRAME, target="yes")
        late = made.explain(self.ROWS, time_limit_s=1e-6)
        assert {found.status for found in late} == {"budget"}
        assert all("time limit" in found.reason for found in late)

    @pytest.mark.parametrize("most", [1, 2, 3])
    def test_max_changes(self, most: int) -> None:
        made = wrapped(self.MODEL, self.FRAME, target="yes", constraints={"max_changes": most})
        answers = [cf for found in made.explain(self.ROWS, count=5) for cf in found.counterfactuals]
        assert max(cf.n_changed for cf in answers) <= most
        if most > 1:
            assert max(cf.n_changed for cf in answers) > 1  # beyond single changes

    @pytest.mark.parametrize("count", range(1, 6))
    def test_answers_change_different_sets_as_many_as_by_drawing(self, count: int) -> None:
        """What contains another answer's changes is none of its own, however near it is."""
        made, rows = wrapped(self.MODEL, self.FRAME, target="yes"), self.ROWS[: many(12, len(self.ROWS))]
        swept, drawn = (
            [found.counterfactuals for found in made.explain(rows, count=count, explainer=explainer)]
            for explainer in (SWEEPS, DRAWS)
        )
        found, others = (
            [len({frozenset(change.feature for change in cf.changes) for cf in answers}) for answers in side]
            for side in (swept, drawn)
        )
        assert sum(found) >= 0.97 * sum(others)

    def test_changed_sets_apart(self) -> None:
        sets = np.array(
            [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 1]], dtype=bool
        )
        assert apart(sets, 9) == [0, 2, 3, 5]
        assert apart(sets, 2) == [0, 2]
        assert apart(sets[:0], 2) == []

    def test_more_answers_begin_with_those_of_fewer(self) -> None:
        made = wrapped(self.MODEL, self.FRAME, target="yes")
        first = [found.counterfactuals[0].distance for found in made.explain(self.ROWS)]
        for count in (2, 5):
            again = [found.counterfactuals[0].distance for found in made.explain(self.ROWS, count=count)]
            assert np.mean(np.isclose(again, first)) >= 0.95
            assert np.mean(again) <= np.mean(first) + 1e-9


def test_the_largest_debt_that_is_small_enough() -> None:
    """GeCo section 10: M = [debt <= 100]."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"debt": rng.integers(0, 400, 60), "hours": rng.integers(30, 80, 60)})
    model = DecisionTreeClassifier(max_depth=1).fit(frame, frame["debt"] <= 100)
    made = mlflow_cf.wrap(model, frame, target=True, explainer=SWEEPS)
    found = made.explain(pd.DataFrame({"debt": [390], "hours": [70]}))[0]
    assert [change.feature for change in found.counterfactuals[0].changes] == ["debt"]
    assert found.counterfactuals[0].row["debt"] == frame["debt"][frame["debt"] <= 100].max()
    limits = {"ranges": {"hours": [None, 60]}}
    both = made.explain(pd.DataFrame({"debt": [390], "hours": [70]}), constraints=limits)[0].counterfactuals[0]
    assert both.row == {
        "debt": frame["debt"][frame["debt"] <= 100].max(),
        "hours": frame["hours"][frame["hours"] <= 60].max(),
    }


WEIGHTS = [(0.5, 0.5, 0.0), (0.2, 0.3, 0.5), (0.5, 0.0, 0.5)]


@pytest.mark.parametrize("weights", [[alone] for alone in WEIGHTS] if THOROUGH else [WEIGHTS], ids=str)
def test_drawing_is_hardly_ever_nearer(weights: Any) -> None:
    pairs = []
    for seed in range(12):  # fewer would say little about how often
        frame = background(seed, 40)
        constraints = {"rules": [RULES[seed % len(RULES)]] if seed % 2 else []}
        made = wrapped(
            forest_model(seed, frame, **LARGE),
            frame,
            target="yes",
            constraints=constraints,
            distance=weights[seed % len(weights)],
        )
        rows = frame[made.model.decide(frame) == "no"]
        for swept, drawn in zip(made.explain(rows), made.explain(rows, explainer=DRAWS), strict=True):
            assert swept.status in {drawn.status, "found"}
            if drawn.counterfactuals:
                pairs.append((swept.counterfactuals[0].distance, drawn.counterfactuals[0].distance))
    swept_far, drawn_far = np.array(pairs).T
    assert len(pairs) > 100
    assert (swept_far <= drawn_far + 1e-12).mean() >= 0.97
    assert swept_far.mean() <= drawn_far.mean() + 1e-12


class Reply(NamedTuple):
    """What the model says of the row to explain and of a counterfactual, with its probabilities."""

    own: Any
    said: Any
    shares: np.ndarray


ABC, SURE = ("a", "b", "c"), Target(label="yes", min_probability=0.8)
TARGETS: dict[str, tuple[tuple[Any, ...], Target, Callable[[Reply], bool]]] = {
    "multiclass": (ABC, Target(label="b"), lambda reply: reply.said == "b"),
    "other": (ABC, Target.other(), lambda reply: reply.said != reply.own),
    "sure of another": (ABC, Target.other(0.6), lambda reply: reply.said != reply.own and reply.shares.max() >= 0.6),
    "sure": (("no", "yes"), SURE, lambda reply: reply.said == "yes" and reply.shares[1] >= 0.8),
    "value": ((), Target(low=0.5, high=1.5), lambda reply: 0.5 <= reply.said <= 1.5),
    "open value": ((), Target(high=-2.0), lambda reply: reply.said <= -2.0),
}


@pytest.mark.parametrize("kind", TARGETS)
def test_every_kind_of_target_is_met_as_the_model_says(kind: str) -> None:
    classes, target, met = TARGETS[kind]
    answered = 0
    for seed in range(many(1, 3)):
        frame = background(seed, 40)
        model = forest_model(seed, frame, classes, trees=9, depth=5)
        made = wrapped(model, frame, target=target)
        own = model.decide(frame)
        for number, found in enumerate(made.explain(frame, count=2)):
            for cf in found.counterfactuals:
                row = table([cf.row], frame)
                shares = np.zeros(1) if model.score is None else model.score(row)[0]
                assert met(Reply(own[number], model.decide(row)[0], shares))
                answered += 1
    assert answered > many(16, 50)


@dear(2)
@given(seeds, known_rows, meant)
def test_a_row_that_breaks_its_own_limits_is_mended(seed: int, query: dict[str, Any], rules: list[str]) -> None:
    """Ranges that exclude the row's values: every answer has left them behind."""
    frame = background(seed, 30)
    limits = {"ranges": {"age": [20, 23], "income": [0, 1]}, "levels": {"job": ["a", "b"]}}
    model = forest_model(seed, frame, **LARGE)
    made = wrapped(model, frame, target="yes", constraints={**limits, "rules": rules})
    assume(query["age"] > 23 or query["job"] == "c")
    found = made.explain(table([query], frame), count=2)[0]
    checker = Checker(model.decide, frame, [limits], "yes", ORDERS, rules=[MEANT[rule] for rule in rules])
    check(checker, query, found, Ruler(frame, orders=ORDERS))
