"""What notebooks show of every object: well-formed, escaped, small, and without anything from the network."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from wellformed import Read, needs_no_network, read

import mlflow_cf
from mlflow_cf import Constraints, Explanation, Explanations, InputError
from mlflow_cf.evaluation.measure.cohorts import cohorts
from mlflow_cf.features import FeatureSpace
from mlflow_cf.words.description import description
from mlflow_cf.words.verification import Verifications

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "income": RNG.integers(10, 90, 200) * 500,
        "job": RNG.choice(["office", "plant", "field"], 200),
        "savings": np.where(RNG.random(200) < 0.1, np.nan, RNG.integers(0, 50, 200) * 100.0),
    }
)
GOOD = ((ROWS["income"] > 25_000) & (ROWS["job"] != "plant")).astype(int)


@pytest.fixture(scope="module")
def loans() -> mlflow_cf.ExplainedModel:
    codes = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    model = make_pipeline(codes, DecisionTreeClassifier(max_depth=5, random_state=0)).fit(ROWS, GOOD)
    return mlflow_cf.wrap(
        model,
        ROWS,
        target={"label": 1, "means": "the loan is approved"},
        features={"income": {"label": "yearly income", "unit": "EUR"}},
    )


@pytest.fixture(scope="module")
def answers(loans: mlflow_cf.ExplainedModel) -> Explanations:
    return loans.explain(ROWS.head(40), region=True)


def shown(thing: Any) -> Read:
    html = thing._repr_html_()
    assert type(html) is str
    assert needs_no_network(html)
    return read(html)


class TestExplanations:
    def test_one_is_a_card_with_what_the_background_holds(self, answers: Explanations) -> None:
        one = next(one for one in answers if one.counterfactuals)
        told = shown(one)
        assert "a change exists" in told.text
        assert one.counterfactuals[0].text.split("\n")[0] in told.text
        assert len(told.all("svg")) == one.counterfactuals[0].n_changed + 1  # and the probability

    def test_several_are_a_table_of_old_and_new_values_answers_first(self, answers: Explanations) -> None:
        told = shown(answers)
        assert answers.summary in told.text
        assert "and 30 more" in told.text
        found = [place for place, one in enumerate(answers) if one.counterfactuals][:10]
        heads = [str(answers.index[place]) for place in found]
        assert [text for text in told.texts if text in heads][: len(found)] == heads
        first = answers[found[0]].counterfactuals[0]
        assert len(told.all("mark")) == sum(answers[place].counterfactuals[0].n_changed for place in found)
        assert "EUR" in told.text
        assert f"{first.distance:.3g}"[:4] in told.text
        assert "proved nearest" in told.text

    def test_rows_without_answers_say_why(self, loans: mlflow_cf.ExplainedModel) -> None:
        fixed = loans.explain(ROWS.head(5), constraints={"immutable": ["income", "job"]}, explain="all")
        told = shown(fixed)
        assert "no change exists (proved)" in told.text
        assert "constraints.immutable" in told.text
        assert not told.all("mark")
        for one in fixed:
            shown(one)
        assert "no rows" in shown(fixed[:0]).text

    def test_in_the_language_of_the_model(self, loans: mlflow_cf.ExplainedModel) -> None:
        found = loans.explain(ROWS[GOOD == 0].head(2), language="de")
        assert "Änderung gefunden" in shown(found[0]).text
        assert "bewiesen" in shown(found).text

    def test_a_copy_leaves_the_background_behind(self, answers: Explanations) -> None:
        one = next(one for one in answers if one.counterfactuals)
        assert one.space is not None
        assert one.space.whole is not None
        function, given = one.space.__reduce__()[:2]
        copy = function(*given)
        assert copy.whole is None
        assert max(len(feature.values) for feature in copy.features) == 1
        plain = shown(Explanation(one.status, "", 0, 0.1, one.counterfactuals, space=copy))
        assert len(plain.all("svg")) == 1

    def test_tables_tell_the_proof(self, answers: Explanations) -> None:
        frame = answers.to_frame()
        assert {"distance", "probability", "proof"} <= set(frame.columns)
        assert set(frame["proof"]) <= {"optimal", "bounded", "none"}

    def test_500_features(self) -> None:
        wide = pd.DataFrame(RNG.normal(size=(60, 500)), columns=[f"measurement {n}" for n in range(500)])
        line = make_pipeline(StandardScaler(), LogisticRegression()).fit(wide, wide.sum(axis=1) > 0)
        explained = mlflow_cf.wrap(line, wide, target=True)
        found = explained.explain(wide.head(6), max_evaluations=3_000)
        assert len(found._repr_html_()) < 20_000
        assert all(len(one._repr_html_()) < 60_000 for one in found)
        assert "measurement 499" in shown(explained).text


class TestFacts:
    def test_describe_is_a_dict_that_reads(self, loans: mlflow_cf.ExplainedModel) -> None:
        facts = loans.describe()
        assert isinstance(facts, dict)
        assert json.loads(json.dumps(facts, allow_nan=False)) == facts
        assert str(facts) == repr(facts) == description(facts)
        assert str(facts).startswith("model        sklearn")

    def test_an_explained_model_shows_its_facts_and_features(self, loans: mlflow_cf.ExplainedModel) -> None:
        told = shown(loans)
        for part in ("structure", "label 1", "geco", "income", "savings", "at once"):
            assert part in told.text
        assert told == shown(loans.describe())

    def test_constraints(self) -> None:
        told = shown(
            Constraints(
                immutable=("job",), rules=("x_cf.income >= x.income", "x_cf.savings <= 9"), ranges={"income": [0, None]}
            )
        ).text
        for part in ("immutablejob", "rulesx_cf.income >= x.incomex_cf.savings <= 9", "income [0, null]"):
            assert part in told
        assert "no constraints" in shown(Constraints()).text

    def test_verifications(self, loans: mlflow_cf.ExplainedModel) -> None:
        rows = ROWS[GOOD == 0].head(3)
        given = rows.assign(income=[45_000, 45_001, 5_000], job="office", savings=100.0)
        checked = loans.verify(rows, given, constraints={"immutable": ["savings"]})
        told = shown(checked)
        assert "of 3 rows" in told.text
        assert "constraints.immutable.savings is broken" in told.text
        assert shown(checked[0]).text.count("constraints.immutable.savings is broken") == 1
        assert "0 of 0 rows" in shown(Verifications()).text

    def test_reasons_levers_records_and_suggestions(self, loans: mlflow_cf.ExplainedModel) -> None:
        row = ROWS[GOOD == 0].head(1)
        (found,) = loans.explain(row)
        for one in (
            loans.reasons(row),
            loans.levers(row),
            loans.check(loans.record(row, found)),
            mlflow_cf.suggest_constraints(ROWS),
            cohorts(loans, ROWS.head(20)),
        ):
            assert len(shown(one).text) > 10


DRAWN = {"svg", "path", "circle"}
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    ["<b>", "</td>", "&amp;", '"x', "{{ x }}", "מס", "a" * 1_000]
)


@dear(4)
@given(st.lists(WORDS, min_size=2, max_size=3, unique=True), WORDS)
def test_whatever_levels_and_names_hold_is_text(levels: list[str], name: str) -> None:
    column = pd.Series(np.arange(20) % len(levels)).map(dict(enumerate(levels))).astype(object)
    frame = pd.DataFrame({name: column, "n of it": np.arange(20.0)})
    space = FeatureSpace.infer(frame)
    change = mlflow_cf.Change(name, levels[0], levels[1])
    row = {name: levels[1], "n of it": 1.0}
    one = mlflow_cf.Counterfactual(row, (change,), levels[0], 0.5, 0.1, 1, text=name, space=space)
    found = Explanation("found", name, levels[1], 0.4, (one,), space=space)
    allowed = {"style", "div", "p", "table", "thead", "tbody", "tr", "th", "td", "bdi", "mark"}
    table = shown(Explanations((found, Explanation("not_found", name, 0, None)), pd.Index([name, 0]), space))
    assert table.names() <= allowed
    assert shown(found).names() <= {"style", "div", "article", "section", "p", "b", "bdi", "ul", "li", "span", *DRAWN}


class TestFigures:
    def test_one_for_a_slide(self, answers: Explanations) -> None:
        one = max(answers, key=lambda one: len(one.counterfactuals and one.counterfactuals[0].changes))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            figure = one.plot()
            figure.canvas.draw()
        assert isinstance(figure, Figure)
        assert not plt.get_fignums()  # nothing is left to close
        said = " ".join(text.get_text() for axes in figure.axes for text in axes.texts)
        assert "→" in said
        assert len(figure.axes) == one.counterfactuals[0].n_changed + 1
        assert "proved nearest" in figure.get_supxlabel()
        assert figure.get_size_inches()[0] / figure.get_size_inches()[1] > 1.3

    def test_what_is_not_there_cannot_be_drawn(self, answers: Explanations) -> None:
        with pytest.raises(InputError, match="there are 0"):
            Explanation("infeasible", "because", 0, None).plot()
        one = next(one for one in answers if one.counterfactuals)
        with pytest.raises(InputError, match="there are 1"):
            one.plot(2)

    def test_names_are_no_formulas_and_many_changes_are_cut(self) -> None:
        names = [f"$a_{n}^$" for n in range(9)]
        changes = tuple(mlflow_cf.Change(name, None, "$x$") for name in names)
        one = mlflow_cf.Counterfactual(dict.fromkeys(names, "$x$"), changes, 1, None, 0.1, 9, text="$\\frac$ and more")
        figure = Explanation("found", "", 0, None, (one,)).plot()
        figure.canvas.draw()
        assert len(figure.axes) == 6
        assert "3 more changes" in figure.get_supxlabel()


@pytest.mark.system
def test_a_request_needs_neither_cards_nor_figures() -> None:
    code = (
        "import sys, pandas as pd, mlflow_cf; from sklearn.tree import DecisionTreeClassifier; "
        "X = pd.DataFrame({'a': range(20), 'b': [n % 3 for n in range(20)]}); "
        "e = mlflow_cf.wrap(DecisionTreeClassifier().fit(X, X.a > 9), X, target=True); e.predict(X.head(1)); "
        "e.explain(X.head(1)); print(*(name in sys.modules for name in ('mlflow_cf.cards', 'matplotlib')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]
