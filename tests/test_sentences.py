"""Sentences with the owner's labels, units and outcomes, in every language."""

import json
import string
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mlflow_cf
from mlflow_cf import InputError, Target
from mlflow_cf.features import FeatureSpace
from mlflow_cf.features.feature import Feature
from mlflow_cf.words.changes import Change, RegionSide, Step
from mlflow_cf.words.phrases import MARKS, PHRASES
from mlflow_cf.words.sentences import Speaker

WORDS = {
    "income": Feature("income", "integer", "int64", label="yearly income", unit="EUR"),
    "rate": Feature("rate", "real", "float64", unit="%", decimals=2),
    "years": Feature("years", "integer", "int64", label="time in job", unit="year", units="years"),
    "price": Feature("price", "real", "float64", unit="$"),
}


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("phrase", PHRASES)
def test_every_language_has_every_phrase_and_fills_in_the_same(phrase: str) -> None:
    assert set(PHRASES[phrase]) == set(MARKS)
    assert len({frozenset(fields(text)) for text in PHRASES[phrase].values()}) == 1


@pytest.mark.parametrize(
    ("change", "english", "german"),
    [
        (
            Change("income", 41000, 46500),
            "yearly income rises from 41,000 EUR to 46,500 EUR",
            "yearly income steigt von 41.000 EUR auf 46.500 EUR",
        ),
        (Change("rate", 5.5, 5.0), "rate falls from 5.50% to 5.00%", "rate sinkt von 5,50 % auf 5,00 %"),
        (
            Change("rate", 5.001, 5.002),
            "rate rises from 5.001% to 5.002%",
            "rate steigt von 5,001 % auf 5,002 %",
        ),
        (
            Change("years", 1, 2),
            "time in job rises from 1 year to 2 years",
            "time in job steigt von 1 year auf 2 years",
        ),
        (Change("price", -5.0, 1234.5), "price rises from -$5 to $1,234.5", "price steigt von -5 $ auf 1.234,5 $"),
        (Change("owner", False, True), "owner changes from no to yes", "owner wechselt von nein zu ja"),
        (
            Change("rooms", None, 3),
            "rooms changes from missing to 3",
            "rooms wechselt von keine Angabe zu 3",
        ),
        (
            Change("start", "2024-03-01", "2024-02-01"),
            "start moves earlier, from 2024-03-01 to 2024-02-01",
            "start wird früher, von 2024-03-01 auf 2024-02-01",
        ),
    ],
)
def test_changes(change: Change, english: str, german: str) -> None:
    assert Speaker("en", WORDS).changes([change]) == english
    assert Speaker("de", WORDS).changes([change]) == german


def test_an_outcome_ends_the_sentence() -> None:
    changes = [Change("a", 1, 2), Change("b", "x", "y")]
    told = Speaker(outcome="the loan is\napproved").answer(changes, 1)
    assert told == "a rises from 1 to 2 and b changes from x to y: the loan is approved"
    assert Speaker("de").answer(changes, 1) == "a steigt von 1 auf 2 und b wechselt von x zu y: die Vorhersage wird 1"


def test_plans_and_regions_in_german() -> None:
    steps = [Step(1, "sparen", 4.0, 0.5, {"income": 2000, "rate": 1.0}, 0.999)]
    assert Speaker("de", WORDS).plan(steps, {"income": 1000, "rate": 1.0}) == (
        "1. sparen: yearly income steigt von 1.000 EUR auf 2.000 EUR "
        "(Aufwand 4 x 0,5 = 2, Wahrscheinlichkeit über 0,99)"
    )
    sides = [RegionSide("income", 1000, 2000, (), True), RegionSide("job", None, None, ("a", "b", "c"), True)]
    ends = [(True, False), (False, False)]
    assert Speaker("de", WORDS).region(sides, ends) == (
        "das gilt, solange für yearly income gilt: 2.000 EUR oder weniger und für job gilt: a oder b oder c"
    )
    assert Speaker("en", WORDS).region(sides, ends) == (
        "it holds while yearly income is 2,000 EUR or less and job is a or b or c"
    )


@pytest.fixture(scope="module")
def loans() -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"income": rng.integers(10, 90, 200) * 1000, "debt": rng.integers(0, 40, 200) * 500})
    good = (rows.income - 2 * rows.debt > 20_000).astype(int)
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(rows, good), rows


def wrapped(loans: tuple[Any, pd.DataFrame], **options: Any) -> mlflow_cf.ExplainedModel:
    model, rows = loans
    given: dict[str, Any] = {
        "features": {"income": {"label": "yearly income", "unit": "EUR"}},
        "target": {"label": 1, "means": "the loan is approved"},
        "constraints": {"immutable": ["debt"]},
    }
    return mlflow_cf.wrap(model, rows, **{**given, **options})


ROW = pd.DataFrame({"income": [15_000], "debt": [5_000]})


def test_the_policy_and_a_request_choose_words(loans: tuple[Any, pd.DataFrame]) -> None:
    explained = wrapped(loans)
    (english,) = explained.explain(ROW)[0].counterfactuals
    assert english.text.startswith("yearly income rises from 15,000 EUR to ")
    assert english.text.endswith(" EUR: the loan is approved")
    table = explained.predict(ROW, params={"counterfactual": {"language": "de", "target": {"label": 1}}})
    told = table.iloc[0]["counterfactuals"][0]["text"]
    assert told.startswith("yearly income steigt von 15.000 EUR auf ")
    assert told.endswith(": the loan is approved")
    german = wrapped(loans, language="de", target=1).explain(ROW)[0].counterfactuals[0].text
    assert german.endswith(": die Vorhersage wird 1")
    levers = explained.explain(ROW, levers=1, region=True, language="de")[0]
    assert "steigt" in levers.levers[0].to_dict()["text"]
    assert "das gilt, solange" in levers.counterfactuals[0].text


def test_words_are_kept_with_the_model(loans: tuple[Any, pd.DataFrame], tmp_path: Any) -> None:
    model, rows = loans
    told = {"income": {"unit": "EUR", "decimals": 0}}
    mlflow_cf.save_model(model, str(tmp_path / "m"), rows, features=told, target=1, language="de")
    again = mlflow_cf.load_model(str(tmp_path / "m"))
    (found,) = again.explain(ROW, constraints={"immutable": ["debt"]})[0].counterfactuals
    assert found.text.startswith("income steigt von 15.000 EUR auf ")


def test_features_go_through_json() -> None:
    told = {"label": "l", "unit": "u", "units": "us", "decimals": 3}
    space = FeatureSpace.infer(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), {"a": told})
    again = Feature.from_dict(json.loads(json.dumps(space.features[0].to_dict())))
    assert {key: getattr(again, key) for key in told} == told


@pytest.mark.parametrize(
    ("told", "path"),
    [
        ({"unit": ""}, "features.income.unit"),
        ({"label": 3}, "features.income.label"),
        ({"label": "x" * 101}, "features.income.label"),
        ({"units": "years"}, "features.income.units"),
        ({"decimals": -1}, "features.income.decimals"),
        ({"decimals": True}, "features.income.decimals"),
        ({"unti": "EUR"}, "features.income.unti"),
    ],
)
def test_bad_words_are_refused(loans: tuple[Any, pd.DataFrame], told: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError, match=path):
        wrapped(loans, features={"income": told})


def test_levels_have_no_unit_and_any_other_label_no_meaning(loans: tuple[Any, pd.DataFrame]) -> None:
    with pytest.raises(InputError, match=r"features\.b\.unit: a category has none"):
        FeatureSpace.infer(pd.DataFrame({"b": ["x", "y"]}), {"b": {"unit": "EUR"}})
    with pytest.raises(InputError, match=r"target\.means"):
        wrapped(loans, target=Target(other=True, means="approved"))
    with pytest.raises(InputError, match="language"):
        wrapped(loans, language="xx")
