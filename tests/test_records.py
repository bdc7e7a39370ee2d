"""Records: what they hold, that every edit is found, and what a check says under another model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import small_loans
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.cli import main
from mlflow_cf.errors import InputError
from mlflow_cf.records import make
from mlflow_cf.records.document import Record, sealed

TABLE = small_loans.table()
ASKED = small_loans.rejected(TABLE, 3)
OPTIONS: dict[str, Any] = {"target": "good", "constraints": small_loans.CONSTRAINTS}
EXPLAINED = mlflow_cf.wrap(small_loans.fitted(TABLE), TABLE, **OPTIONS)
RECORD = EXPLAINED.record(ASKED[:1], EXPLAINED.explain(ASKED[:1], region=True, certify=True)[0])
DOCS = Path(__file__).parents[1] / "docs"


def retrained():
    """Return the model trained on loans of which only those with a high income were good."""
    frame = TABLE.assign(income=TABLE["income"] - 20)
    return mlflow_cf.wrap(small_loans.fitted(TABLE).fit(TABLE, small_loans.labels(frame)), TABLE, **OPTIONS)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values that are neither objects nor lists with something in them."""
    if isinstance(value, dict | list) and value:
        keys = value if isinstance(value, dict) else range(len(value))
        return [leaf for key in keys for leaf in leaves(value[key], (*path, key))]
    return [path]


LEAVES = leaves(RECORD)


def test_a_record_checks_under_its_own_model() -> None:
    found = EXPLAINED.check(RECORD)
    assert found.ok, str(found)
    told = [check.what for check in found]
    assert {"model", "policy", "row: prediction", "counterfactual 1: region"} <= set(told)
    assert any("nothing is nearer" in what for what in told)
    assert Record.model_validate(RECORD).sha256 == RECORD["sha256"]
    assert list(found.to_frame()) == ["what", "verdict", "reason"]
    assert "<table" in found._repr_html_()
    assert len(found[:2]) == 2


@given(
    row=st.integers(0, len(ASKED) - 1),
    count=st.integers(1, 3),
    seed=st.integers(0, 9),
    explainer=st.sampled_from(["geco", "exact", "nearest_row"]),
    region=st.sampled_from([False, True, "all"]),
    certify=st.booleans(),
)
@dear(4)
def test_whatever_was_asked_checks_after_a_round_trip(row, count, seed, explainer, region, certify) -> None:
    options = {"count": count, "seed": seed, "explainer": explainer, "region": region, "certify": certify}
    record = EXPLAINED.record(ASKED.iloc[[row]], EXPLAINED.explain(ASKED.iloc[[row]], **options)[0])
    found = EXPLAINED.check(json.dumps(record))
    assert not found.broken, str(found)


@given(st.sampled_from(LEAVES), st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)))
def test_any_edit_is_found(path, value) -> None:
    edited = json.loads(json.dumps(RECORD))
    at = edited
    for key in path[:-1]:
        at = at[key]
    if at[path[-1]] == value and type(at[path[-1]]) is type(value):
        return
    at[path[-1]] = value
    if path == ("schema_version",):
        with pytest.raises(InputError, match=r"record\.schema_version"):
            EXPLAINED.check(edited)
        return
    (check,) = EXPLAINED.check(edited)
    assert (check.verdict, "was edited" in check.reason) == ("no longer holds", True)


@given(st.sampled_from([path for path in LEAVES if path != ("sha256",)]))
def test_what_is_left_out_is_found(path) -> None:
    edited = json.loads(json.dumps(RECORD))
    at = edited
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    if path == ("schema_version",):
        with pytest.raises(InputError, match="is missing"):
            EXPLAINED.check(edited)
    else:
        assert not EXPLAINED.check(edited).ok


def test_a_retrained_model_fails_with_reasons() -> None:
    found = retrained().check(RECORD)
    broken = {check.what: check.reason for check in found.broken}
    assert "another one" in broken["model"]
    assert "policy" not in broken
    assert broken["counterfactual 1: target"] == "not met"
    assert broken["counterfactual 1: prediction"] == "was good, is bad"
    assert broken["counterfactual 1: region"] == "a corner of it is no counterfactual now"


def test_another_policy_fails_by_the_constraint_that_is_new() -> None:
    income = RECORD["answer"]["counterfactuals"][0]["row"]["income"]
    stricter = {**small_loans.CONSTRAINTS, "ranges": {"income": [0, income - 1]}}
    found = mlflow_cf.wrap(small_loans.fitted(TABLE), TABLE, target="good", constraints=stricter).check(RECORD)
    broken = [check.what for check in found.broken]
    assert broken[0] == "policy"
    assert "counterfactual 1: constraints.ranges.income" in broken


def test_a_proof_that_nothing_exists_is_made_again() -> None:
    data = pd.DataFrame({"income": np.arange(40), "age": np.arange(40) % 7})
    model = DecisionTreeClassifier(max_depth=1).fit(data, data["income"] > 20)
    explained = mlflow_cf.wrap(model, data, target=True, constraints={"immutable": ["income"]})
    record = explained.record(data[:1], explained.explain(data[:1], certify=True)[0])
    assert record["proof"]["status"] == "infeasible"
    found = explained.check(record)
    assert found.ok, str(found)
    assert found[-1].reason == "all candidates were tried"
    free = mlflow_cf.wrap(model, data, target=True)
    assert free.check(record)[-1].reason == "there is one"


def test_answers_of_a_ladder_check_by_their_rungs() -> None:
    target = {"label": "good", "ladder": [0.55, 0.7]}
    answer = EXPLAINED.explain(ASKED[:1], target=target, certify=True)[0]
    record = EXPLAINED.record(ASKED[:1], answer)
    assert record["query"]["target"]["ladder"] == [0.55, 0.7]
    found = EXPLAINED.check(record)
    assert not found.broken, str(found)


def test_rows_with_missing_values_have_records() -> None:
    row = ASKED[:1].assign(debts=np.nan)
    record = EXPLAINED.record(row, EXPLAINED.explain(row)[0])
    assert record["row"]["debts"] is None
    assert not EXPLAINED.check(record).broken


def test_requests_have_records_where_they_ask() -> None:
    (plain,) = EXPLAINED.predict(ASKED[:1])["record"]
    assert plain == ""
    (text,) = EXPLAINED.predict(ASKED[:1], {"counterfactual": {"record": True, "certify": True}})["record"]
    assert json.loads(text)["served"] is True
    assert EXPLAINED.check(text).ok
    strict = mlflow_cf.wrap(small_loans.fitted(TABLE), TABLE, **OPTIONS, privacy={"records": False})
    with pytest.raises(InputError, match=r"record: requests to this model may not"):
        strict.predict(ASKED[:1], {"counterfactual": {"record": True}})
    assert strict.explain(ASKED[:1], record=True)[0].record


def test_what_names_the_model_is_found_out_once_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [EXPLAINED.record(ASKED.iloc[[row]], one) for row, one in enumerate(EXPLAINED.explain(ASKED))]
    asked = []
    monkeypatch.setattr(make, "model_digest", lambda *_: asked.append(1) or RECORD["model_sha256"])
    assert [json.loads(one.record) for one in EXPLAINED.explain(ASKED, record=True)] == alone
    assert len(asked) == 1
    odd = ASKED.assign(income=[float("inf"), *ASKED["income"][1:]])
    assert [bool(one.record) for one in EXPLAINED.explain(odd, record=True)] == [False, True, True]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "record: is not JSON"),
        ("nowhere.json", "record: is neither JSON nor the path of a file"),
        ("[1]", "record: a list is not an object"),
        ('{"a": NaN}', "record: is not JSON"),
        ('{"a": 1, "a": 2}', "record: is not JSON"),
        ("{}", r"record\.schema_version: is missing"),
        ("x" * 5_000_000, "record: is larger than"),
        ({**RECORD, "schema_version": 2}, r"record\.schema_version: 2 is newer than 1"),
        (sealed({"schema_version": 1}), r"record\.mlflow_cf: "),
        ({key: value for key, value in RECORD.items() if key != "sha256"}, r"record\.sha256: "),
        (Path("nowhere.json"), "record: 'nowhere.json' cannot be read"),
    ],
)
def test_what_is_no_record_is_refused(source, message) -> None:
    with pytest.raises(InputError, match=message):
        EXPLAINED.check(source)


def resealed(**changes: Any) -> dict[str, Any]:
    return sealed({**{key: value for key, value in RECORD.items() if key != "sha256"}, **changes})


def test_features_of_another_model_are_named() -> None:
    row = {("incomme" if name == "income" else name): value for name, value in RECORD["row"].items()}
    with pytest.raises(InputError, match=r"record\.row\.incomme: is no feature of the model; did you mean 'income'"):
        EXPLAINED.check(resealed(row=row))
    with pytest.raises(InputError, match=r"record\.row\.income: is missing"):
        EXPLAINED.check(resealed(row={k: v for k, v in RECORD["row"].items() if k != "income"}))


def test_an_explanation_of_another_row_has_no_record() -> None:
    answer = EXPLAINED.explain(ASKED[:1])[0]
    with pytest.raises(InputError, match="is of another row"):
        EXPLAINED.record(ASKED[1:2], answer)
    with pytest.raises(InputError, match="has 2 rows"):
        EXPLAINED.record(ASKED[:2], answer)


def test_the_published_schema_is_the_one_of_the_code() -> None:
    assert json.loads((DOCS / "record.schema.json").read_text(encoding="utf-8")) == Record.model_json_schema()


def test_the_command_tells_what_holds_by_its_exit_code(tmp_path) -> None:
    mlflow_cf.save_model(small_loans.fitted(TABLE), tmp_path / "model", TABLE, **OPTIONS)
    (tmp_path / "record.json").write_text(json.dumps(RECORD), encoding="utf-8")
    words = ["check", str(tmp_path / "record.json"), "-m", str(tmp_path / "model")]
    good = CliRunner().invoke(main, [*words, "--text"])
    assert good.exit_code == 0, good.output
    assert good.output.splitlines()[-1].endswith(" ok")
    for path in (tmp_path / "record.json", str(tmp_path / "record.json")):
        assert EXPLAINED.check(path).ok
    (tmp_path / "record.json").write_text(json.dumps({**RECORD, "seed": 7}), encoding="utf-8")
    edited = CliRunner().invoke(main, [*words, "--text"])
    assert (edited.exit_code, "was edited" in edited.output) == (1, True)
    assert json.loads(CliRunner().invoke(main, [*words, "--json"]).output)["ok"] is False
    (tmp_path / "record.json").write_text("{", encoding="utf-8")
    broken = CliRunner().invoke(main, words)
    assert (broken.exit_code, "record: is not JSON" in broken.output) == (2, True)
    assert json.loads(CliRunner().invoke(main, ["schema", "--record"]).output) == Record.model_json_schema()
