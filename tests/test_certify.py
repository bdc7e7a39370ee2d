"""Certificates of several answers, on a line of values that one can follow by hand."""

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.problem import BoundTarget, Budget, Rater, Target
from mlflow_cf.proof.certify import certify
from mlflow_cf.proof.inquiry import run_proofs
from mlflow_cf.proof.verify import Case, prove
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


def test_a_structure_that_refuses_what_the_judge_accepts_proves_nothing():
    """The judge accepts 3 and 7, the structure 3 alone: of what is nearer than 3 it may be wrong as well."""
    (model, line), (other, _) = line_of([3, 7]), line_of([3])
    judging, wrong = (mlflow_cf.wrap(tree, line, target=1) for tree in (model, other))
    target = BoundTarget(Target(label=1), judging.model)
    problem = judging.setting.bind(
        np.array([0.0]),
        space=judging.space,
        count=1,
        rate=lambda Z: target.rate(judging.judge.verdict(judging.space.decode(Z))),
        rate_background=lambda: target.rate(judging.outcome),
        rater=Rater.of([(wrong.opened.structure, target)], len(judging.space)),
    )
    case = Case(problem, target, Budget(10**6))
    (known,) = run_proofs(judging.judge, judging.space, [prove(case, np.array([[7.0]]), polish=True)])
    assert known.rows.tolist() == [[7.0]]
    (found,) = run_proofs(judging.judge, judging.space, [certify(case, known, 1e-6)])
    assert found.note == Uncertified("disagree")
    assert (found.rows.tolist(), found.proofs) == ([[7.0]], ())


def test_no_bound_is_beyond_its_own_answer():
    """The nearest row of the background changes more than it has to, and the search is past it when it is cut."""
    data = DATA.assign(income=np.arange(11)[::-1] * 10)
    explained = mlflow_cf.wrap(tree(), data, target=1, explainer="nearest_row")
    capped = 0
    for most in range(12, 24):
        (answer,) = explained.explain(ROW, count=4, certify=True, max_evaluations=most)
        for found in answer.counterfactuals:
            assert found.bound is None or found.bound <= found.distance
            capped += found.proof == "bounded" and found.bound == found.distance
    assert capped
