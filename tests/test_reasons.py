"""Reasons as owners and requests ask for them, with codes, alarms and notices."""

import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_world import ASKED, ask, leaks, served
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from small_loans import CONSTRAINTS, fitted, rejected, table

import mlflow_cf
from mlflow_cf.errors import InputError
from mlflow_cf.reasons.notice import Letter

FRAME = table()
MODEL = fitted(FRAME)
ROWS = rejected(FRAME, 6)
GOOD = FRAME[MODEL.predict(FRAME) == "good"].reset_index(drop=True)
WORDS = {"income": {"code": "C07", "text": "Income insufficient for amount of credit requested"}, "debts": "Debts"}


def wrapped(constraints=CONSTRAINTS, **options):
    return mlflow_cf.wrap(MODEL, FRAME, constraints=constraints, target="good", **options)


@pytest.fixture(scope="module")
def explained():
    return wrapped(reasons=WORDS)


def whole(told):
    return sum(one.contribution for one in told.factors) + told.rest


def every(told):
    return {name: one for one in (*told.factors, *told.others) for name in one.features}


class TestInPython:
    def test_they_are_the_model_s_own_weights(self, explained):
        """Of a linear model, a feature contributes its weights times the difference to the reference."""
        pipeline, row = MODEL, ROWS.iloc[[0]]
        told = explained.reasons(row)
        inside = pipeline[:-1].transform(pd.concat([row, GOOD]))
        terms = np.asarray(inside) * pipeline[-1].coef_[0]
        names = pipeline[0].get_feature_names_out()
        for feature, factor in every(told).items():
            mine = [at for at, name in enumerate(names) if name.split("__")[1].split("_")[0] == feature]
            expected = (terms[1:, mine].mean(axis=0) - terms[0, mine]).sum()
            assert factor.contribution == pytest.approx(expected, abs=1e-9)
        assert told.shortfall == pytest.approx(told.reference_score - told.score, abs=1e-12)
        assert told.scale == "log-odds"
        assert told.reference == f"the mean of {len(GOOD)} background rows decided as wanted"

    def test_the_owner_s_words(self, explained):
        found = every(explained.reasons(ROWS.iloc[[0]]))
        assert (found["income"].code, found["income"].told) == ("C07", WORDS["income"]["text"])
        assert (found["debts"].code, found["debts"].told) == ("", "Debts")
        assert found["owner"].told == "owner: false"

    def test_none_is_left_out_because_it_cannot_change(self):
        fixed = wrapped({"immutable": ["age", "income", "owner", "debts"]})
        assert fixed.reasons(ROWS.iloc[[0]]).to_frame().equals(wrapped().reasons(ROWS.iloc[[0]]).to_frame())

    def test_a_group_is_one_factor(self):
        told = wrapped({**CONSTRAINTS, "groups": [["income", "debts"]]}, reasons=WORDS).reasons(ROWS.iloc[[0]])
        apart = every(wrapped().reasons(ROWS.iloc[[0]]))
        (both,) = [one for one in told.factors if one.features == ("income", "debts")]
        assert both.contribution == pytest.approx(apart["income"].contribution + apart["debts"].contribution)
        assert both.told == f"{WORDS['income']['text']}; Debts"
        assert [value is None for value in both.values] == [False, False]

    def test_only_the_largest_are_principal(self, explained):
        one, all_of_them = (explained.reasons(ROWS.iloc[[0]], most=most) for most in (1, 4))
        assert one.factors == all_of_them.factors[:1]
        assert whole(one) == pytest.approx(one.shortfall, abs=1e-12)

    def test_a_row_of_the_median(self, explained):
        told = explained.reasons(ROWS.iloc[[0]], reference="favourable_median")
        assert told.reference.startswith("the median of ")
        assert whole(told) == pytest.approx(told.shortfall, abs=1e-12)

    def test_a_given_row(self, explained):
        for given_row in (GOOD.iloc[[0]], GOOD.iloc[0].to_dict()):
            told = explained.reasons(ROWS.iloc[[0]], reference=given_row)
            assert told.reference == "the given row"
            same = [name for name in FRAME if GOOD[name][0] == ROWS[name][0]]
            assert not set(every(told)) & set(same)

    def test_a_row_that_is_as_wanted_has_none(self, explained):
        told = explained.reasons(GOOD.iloc[[0]])
        assert (told.status, told.factors) == ("already", ())
        assert "already" in str(told)

    def test_missing_values_and_unseen_levels(self, explained):
        row = ROWS.iloc[[0]].assign(debts=np.nan, income=10.0)
        told = explained.reasons(row)
        assert every(told)["debts"].values == (None,)
        assert whole(told) == pytest.approx(told.shortfall, abs=1e-12)
        unseen = explained.reasons(ROWS.iloc[[0]].assign(job="astronaut", income=10.0))
        assert unseen.method == "exact"  # by all sets of players
        assert whole(unseen) == pytest.approx(unseen.shortfall, abs=1e-9)

    def test_shown(self, explained):
        told = explained.reasons(ROWS.iloc[[0]])
        assert "C07 Income insufficient" in str(told)
        assert list(told.to_frame()) == ["features", "contribution", "error", "principal", "code", "text"]
        assert told.to_frame()["contribution"].sum() == pytest.approx(told.shortfall)
        assert "<li>" in told._repr_html_()
        json.dumps(told.to_dict(), allow_nan=False)


class TestModels:
    def test_of_several_labels(self):
        labels = np.where(FRAME["age"] > 60, "c", np.where(FRAME["income"] > 40, "b", "a"))
        numbers = FRAME[["age", "income"]]
        model = GradientBoostingClassifier(n_estimators=10, random_state=0).fit(numbers, labels)
        explained = mlflow_cf.wrap(model, numbers, target="b", constraints={"immutable": ["age"]})
        for label in ("a", "c"):
            told = explained.reasons(numbers[model.predict(numbers) == label].head(1))
            assert told.against == label
            assert told.shortfall > 0
            assert whole(told) == pytest.approx(told.shortfall, abs=1e-9)
        other = explained.reasons(numbers[model.predict(numbers) == "a"].head(1), target={"other": True})
        assert other.against == "a"

    def test_of_a_number(self):
        numbers = FRAME[["age", "income"]]
        model = RandomForestRegressor(10, random_state=0).fit(numbers, FRAME["income"] - FRAME["age"] / 9)
        explained = mlflow_cf.wrap(model, numbers, target={"low": 34, "high": 36}, constraints={"immutable": ["age"]})
        values = model.predict(numbers)
        for row, sign in ((values.argmin(), 1), (values.argmax(), -1)):
            told = explained.reasons(numbers.iloc[[row]])
            assert told.scale == "value"
            assert told.score == pytest.approx(values[row])
            assert told.shortfall == pytest.approx(sign * (told.reference_score - told.score))
            assert told.shortfall > 0

    @pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
    def test_samples_of_a_network_come_with_errors(self):
        rng = np.random.default_rng(0)
        wide = pd.DataFrame(rng.normal(size=(200, 14))).add_prefix("x")
        y = wide.sum(axis=1) > 0
        network = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=60, random_state=0)).fit(wide, y)
        explained = mlflow_cf.wrap(network, wide, target=True, constraints={"immutable": ["x0"]}, protected=["x3"])
        row = wide[~network.predict(wide)].head(1)
        told = explained.reasons(row)
        assert (told.method, told.status) == ("sampled", "alarm")
        assert told.reference.startswith("the mean of a sample of 32 of ")
        assert all(one.error > 0 for one in told.factors)
        assert "+-" in str(told)
        assert whole(told) == pytest.approx(told.shortfall, abs=1e-9)
        assert told == explained.reasons(row)
        assert explained.reasons(row, max_evaluations=100).reference.endswith(" were used")
        assert explained.reasons(row, max_evaluations=10).status == "none"
        assert explained.reasons(row, time_limit_s=1e-9).status == "none"
        for most in (1, 100, 1_000, 50_000):
            (one,) = explained.explain(row, reasons=True, max_evaluations=most)
            assert one.evaluations <= most
            assert one.reasons.status in ("alarm", "none")

    def test_of_labels_alone(self):
        explained = mlflow_cf.wrap(lambda rows: MODEL.predict(rows) == "good", FRAME, target=True, output="label",
                                   constraints={"immutable": ["age"]})  # fmt: skip
        told = explained.reasons(ROWS.iloc[[0]])
        assert (told.scale, told.score, told.reference_score, told.shortfall) == ("decision", 0.0, 1.0, 1.0)


class TestAlarm:
    def test_a_protected_feature_of_weight(self):
        told = wrapped(protected=["age"]).reasons(ROWS.iloc[[0]], most=1)
        assert told.status == "alarm"
        assert [one.features for one in told.alarm] == [("age",)]
        assert told.to_dict()["alarm"] == ["age"]
        assert "protected and of weight: age" in str(told)

    def test_evaluate_counts_them(self):
        rows = FRAME.head(30)
        found = mlflow_cf.evaluate(wrapped(protected=["age"]), rows, groups=["owner"])
        assert found.metrics["cf/protected_weight_share"] == 1.0
        assert found.metrics["cf/queries/protected_weight_share"] == (MODEL.predict(rows) == "bad").sum()
        assert found.metrics["cf/protected_weight_share/owner.True"] == 1.0
        unnamed = mlflow_cf.evaluate(wrapped(), FRAME.head(10))
        assert "cf/protected_weight_share" not in unnamed.metrics
        assert "protected_weight" not in unnamed.table

    def test_one_that_the_model_does_not_use_raises_none(self):
        numbers = FRAME[["income", "age"]]
        model = DecisionTreeClassifier(max_depth=1).fit(numbers, numbers["income"] > 40)
        explained = mlflow_cf.wrap(model, numbers, target=True, protected=["age"], constraints={"immutable": ["age"]})
        told = explained.reasons(numbers[~model.predict(numbers)].head(1))
        assert told.status == "stated"
        assert set(every(told)) == {"income"}
        assert set(every(wrapped(protected=["income"]).reasons(ROWS.iloc[[0]]))) >= {"income"}


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"reasons": {"incom": {"code": "C07"}}}, r"reasons.incom: not a feature; did you mean 'income'\?"),
            ({"reasons": {"income": {"kode": "C07"}}}, r"reasons.income.kode: not a known key; did you mean 'code'\?"),
            ({"reasons": {"income": {"code": 7}}}, r"reasons.income.code: "),
            ({"reasons": ["income"]}, "reasons: a list does not name features"),
            ({"protected": ["agee"]}, r"protected.agee: not a feature; did you mean 'age'\?"),
            ({"protected": "age"}, "protected: must be a list"),
        ],
    )
    def test_of_the_policy(self, options, message):
        with pytest.raises(InputError, match=message):
            wrapped(**options)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"reference": "aproved"}, "reference: input should be 'approved' or 'favourable_median'"),
            ({"most": 0}, "most: "),
            ({"reference": ROWS.iloc[[1]]}, "reference: the row is itself refused; give one that is decided as wanted"),
            ({"reference": FRAME}, "reference: there are 80; give a single row"),
            ({"reference": {"age": 3}}, "reference.income: column is missing"),
            ({"reference": GOOD.iloc[[0]].assign(income=np.inf)}, "reference: income: inf is no"),
            ({"reference": GOOD.iloc[[0]].assign(job="astronaut")}, "reference: it has a level that"),
        ],
    )
    def test_of_a_call(self, explained, options, message):
        with pytest.raises(InputError, match=message):
            explained.reasons(ROWS.iloc[[0]], **options)

    def test_rows(self, explained):
        with pytest.raises(InputError, match="row: there are 6; give a single row"):
            explained.reasons(ROWS)
        with pytest.raises(InputError, match="row: income: inf is no"):
            explained.reasons(ROWS.iloc[[0]].assign(income=np.inf))

    def test_nothing_to_compare_with(self):
        numbers = FRAME[["age", "income"]]
        model = LogisticRegression().fit(numbers, numbers["income"] > 40)
        low = numbers[~model.predict(numbers)].reset_index(drop=True)
        explained = mlflow_cf.wrap(model, low, target=True, constraints={"immutable": ["age"]})
        for reference in ("approved", "favourable_median"):
            told = explained.reasons(low.iloc[[0]], reference=reference)
            assert (told.status, told.reason) == ("none", "no background row is decided as wanted")
        (one,) = explained.explain(low.iloc[[0]], reasons=True)
        assert one.reasons.reason == "no background row is decided as wanted"

    def test_a_median_that_is_itself_refused(self):
        numbers = pd.DataFrame({"a": [0.0, 0.0, 1.0, 1.0] * 10, "b": [0.0, 1.0, 0.0, 1.0] * 10, "c": [0.0] * 39 + [1]})
        model = DecisionTreeClassifier().fit(numbers, numbers["a"] != numbers["b"])
        told = mlflow_cf.wrap(model, numbers, target=True, constraints={"immutable": ["a"]}).reasons(
            numbers.iloc[[0]], reference="favourable_median"
        )
        assert told.status == "none"
        assert "itself refused; compare with 'approved'" in told.reason

    def test_a_model_that_fails_on_mixtures(self):
        def fragile(rows):
            if len(rows) > len(FRAME):
                raise ValueError(rows["job"].iloc[0])
            return MODEL.predict_proba(rows)[:, list(MODEL.classes_).index("good")]

        explained = mlflow_cf.wrap(fragile, FRAME, target=1, output="score", constraints={"immutable": ["age"]})
        (one,) = explained.explain(ROWS.iloc[[0]], reasons=True)
        assert one.reasons.status == "none"
        assert one.reasons.reason == "failed (ValueError)"


class TestInRequests:
    def test_the_reply_is_what_python_says(self, explained):
        replies = explained.predict(ROWS, {"counterfactual": {"reasons": True}}).to_dict("records")
        assert [one["reasons"] for one in replies] == [
            explained.reasons(ROWS.iloc[[at]]).to_dict() for at in range(len(ROWS))
        ]

    def test_options(self, explained):
        asked = {"reference": "favourable_median", "most": 1}
        (one, *_) = explained.request(ROWS, {"counterfactual": {"reasons": asked}})
        assert one.reasons == explained.reasons(ROWS.iloc[[0]], **asked)

    def test_what_nobody_asked_for_is_empty(self, explained):
        for one in explained.request(ROWS):
            assert one.reasons.to_dict()["status"] == ""
            assert one.reasons.factors == ()

    def test_nothing_of_reasons_runs_unasked(self, monkeypatch):
        fresh = wrapped()
        monkeypatch.setattr("mlflow_cf.request.reasons.ReasonRequest.of", None)
        monkeypatch.setattr("mlflow_cf.request.answer.with_statuses", None)
        monkeypatch.setattr("mlflow_cf.reasons.reasoning.Reasoning.exact", None)
        assert {one.status for one in fresh.request(ROWS)} == {"found"}
        assert "reasoning" not in vars(fresh.context)

    def test_every_row_says_why_it_has_none(self, explained):
        rows = pd.concat([ROWS.head(1), GOOD.head(1), ROWS.head(1).assign(income=np.inf)], ignore_index=True)
        told = [one.reasons for one in explained.request(rows, {"counterfactual": {"reasons": True}})]
        assert [one.status for one in told] == ["stated", "already", "none"]
        assert told[2].reason.startswith("income: ")
        none = explained.request(rows, {"counterfactual": {"reasons": True, "explain": "none"}})
        assert {one.reasons.status for one in none} == {"none"}

    def test_an_answer_is_the_same_with_reasons(self, explained):
        plain = explained.request(ROWS, {"counterfactual": {"count": 2}})
        asked = explained.request(ROWS, {"counterfactual": {"count": 2, "reasons": True}})
        assert [one.counterfactuals for one in plain] == [one.counterfactuals for one in asked]

    def test_a_policy_may_forbid_them(self):
        explained = wrapped(privacy={"reasons": False})
        with pytest.raises(InputError, match=r"reasons: requests to this model may not ask for it \(privacy.reasons\)"):
            explained.request(ROWS, {"counterfactual": {"reasons": True}})
        assert explained.reasons(ROWS.iloc[[0]]).factors  # its owner may

    @pytest.mark.parametrize("asked", [True, {"reference": "favourable_median"}])
    def test_no_request_is_told_a_value_of_the_background(self, asked):
        for row in range(len(ASKED)):
            said, reply = ask(served(), ASKED.iloc[[row]], {"reasons": asked})
            assert not leaks(said, " ".join(map(str, ASKED.iloc[row])))
            assert reply[0]["reasons"]["status"] in ("stated", "already")

    def test_they_go_with_no_ladder(self, explained):
        ladder = {"target": {"label": "good", "ladder": [0.5, 0.7]}, "reasons": True}
        with pytest.raises(InputError, match="reasons"):
            explained.request(ROWS, {"counterfactual": ladder})

    def test_the_words_are_part_of_the_artifact(self, tmp_path):
        mlflow_cf.save_model(MODEL, tmp_path / "model", FRAME, target="good", constraints=CONSTRAINTS, reasons=WORDS,
                             protected=["age"])  # fmt: skip
        loaded = mlflow_cf.load_model(tmp_path / "model")
        assert loaded.reasons(ROWS.iloc[[0]]) == wrapped(reasons=WORDS, protected=["age"]).reasons(ROWS.iloc[[0]])

    @settings(max_examples=5)
    @given(st.integers(0, 5), st.integers(1, 6))
    def test_a_row_does_not_depend_on_those_beside_it(self, explained, start, count):
        rows = ROWS.iloc[start : start + count]
        together = explained.explain(rows, reasons=True)
        for at, one in enumerate(together):
            assert one.reasons == explained.reasons(rows.iloc[[at]])


class TestNotice:
    def test_reasons_and_changes_stand_apart(self, explained):
        notice = explained.notice(ROWS.iloc[[0]], count=2)
        for text in (notice.text, notice.html):
            before, after = re.split("WHAT WOULD CHANGE IT|What would change it", text)
            assert "C07 Income insufficient for amount of credit requested" in before
            assert "income rises from 47 to 51.1" in after
            assert "rises" not in before
            assert notice.digest[:16] in after
            assert "promises nothing" in after
        assert notice.record["reasons"] == explained.reasons(ROWS.iloc[[0]]).to_dict()

    def test_the_digest_is_that_of_the_decision(self, explained):
        one, again = (explained.notice(ROWS.iloc[[0]], letter=letter) for letter in (None, Letter(text="short")))
        assert one.digest == again.digest
        assert again.text == "short"
        assert one.digest != explained.notice(ROWS.iloc[[1]]).digest
        assert one.digest == wrapped(reasons=WORDS).notice(ROWS.iloc[[0]]).digest
        policy = wrapped(reasons={}).notice(ROWS.iloc[[0]])
        assert policy.record["answered"]["policy_sha256"] != one.record["answered"]["policy_sha256"]
        assert policy.record["answered"]["model_sha256"] == one.record["answered"]["model_sha256"]

    def test_its_record_can_be_checked(self, explained):
        assert explained.check(explained.notice(ROWS.iloc[[0]], count=2).record["answered"]).ok

    def test_a_letter_of_the_owner(self, explained):
        letter = Letter(
            text="{% for reason in reasons %}{{ reason.code or '-' }} {% endfor %}to {{ details.name }}",
            html="<p>{{ details.name }}</p>",
            details={"name": "<b>&"},
        )
        notice = explained.notice(ROWS.iloc[[0]], letter=letter)
        assert "C07" in notice.text
        assert notice.text.endswith("to <b>&")
        assert notice.html == "<p>&lt;b&gt;&amp;</p>"

    @pytest.mark.parametrize(
        ("template", "message"),
        [
            ("{{ nonsense }}", "UndefinedError: 'nonsense' is undefined"),
            ("\n{% for %}", "in line 2 (TemplateSyntaxError"),
            ("{{ 1 / 0 }}", "ZeroDivisionError"),
            ("{% include 'other' %}", "no loader"),
            ("{{ reasons.__class__.__mro__ }}", "SecurityError"),
        ],
    )
    def test_a_template_that_fails_is_an_error(self, explained, template, message):
        for letter in (Letter(text=template), Letter(html=template)):
            with pytest.raises(InputError) as found:
                explained.notice(ROWS.iloc[[0]], letter=letter)
            assert message in str(found.value)
            assert str(found.value).startswith("text: the" if letter.text else "html: the")

    def test_a_row_that_is_as_wanted(self, explained):
        notice = explained.notice(GOOD.iloc[[0]])
        assert "decided as wanted" in notice.text
        assert "Nothing: the decision is as wanted." in notice.html

    def test_nothing_changes_it(self):
        notice = wrapped({"immutable": list(FRAME)}).notice(ROWS.iloc[[0]])
        assert "No change that the policy allows" in notice.text
        assert "1. " in notice.text

    def test_names_levels_and_texts_are_no_markup(self):
        nasty = "<script>alert(1)</script>"
        frame = pd.DataFrame({nasty: ["<i>a</i>", "b"] * 20, "more": np.arange(40.0)})
        values = (frame[nasty] == "b").to_numpy()

        def model(rows):
            return (rows[nasty] == "b").astype(float)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            explained = mlflow_cf.wrap(model, frame, target=1, output="score",
                                       reasons={nasty: {"code": "<b>", "text": "<img src=x>"}})  # fmt: skip
        notice, told = explained.notice(frame[~values].head(1)), explained.reasons(frame[~values].head(1))
        for shown in (notice.html, notice._repr_html_(), told._repr_html_()):
            assert nasty not in shown
            assert "<img" not in shown
            assert "<b>" not in shown
            assert "<i>" not in shown
        plain = mlflow_cf.wrap(model, frame, target=1, output="score", constraints={"immutable": ["more"]})
        assert "&lt;script&gt;" in plain.notice(frame[~values].head(1)).html

    def test_in_a_notebook_it_has_a_frame_of_its_own(self, explained):
        shown = explained.notice(ROWS.iloc[[0]])._repr_html_()
        assert shown.startswith('<iframe sandbox srcdoc="')
        assert "Notice(digest=" in repr(explained.notice(ROWS.iloc[[0]]))

    def test_an_alarm_is_for_the_owner(self):
        notice = wrapped(protected=["age"]).notice(ROWS.iloc[[0]])
        assert [one.features for one in notice.alarm] == [("age",)]
        assert "protected" not in notice.text + notice.html

    @pytest.mark.parametrize(
        ("target", "words"),
        [({"low": 34, "high": 36}, "from 34 to 36"), ({"low": 50}, "at least 50"), ({"high": 20.5}, "at most 20.5")],
    )
    def test_of_a_number(self, target, words):
        numbers = FRAME[["age", "income"]]
        model = RandomForestRegressor(5, random_state=0).fit(numbers, FRAME["income"])
        explained = mlflow_cf.wrap(model, numbers, target=target, constraints={"immutable": ["age"]})
        values = model.predict(numbers)
        row = values.argmax() if "low" not in target else values.argmin()
        assert f"Wanted: {words}" in explained.notice(numbers.iloc[[row]]).text
