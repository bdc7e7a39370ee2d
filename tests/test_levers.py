"""Levers as users ask for them: in Python, in a request, with policies that forbid them."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeClassifier
from small_loans import CONSTRAINTS, fitted, rejected, table

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.levers import nearest
from mlflow_cf.levers.sets import MOST_SETS
from mlflow_cf.words.levers import Levers
from mlflow_cf.words.result import LeverSet

FRAME = table()
MODEL = fitted(FRAME)
ROWS = rejected(FRAME, 6)


def wrapped(constraints=CONSTRAINTS, **options):
    return mlflow_cf.wrap(MODEL, FRAME, constraints=constraints, target="good", **options)


@pytest.fixture(scope="module")
def explained():
    return wrapped()


def by_features(levers):
    return {one.features: one for one in levers}


def test_every_set_of_up_to_two(explained):
    levers = explained.levers(ROWS.iloc[[0]], levers=2)
    assert len(levers) == 10  # of four features that may change
    assert {one.status for one in levers} <= {"found", "implied", "infeasible"}
    for one in levers:
        if one.status == "found":
            assert {change.feature for change in one.changes} == set(one.features)
            assert one.proof == "optimal"
            assert MODEL.predict(one.counterfactual and levers.space.from_values([one.counterfactual.row])) == ["good"]
        elif one.status == "implied":
            assert set(one.by) < set(one.features)
            assert by_features(levers)[one.by].status == "found"
        assert one.works == (one.status != "infeasible")


def test_a_set_has_the_answer_of_a_request_that_holds_all_else_fixed(explained):
    for row in range(len(ROWS)):
        one_row, sets = ROWS.iloc[[row]], [["income"], ["owner", "debts"], ["income", "job", "debts"]]
        for names, one in zip(sets, explained.levers(one_row, levers=sets), strict=True):
            fixed = [name for name in FRAME if name not in names]
            (found,) = explained.explain(one_row, constraints={"immutable": fixed}, certify=True)
            assert (found.status == "infeasible") == (one.status == "infeasible")
            if found.counterfactuals:
                assert one.counterfactual == found.counterfactuals[0]


def test_a_declared_group_is_one_lever():
    explained = wrapped({**CONSTRAINTS, "groups": [["job", "owner"]]})
    (named, single) = explained.levers(ROWS.iloc[[0]], levers=[["job"], ["income"]])
    assert named.features == ("job", "owner")
    assert single.features == ("income",)
    assert [one.features for one in explained.levers(ROWS.iloc[[0]], levers=1)] == [
        ("income",),
        ("job", "owner"),
        ("debts",),
    ]


def test_constraints_of_a_call_hold(explained):
    asked = {"immutable": ["age", "debts"], "ranges": {"income": [0, 41]}}
    levers = explained.levers(ROWS.iloc[[0]], levers=1, constraints=asked)
    assert [one.features for one in levers] == [("income",), ("job",), ("owner",)]
    assert by_features(levers)[("income",)].status == "infeasible"


def test_a_row_that_is_as_wanted_has_none(explained):
    good = FRAME[MODEL.predict(FRAME) == "good"].head(1)
    levers = explained.levers(good)
    assert levers.already
    assert len(levers) == 0
    assert "already" in str(levers)
    assert explained.explain(good, levers=2)[0].levers == ()


def test_continuous_numbers():
    explained = wrapped(values="continuous")
    levers = by_features(explained.levers(ROWS.iloc[[0]], levers=[["income"], ["job"]]))
    assert levers[("income",)].proof == "optimal"
    assert levers[("income",)].distance <= wrapped().levers(ROWS.iloc[[0]], levers=[["income"]])[0].distance
    assert levers[("job",)].status == "infeasible"


def test_a_model_that_is_not_opened():
    """What it says of every value is known, and nothing is proved."""
    explained = mlflow_cf.wrap(
        lambda rows: MODEL.predict_proba(rows)[:, list(MODEL.classes_).index("good")],
        FRAME, constraints=CONSTRAINTS, target=1, output="score",
    )  # fmt: skip
    levers = explained.levers(ROWS.iloc[[0]], levers=2)
    opened = by_features(wrapped().levers(ROWS.iloc[[0]], levers=1))
    for one in levers:
        assert one.status in ("found", "implied", "not_found")
        assert one.proof in (None, "none")
        if one.features in opened:
            assert one.distance == opened[one.features].distance


@pytest.fixture(scope="module")
def levers(explained):
    return explained.levers(ROWS.iloc[[0]], levers=2)


class TestShown:
    def test_table(self, levers):
        frame = levers.to_frame()
        assert list(frame) == ["features", "status", "distance", "probability", "proof", "changes"]
        assert len(frame) == len(levers)
        assert frame["distance"].notna().sum() == (frame["status"] == "found").sum()

    def test_text(self, levers):
        assert str(levers).startswith("10 sets: ")
        assert "income: income rises from 47 to 51.1: the prediction becomes good (distance 0.105, optimal)" in str(
            levers
        )
        assert "job: nothing works (proved)" in str(levers)
        assert repr(levers).startswith("Levers(10 sets")

    def test_picture(self, levers):
        picture = levers._repr_html_()
        assert picture.count("<rect") == 4 * 4  # three sets that work, one that does not; four features
        assert "<svg" in picture
        assert "income rises" in picture

    def test_the_longest_line_has_room(self, explained):
        (row,) = explained.explain(ROWS.iloc[[0]])
        long = replace(row.counterfactuals[0], text="income rises from 47 to 51.1 " * 10)
        picture = Levers((LeverSet(("income",), "found", counterfactual=long),), long.space)._repr_html_()
        assert int(re.search(r'<svg width="(\d+)"', picture)[1]) > 6 * len(long.text)

    def test_parts(self, levers):
        assert isinstance(levers[1:3], Levers)
        assert list(levers[1:3]) == list(levers)[1:3]
        assert [one.distance for one in levers.smallest] == sorted(one.distance for one in levers.smallest)

    def test_nothing_of_a_feature_is_markup(self):
        frame = pd.DataFrame({"<b>": np.arange(20.0), "more": np.arange(20) % 3})
        model = DecisionTreeClassifier().fit(frame, frame["<b>"] > 9)
        levers = mlflow_cf.wrap(model, frame, target=True, constraints={"increasing": ["more"]}).levers(frame.head(1))
        assert "&lt;b&gt;" in levers._repr_html_()
        assert "<b>" not in levers._repr_html_()


class TestBadInput:
    @pytest.mark.parametrize(
        ("levers", "message"),
        [
            ([["age"]], r"levers\[0\]: 'age' is immutable under the policy; leave it out"),
            ([["income"], ["incom"]], r"levers\[1\]: 'incom' is not a feature; did you mean 'income'\?"),
            (0, "levers: input should be greater than or equal to 1, got 0"),
            ("income", "levers: must be a number or a list, got 'income'"),
            (["income"], r"levers\[0\]: must be a list, got 'income'"),
            ([[]], r"levers\[0\]: names nothing; write lists of features"),
            ([], "levers: names nothing; write lists of features"),
            ([["income"]] * (MOST_SETS + 1), "levers"),
            (True, "levers: must be a number or a list, got True"),
        ],
    )
    def test_it_is_refused(self, explained, levers, message):
        with pytest.raises(InputError, match=message):
            explained.levers(ROWS.iloc[[0]], levers=levers)
        with pytest.raises(InputError, match=message):
            explained.request(ROWS, {"counterfactual": {"levers": levers}})

    def test_what_a_request_holds_fixed_is_no_lever(self, explained):
        options = {"levers": [["job"]], "constraints": {"immutable": ["age", "job"]}}
        with pytest.raises(InputError, match=r"levers\[0\]: 'job' is immutable under the request"):
            explained.request(ROWS, {"counterfactual": options})

    def test_too_many_sets(self):
        frame = pd.DataFrame(np.random.default_rng(0).random((50, 25))).add_prefix("f")
        model = DecisionTreeClassifier(max_depth=3).fit(frame, frame["f0"] + frame["f1"] > 1)
        explained = mlflow_cf.wrap(model, frame, target=True, constraints={"increasing": ["f0"]})
        with pytest.raises(InputError, match=r"levers: 2,625 sets of up to 3 of 25 levers are more than"):
            explained.levers(frame[~model.predict(frame)].head(1), levers=3)

    def test_also_where_no_row_needs_a_counterfactual(self, explained):
        good = FRAME[MODEL.predict(FRAME) == "good"].head(2)
        with pytest.raises(InputError, match=r"levers\[0\]"):
            explained.request(good, {"counterfactual": {"levers": [["age"]]}})

    def test_several_rows(self, explained):
        with pytest.raises(InputError, match="row: there are 6; give a single row"):
            explained.levers(ROWS)

    def test_a_policy_may_forbid_them(self):
        explained = wrapped(privacy={"levers": False})
        for options in ({"levers": 1}, {"responsiveness": True}):
            with pytest.raises(InputError, match=r"requests to this model may not ask for it \(privacy.levers\)"):
                explained.request(ROWS, {"counterfactual": options})
        assert len(explained.levers(ROWS.iloc[[0]], levers=1)) == 4  # its owner may


class TestInRequests:
    def test_the_reply_is_what_python_says(self, explained):
        (reply, *_) = explained.predict(ROWS, {"counterfactual": {"levers": 2}}).to_dict("records")
        expected = explained.levers(ROWS.iloc[[0]], levers=2)
        assert reply["levers"] == [one.to_dict() for one in expected]
        json.dumps(reply, allow_nan=False)

    def test_what_nobody_asked_for_is_empty(self, explained):
        (reply, *_) = explained.predict(ROWS).to_dict("records")
        assert reply["levers"] == []
        assert reply["responsiveness"] == {"responsive": None, "shares": [], "reason": ""}

    def test_a_row_does_not_depend_on_those_beside_it(self, explained):
        together = explained.explain(ROWS, levers=2, responsiveness=True)
        for row, one in enumerate(together):
            (alone,) = explained.explain(ROWS.iloc[[row]], levers=2, responsiveness=True)
            assert alone.levers == one.levers
            assert alone.responsiveness == one.responsiveness

    @settings(max_examples=10)
    @given(st.integers(1, 400))
    def test_the_limit_on_evaluations_holds(self, explained, most):
        for one in explained.explain(ROWS, levers=3, responsiveness=True, max_evaluations=most):
            assert one.evaluations <= most
            assert {lever.status for lever in one.levers} <= {"found", "implied", "infeasible", "budget", "not_found"}

    def test_no_time_is_no_error(self, explained):
        for one in explained.explain(ROWS, levers=2, responsiveness=True, time_limit_s=1e-6):
            assert {lever.status for lever in one.levers} == {"budget"}
            assert one.responsiveness.responsive is None
            assert "time limit" in one.responsiveness.reason

    def test_nothing_is_searched_once_the_time_is_over(self, explained, monkeypatch):
        monkeypatch.setattr(nearest, "_Run", lambda *_: pytest.fail("searched"))
        for one in explained.explain(ROWS, levers=2, time_limit_s=1e-6):
            assert {lever.status for lever in one.levers} == {"budget"}


class TestResponsiveness:
    def test_shares_are_those_of_the_model(self, explained):
        (one,) = explained.explain(ROWS.iloc[[0]], responsiveness=True)
        shares = {share.features: share for share in one.responsiveness.shares}
        assert set(shares) == {("income",), ("job",), ("owner",), ("debts",)}
        values = np.setdiff1d(FRAME["income"], ROWS["income"].iloc[:1])
        rows = ROWS.iloc[[0] * len(values)].assign(income=values)
        assert shares[("income",)].share == (MODEL.predict(rows) == "good").mean()
        assert shares[("income",)].changes == len(values)
        assert shares[("income",)].low is None
        assert one.responsiveness.responsive is True

    def test_nothing_a_person_can_do(self):
        explained = wrapped({"immutable": ["age", "income", "debts"]})
        found = explained.explain(ROWS, responsiveness=True)
        assert {one.status for one in found} == {"found", "infeasible"}
        for one in found:
            assert one.responsiveness.responsive is (one.status == "found")

    def test_frequencies_of_the_background_are_told_to_its_owner_alone(self, explained):
        options = {"counterfactual": {"responsiveness": True}}
        for answer in explained.request(ROWS, options):
            assert {share.weighted_share for share in answer.responsiveness.shares} == {None}
        shown = wrapped(privacy={"sample": "shown"}).request(ROWS, options)
        assert None not in {share.weighted_share for share in shown[0].responsiveness.shares}

    def test_of_a_model_that_is_not_opened_shares_are_drawn(self, monkeypatch):
        monkeypatch.setattr("mlflow_cf.levers.responses.DRAWN", 30)
        explained = mlflow_cf.wrap(
            lambda rows: MODEL.predict_proba(rows)[:, list(MODEL.classes_).index("good")],
            FRAME, constraints=CONSTRAINTS, target=1, output="score",
        )  # fmt: skip
        (one,) = explained.explain(ROWS.iloc[[0]], responsiveness=True)
        shares = {share.features: share for share in one.responsiveness.shares}
        assert shares[("income",)].changes == 30
        assert 0 <= shares[("income",)].low <= shares[("income",)].share <= shares[("income",)].high <= 1
        assert shares[("job",)].low is None  # all of its values were asked about


def test_who_cannot_turn_the_decision():
    """As a metric, by group, and as rows."""
    explained = wrapped({"immutable": ["age", "income", "debts"]})
    rows = FRAME[MODEL.predict(FRAME) == "bad"]
    found = mlflow_cf.evaluate(explained, rows, groups=["job"])
    fixed = [one.status == "infeasible" for one in explained.explain(rows)]
    assert found.metrics["cf/fixed_share"] == np.mean(fixed)
    for job, some in rows.assign(fixed=fixed).groupby("job"):
        assert found.metrics[f"cf/fixed_share/job.{job}"] == some["fixed"].mean()
    assert found.fixed().index.tolist() == rows.index[fixed].tolist()
