"""Certificates of several answers, on a line of values that one can follow by hand."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.engine.engine import Engine
from mlflow_cf.explainers.explainer import Candidates
from mlflow_cf.goal import BoundTarget, Scorer
from mlflow_cf.policy import Target
from mlflow_cf.problem import Budget
from mlflow_cf.proof import complete
from mlflow_cf.proof.certify import at_once, certify
from mlflow_cf.proof.pipeline import run_inquiries
from mlflow_cf.proof.verify import RowTask, verify_rows
from mlflow_cf.words.reasons import Uncertified

DATA = pd.DataFrame({"age": np.arange(11) * 10, "income": np.arange(11) * 10, "rooms": np.arange(11) % 3})
ROW = pd.DataFrame({"age": [10], "income": [10], "rooms": [0]})


def tree():
    """Return a tree that accepts an age from 40 on, or an income from 80 on."""
    grid = pd.DataFrame([(a, i, r) for a in DATA["age"] for i in DATA["income"] for r in range(3)], columns=[*DATA])
    return DecisionTreeClassifier().fit(grid, ((grid["age"] >= 40) | (grid["income"] >= 80)).astype(int))


def answers(explained, **options):
    (answer,) = explained.explain(ROW, certify=True, **options)
    return [({change.feature: change.new for change in found.changes}, found.proof) for found in answer.counterfactuals]


@pytest.mark.parametrize("explainer", ["geco", "exact", "nearest_row", "random_search"])
def test_changed_sets_come_first_then_further_values_of_them(explainer):
    explained = mlflow_cf.wrap(tree(), DATA, target=1, explainer=explainer)
    assert answers(explained, count=5) == [
        ({"age": 40}, "optimal"),
        ({"income": 80}, "optimal"),
        ({"age": 50}, "optimal"),
        ({"age": 60}, "optimal"),
        ({"age": 70}, "optimal"),
    ]


def test_where_there_are_no_more_there_are_fewer():
    explained = mlflow_cf.wrap(tree(), DATA, target=1, constraints={"immutable": ["age"]}, explainer="exact")
    assert answers(explained, count=9) == [({"income": value}, "optimal") for value in (80, 90, 100)]


def test_largest_changes_choose_the_nearest_of_a_cell():
    """Where nothing else grows with a change, the values of a cell are told apart by the largest change alone."""
    model = DecisionTreeClassifier(random_state=0).fit(
        DATA[["age"]].join(0 * DATA.drop(columns="age"))[list(DATA)], (DATA["age"] <= 60).astype(int)
    )
    explained = mlflow_cf.wrap(
        model, DATA, target=1, constraints={"immutable": ["income", "rooms"]}, distance=(0.5, 0, 0.5)
    )
    (answer,) = explained.explain(ROW.assign(age=100), explainer="exact")
    assert answer.counterfactuals[0].row["age"] == 60


def line_of(accepted):
    """Return a tree over one feature that accepts some of the numbers 0 to 10."""
    line = pd.DataFrame({"x": np.arange(11)})
    return DecisionTreeClassifier(random_state=0).fit(line, line["x"].isin(accepted).astype(int)), line


def row_task(judging, wrong, count):
    """Return the row 0, judged by one model and searched by the structure of another one."""
    target = BoundTarget(Target(label=1), judging.model)
    problem = judging.bound_policy.bind(
        np.array([0.0]),
        space=judging.space,
        count=count,
        rate=lambda Z: target.rate(judging.judge.verdict(judging.space.decode(Z))),
        rate_background=lambda: target.rate(judging.outcome),
        scorer=Scorer.of([(wrong.opened.structure, target)], len(judging.space)),
    )
    return RowTask(Engine(problem), target, Budget(10**6))


def test_a_structure_that_refuses_what_the_judge_accepts_proves_nothing():
    """The judge accepts 3 and 7, the structure 3 alone: of what is nearer than 3 it may be wrong as well."""
    (model, line), (other, _) = line_of([3, 7]), line_of([3])
    judging, wrong = (mlflow_cf.wrap(tree, line, target=1) for tree in (model, other))
    task = row_task(judging, wrong, count=1)
    (known,) = run_inquiries(judging.judge, judging.space, [verify_rows(task, np.array([[7.0]]), polish=True)])
    assert known.rows.tolist() == [[7.0]]
    (found,) = run_inquiries(judging.judge, judging.space, [certify(task, known, 1e-6)])
    assert found.note == Uncertified("disagree")
    assert (found.rows.tolist(), found.proofs) == ([[7.0]], ())


def known_answer(beyond):
    """Return a model with a value so far beyond its boundary, the row 0, its answer 6, and the value."""
    line = pd.DataFrame({"x": np.arange(11.0)})
    model = LogisticRegression().fit(line, (line["x"] > 5).astype(int))
    value = (beyond - model.intercept_[0]) / model.coef_[0, 0]
    judging = mlflow_cf.wrap(model, pd.DataFrame({"x": np.append(line["x"], value)}), target=1)
    task = row_task(judging, judging, count=1)
    (known,) = run_inquiries(judging.judge, judging.space, [verify_rows(task, np.array([[6.0]]), polish=True)])
    return judging, task, known, value


def settled_at_once(judging, task, known):
    """Return what is proved at once, and how many rows that takes."""
    used = task.budget.used
    (found,) = run_inquiries(judging.judge, judging.space, [at_once(task, known, 1e-6)])
    return found.proofs, task.budget.used - used


def test_what_only_a_search_doubts_keeps_no_answer_from_being_proved_at_once():
    """A value just this side of the boundary is certainly none; a search that doubts more has listed it, too."""
    judging, task, known, nearly = known_answer(-4e-5)
    listed = task.engine.few.nearest_singles(np.inf, 1e-4, 1)[0]
    assert task.problem.rows(listed)[:2].tolist() == [[nearly], [6.0]]
    assert settled_at_once(judging, task, known) == (("optimal",), 0)


@pytest.mark.parametrize(("beyond", "proofs"), [(-1e-7, ("optimal",)), (1e-7, ())])
def test_the_judge_is_asked_about_what_is_nearer_and_in_doubt(beyond, proofs):
    """A value next to the boundary is nearer than the answer; the structure is not sure on which side it lies."""
    judging, task, known, _ = known_answer(beyond)
    assert settled_at_once(judging, task, known) == (proofs, 1)
    (found,) = run_inquiries(judging.judge, judging.space, [certify(task, known, 1e-6)])
    assert (found.rows[0, 0] == 6.0, found.proofs) == (bool(proofs), ("optimal",))


def test_what_the_judge_refuses_is_no_answer_although_the_structure_is_certain():
    """Both accept 3; of the same changed set the structure is certain of 7, too, which the judge refuses."""
    (model, line), (other, _) = line_of([3]), line_of([3, 7])
    judging, wrong = (mlflow_cf.wrap(tree, line, target=1) for tree in (model, other))
    task = row_task(judging, wrong, count=2)
    (known,) = run_inquiries(judging.judge, judging.space, [verify_rows(task, np.array([[3.0]]), polish=True)])
    (found,) = run_inquiries(judging.judge, judging.space, [complete.filled(task, known, 1e-6, 10_000)])
    assert found.rows.tolist() == [[3.0]]
    assert len(found.outcome.codes) == 1
    task = row_task(judging, wrong, count=2)
    (found,) = run_inquiries(judging.judge, judging.space, [certify(task, known, 1e-6)])
    assert (found.rows.tolist(), found.note) == ([[3.0]], Uncertified("disagree"))


def test_no_bound_is_beyond_its_own_answer():
    """The nearest row of the background changes more than it has to, and the search is past it when it is cut."""
    data = DATA.assign(income=np.arange(11)[::-1] * 10)
    explained = mlflow_cf.wrap(tree(), data, target=1, explainer="nearest_row")
    capped = 0
    for most in range(12, 36):
        (answer,) = explained.explain(ROW, count=4, certify=True, max_evaluations=most)
        for found in answer.counterfactuals:
            assert found.bound is None or found.bound <= found.distance
            capped += found.proof == "bounded"
    assert capped


@dataclass(frozen=True)
class Knows:
    """An explainer that proposes given rows (k, d)."""

    rows: tuple[tuple[float, ...], ...]

    name: ClassVar[str] = "knows"
    polish: ClassVar[bool] = True

    def search(self, problem, budget, rng):
        del problem, budget, rng
        return Candidates(np.array(self.rows))


def test_rows_known_before_do_not_hide_that_one_answer_stands_for_two_of_them():
    """Of the last three, (4, 4) is nearest and about the same as both others, so that (9, 9) is the third answer."""
    wanted = {(1, 1), (9, 9), (3, 6), (6, 3), (4, 4)}
    grid = pd.DataFrame([(x, y) for x in range(11) for y in range(11)], columns=["x", "y"])
    tree = DecisionTreeClassifier(random_state=0).fit(
        grid, [int(pair in wanted) for pair in grid.itertuples(index=False)]
    )
    explainer = Knows(((1, 1), (3, 6), (6, 3)))
    explained = mlflow_cf.wrap(
        tree, grid, target=1, distance=(0, 1, 0), explainer=explainer, min_difference=0.25
    )  # fmt: skip
    row = pd.DataFrame({"x": [0], "y": [0]})
    (known,) = explained.explain(row, count=3)
    assert [(cf.row["x"], cf.row["y"]) for cf in known.counterfactuals] == [(1, 1), (3, 6), (6, 3)]
    (answer,) = explained.explain(row, count=3, certify=True)
    assert [(cf.row["x"], cf.row["y"]) for cf in answer.counterfactuals] == [(1, 1), (4, 4), (9, 9)]
    assert {cf.proof for cf in answer.counterfactuals} == {"optimal"}


class TestNearCopies:
    """What changes the same features, and numbers by hardly anything more, is no other answer."""

    ROWS = pd.DataFrame({"income": np.arange(0, 1000, 10), "job": ["cook", "nurse"] * 50})

    def explained(self, **options):
        return mlflow_cf.wrap(
            lambda rows: (rows["income"] >= 500).astype(int), self.ROWS, target=1, output="label", **options
        )

    @pytest.mark.parametrize("explainer", ["geco", "nearest_row", "random_search"])
    def test_they_are_left_out(self, explainer):
        made = self.explained(explainer=explainer, constraints={"immutable": ["job"]})
        (answer,) = made.explain(self.ROWS.iloc[:1], count=4)
        incomes = sorted(cf.row["income"] for cf in answer.counterfactuals)
        assert len(incomes) > 1
        assert min(np.diff(incomes)) >= 0.05 * 990

    def test_fewer_answers_say_why(self):
        made = self.explained(constraints={"immutable": ["job"], "ranges": {"income": [0, 540]}})
        (answer,) = made.explain(self.ROWS.iloc[:1], count=3)
        assert [cf.row["income"] for cf in answer.counterfactuals] == [500]
        assert answer.reason == (
            "1 of 3 counterfactuals asked for: "
            "nothing else was found that changes other features, or a number by 5% of its range more"
        )

    def test_fewer_answers_under_a_limit_say_that(self):
        made = self.explained()
        answers = [made.explain(self.ROWS.iloc[:1], count=9, max_evaluations=most)[0] for most in range(10, 60, 5)]
        few = [answer for answer in answers if 0 < len(answer.counterfactuals) < 9]
        assert few
        assert all("stopped by the evaluation limit" in answer.reason for answer in few)

    def test_as_many_as_were_asked_for_need_no_reason(self):
        (answer,) = self.explained().explain(self.ROWS.iloc[:1], count=1)
        assert answer.reason == ""


@dataclass(frozen=True)
class FindsOne:
    """An explainer that finds a single answer, and says so."""

    name: ClassVar[str] = "finds_one"
    polish: ClassVar[bool] = True

    def search(self, problem, budget, rng):
        del budget, rng
        return Candidates(np.where(np.arange(len(problem.x0)) == 0, 40.0, problem.x0)[None], complete=True)


@pytest.mark.parametrize(("most", "found"), [((2,), 1), ((2, 10_000), 5)])
def test_where_too_little_was_looked_at_for_all_answers_more_is(monkeypatch, most, found):
    monkeypatch.setattr(complete, "MOST", most)
    explained = mlflow_cf.wrap(tree(), DATA, target=1, explainer=FindsOne())
    (answer,) = explained.explain(ROW, count=5)
    assert len(answer.counterfactuals) == found
    assert bool(answer.reason) == (found < 5)
