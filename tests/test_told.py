"""What pages of MLflow tell in words: descriptions of versions and notes of runs, safe whatever names hold."""

import re

import pandas as pd
import pytest
import small_loans
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.artifact.publish.account import account_of, introduction
from mlflow_cf.evaluation.findings import Findings
from mlflow_cf.evaluation.told import MOST_NOTED, evaluation_note
from mlflow_cf.words.markdown import fenced, plain


@given(st.text() | st.from_regex(r"[\\`*_\[\]<>#|~$&:/.w\d\-]{1,20}", fullmatch=True))
def test_markdown_shows_text_as_it_stands(text: str) -> None:
    told = plain(text)
    assert re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", told) == " ".join(text.split())
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]<>#|~$&]", told)
    assert "://" not in told
    assert not re.match(r"\d*[-+=.)]", told)


@given(st.text())
def test_no_text_ends_its_block(text: str) -> None:
    assert fenced(text).count("```") == 2


def facts(target: dict[str, object], constraints: dict[str, object]) -> dict[str, object]:
    policy = {"target": target, "constraints": constraints}
    return {"policy": policy, "flavor": "sklearn", "features": {"a": {}}, "explainer": {"name": "nearest_row"}}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"label": 1}, "it becomes 1."),
        ({"label": "good", "min_probability": 0.7}, "it becomes good with a probability of 0.7 at least."),
        ({"label": True, "means": "the <loan> is approved"}, r"the \<loan\> is approved."),
        ({"other": True}, "it is any other than the row's own."),
        ({"low": 1000.0, "high": 2000.0}, "it becomes 1,000 at least and 2,000 at most."),
        ({"high": 5}, "it becomes 5 at most."),
    ],
)
def test_every_target_is_a_sentence(target: dict[str, object], words: str) -> None:
    head = "Predictions of a sklearn model of 1 feature. With each comes what would have to change so that "
    assert introduction(facts(target, {})) == rf"{head}{words} Explainer: nearest\_row. Constraints: none."


def test_every_kind_of_constraint_is_told_in_short() -> None:
    constraints = {
        "immutable": ["age", "sex"], "ranges": {"income": [0, 1]}, "rules": ["x", "y"], "groups": [["a", "b"]],
        "max_changes": 2,
    }  # fmt: skip
    told = introduction(facts({"label": 1}, constraints))
    assert told.endswith("Constraints: immutable age, sex, ranges of income, 2 rules, 1 group, max changes 2.")


def test_a_description_fits_whatever_there_is_to_tell() -> None:
    table = pd.DataFrame({f"<b>{'long ' * 40}{at}</b>": range(30) for at in range(60)})
    model = mlflow_cf.wrap(lambda rows: rows.iloc[:, 0], table, target={"low": 20}, output="value",
                           constraints={"immutable": list(table.columns[1:])})  # fmt: skip
    account = account_of(model)
    assert len(account.description) <= 5_000
    assert all(len(value) <= 6_000 for value in account.params.values())
    assert "<b>" not in account.description.partition("```")[0].replace(r"\<b", "")


def test_a_description_begins_with_what_it_is() -> None:
    table = small_loans.table()
    explained = mlflow_cf.wrap(small_loans.fitted(table), table, target="good", constraints=small_loans.CONSTRAINTS)
    told = account_of(explained).description
    assert told.startswith("Predictions of a sklearn model of 5 features. With each comes what would have to change so")
    assert "Constraints: immutable age, ranges of income, max changes 2.\n\n```text\nmodel " in told


def test_a_note_says_the_finding_first_and_what_failed() -> None:
    values = {"rows": 20, "coverage": 0.5, "mixed": 0.125, "n_changed": 1.0, "validity": 1.0, "fixed_share": 0.25}
    table = pd.DataFrame(
        [("my_own", "", name, value, None, 12) for name, value in values.items()],
        columns=["explainer", "group", "metric", "value", "standard_error", "queries"],
    )
    note = evaluation_note(Findings(table, ["my_own"]), {"other": "no <b>\n# way"}, ["few rows"], "counterfactual")
    assert note.split("\n") == [
        r"**my\_own answers 50 % of the 12 rows that miss the target.**",
        "",
        "* Answers are 0.125 far and change 1 feature, on average",
        "* Of the answers, 100 % are valid",
        "* No lawful change turns 25 % of the rows that miss the target, as is proved",
        r"* other failed: no \<b\> \# way",
        "* few rows",
        "* Pictures, all metrics and every row are among the artifacts, in counterfactual/",
    ]
    long = evaluation_note(Findings(table, ["my_own"]), {"other": "x" * 9_000}, [], "counterfactual")
    assert len(long) <= MOST_NOTED
