"""Suggested constraints: what is found, what chance may not suggest, and the file that is reviewed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier

import mlflow_cf
from mlflow_cf.cli import main
from mlflow_cf.errors import InputError
from mlflow_cf.suggest import Suggestion, Suggestions, suggest_constraints
from mlflow_cf.suggest.chance import FALSE_ALARMS

RELATIONS = ("order", "equal", "one_hot", "dependency", "implication")
DATA = Path(os.environ.get("MLFLOW_CF_DATA", "nowhere"))
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="MLFLOW_CF_DATA names no folder")


def of_kind(found: Suggestions, *kinds: str) -> list[Suggestion]:
    return [each for each in found if each.kind in kinds]


def rules_of(found: Suggestions) -> set[str]:
    return {rule for each in found for rule in each.constraint.get("rules", ())}


def active(found: Suggestions) -> dict[str, Any]:
    """Return what the file says, as it stands."""
    read = yaml.safe_load(found.to_yaml()) or {}
    return {key: value for key, value in read.items() if value is not None}


def world(rows: int = 600, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    job = rng.choice(["clerk", "cook", "nurse"], rows)
    level = rng.integers(0, 4, rows)
    last = rng.gamma(2.0, 500.0, rows)
    highest = last + rng.gamma(1.0, 300.0, rows) * (rng.random(rows) < 0.7)
    city = rng.choice(["Bern", "Graz", "Kiel", "Lyon", "Nice"], rows)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 70, rows),
            "job": job,
            "job_clerk": (job == "clerk").astype(int),
            "job_cook": (job == "cook").astype(int),
            "job_nurse": (job == "nurse").astype(int),
            "grade": level,
            "grade name": np.array(["none", "school", "bachelor", "master"])[level],
            "last": last,
            "highest": highest,
            "highest ever billed": highest + rng.gamma(1.0, 200.0, rows),
            "city": city,
            "owner": np.where(city == "Kiel", "yes", rng.choice(["yes", "no"], rows)),
            "noise": rng.normal(size=rows),
        }
    )


def test_what_is_there_is_found() -> None:
    found = suggest_constraints(world())
    groups = {frozenset(names) for each in found for names in each.constraint.get("groups", ())}
    assert groups == {frozenset({"job", "job_clerk", "job_cook", "job_nurse"}), frozenset({"grade", "grade name"})}
    assert "x_cf.last <= x_cf.highest" in rules_of(found)
    assert "x_cf.highest <= x_cf.`highest ever billed`" in rules_of(found)
    assert "x_cf.last <= x_cf.`highest ever billed`" not in rules_of(found)  # it follows
    assert "IF x_cf.city == 'Kiel' THEN x_cf.owner == 'yes'" in rules_of(found)
    assert active(found)["increasing"] == ["age", "highest ever billed"]


def test_one_hot_columns_alone_are_one_group() -> None:
    found = suggest_constraints(world()[["job_clerk", "job_cook", "job_nurse", "noise"]])
    assert [each.constraint for each in found] == [{"groups": [["job_clerk", "job_cook", "job_nurse"]]}]
    assert found[0].kind == "one_hot"
    assert found[0].support == 600


def test_two_one_hot_sets_are_not_mixed() -> None:
    rng = np.random.default_rng(4)
    data = pd.get_dummies(pd.DataFrame({"a": rng.choice(list("xyz"), 400), "b": rng.choice(list("uvw"), 400)}))
    groups = [each.constraint["groups"] for each in of_kind(suggest_constraints(data), "one_hot")]
    assert groups == [[["a_x", "a_y", "a_z"]], [["b_u", "b_v", "b_w"]]]


def test_one_hot_columns_without_their_first_are_a_group() -> None:
    data = world()[["job_cook", "job_nurse", "noise", "owner"]]
    (found,) = suggest_constraints(data)
    assert found.constraint == {"groups": [["job_cook", "job_nurse"]]}
    assert found.reason == "at most one of these 0/1 columns is 1 in every row"


def test_a_chain_of_orders_has_one_rule_per_link() -> None:
    rng = np.random.default_rng(2)
    sums = rng.gamma(1.0, 1.0, (400, 12)).cumsum(axis=1)
    found = suggest_constraints(pd.DataFrame(sums, columns=[f"until {month}" for month in range(12)]))
    assert rules_of(found) == {f"x_cf.`until {month}` <= x_cf.`until {month + 1}`" for month in range(11)}


def test_no_more_rules_are_active_than_constraints_have() -> None:
    sums = np.random.default_rng(2).gamma(1.0, 1.0, (200, 300)).cumsum(axis=1)
    found = suggest_constraints(pd.DataFrame(sums, columns=[f"until {month}" for month in range(300)]))
    assert len(mlflow_cf.Constraints.read(active(found)).rules) == 256
    assert any("rules without exceptions are comments" in note for note in found.notes)


def test_exceptions_make_comments() -> None:
    data = world(2_000)
    data.loc[5, "last"] = data.loc[5, "highest"] + 1
    data.loc[7, "grade name"] = "none" if data.loc[7, "grade"] else "master"
    found = suggest_constraints(data)
    order = next(each for each in found if each.features == ("last", "highest"))
    dependency = next(each for each in found if set(each.features) == {"grade", "grade name"})
    assert (order.support, order.exceptions, order.active) == (1_999, 1, False)
    assert (dependency.support, dependency.exceptions, dependency.active) == (1_999, 1, False)
    assert "x_cf.last <= x_cf.highest" not in active(found).get("rules", [])
    assert "# - x_cf.last <= x_cf.highest" in found.to_yaml()


def test_disjoint_ranges_are_no_order() -> None:
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"low": rng.uniform(0, 1, 500), "high": rng.uniform(2, 3, 500)})
    assert not of_kind(suggest_constraints(data), *RELATIONS)


def test_unlike_scales_are_no_order() -> None:
    rng = np.random.default_rng(1)
    small = rng.gamma(1.0, 1.0, 500)
    data = pd.DataFrame({"rate": small, "income": small * 50_000 * rng.uniform(0.1, 1, 500)})
    assert not of_kind(suggest_constraints(data), *RELATIONS)


def test_dates_are_ordered_among_themselves() -> None:
    rng = np.random.default_rng(1)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, 500), unit="D")
    data = pd.DataFrame({"start": start, "end": start + pd.to_timedelta(rng.integers(0, 99, 500), unit="D")})
    assert rules_of(suggest_constraints(data)) == {"x_cf.start <= x_cf.end"}


def test_equal_columns_are_one_rule() -> None:
    data = world()[["last", "highest"]].assign(again=lambda table: table["last"])
    assert rules_of(suggest_constraints(data)) == {"x_cf.last == x_cf.again", "x_cf.last <= x_cf.highest"}


def test_keys_are_notes_and_determine_nothing() -> None:
    data = world().assign(customer=np.arange(600)[::-1] + 7_000)
    found = suggest_constraints(data)
    assert any(note.startswith("customer is nearly a key") for note in found.notes)
    assert not any("customer" in each.features for each in of_kind(found, "dependency"))


def test_missing_values_are_neither_for_nor_against() -> None:
    data = world()
    data.loc[:99, "last"] = np.nan
    order = next(each for each in suggest_constraints(data) if each.features == ("last", "highest"))
    assert (order.support, order.exceptions) == (500, 0)


def test_steps_and_bounds_are_described() -> None:
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"rating": rng.integers(2, 11, 400) / 2, "fee": rng.integers(0, 9, 400) * 25})
    found = suggest_constraints(data)
    assert [each.constraint for each in of_kind(found, "step")] == [
        {"features": {"rating": {"step": 0.5}}},
        {"features": {"fee": {"step": 25}}},
    ]
    assert [each.constraint for each in of_kind(found, "range")] == [
        {"ranges": {"rating": [1, 5]}},
        {"ranges": {"fee": [0, 200]}},
    ]
    assert not any(each.active for each in found)
    assert mlflow_cf.Constraints.read(active(found)) == mlflow_cf.Constraints()


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("sex", "immutable"),
        ("isMale", "immutable"),
        ("country_of_birth", "immutable"),
        ("MaritalStatus", "immutable"),
        ("age", "increasing"),
        ("residence_since", "increasing"),
        ("average", None),
        ("mileage", None),
        ("pages", None),
    ],
)
def test_names(name: str, key: str | None) -> None:
    data = pd.DataFrame({name: np.random.default_rng(0).integers(0, 50, 200)})
    assert [
        key for each in suggest_constraints(data) for key in each.constraint if key in ("immutable", "increasing")
    ] == ([key] if key else [])


def test_what_grows_is_not_below_zero() -> None:
    data = pd.DataFrame({"experience": np.arange(-3, 40).repeat(3)})
    (found,) = of_kind(suggest_constraints(data), "increasing")
    assert (found.exceptions, found.active) == (9, False)


def test_leaks_are_notes() -> None:
    data = world()
    labels = np.where(data["highest"] > 1_500, "bad", "good")
    notes = suggest_constraints(data.assign(outcome=labels), labels).notes
    assert any(note.startswith("outcome may leak the label") for note in notes)
    assert any(note.startswith("highest may leak the label") for note in notes)
    assert not any(note.startswith(("noise", "city")) for note in notes)
    with_labels, without = suggest_constraints(data, labels), suggest_constraints(data)
    assert list(with_labels) == list(without)


def random_table(seed: int) -> pd.DataFrame:
    """Return independent columns of many kinds: skewed levels, small counts, many zeros, fractions, flags, gaps."""
    rng = np.random.default_rng(seed)
    rows, data = int(rng.integers(60, 500)), {}
    for place in range(int(rng.integers(6, 16))):
        share = rng.dirichlet(np.full(int(rng.integers(2, 8)), 0.6))
        makers = (
            lambda: rng.choice([f"level {n}" for n in range(len(share))], rows, p=share),  # noqa: B023
            lambda: rng.poisson(rng.uniform(0.1, 4), rows),
            lambda: rng.gamma(1.0, 100.0, rows) * (rng.random(rows) < rng.uniform(0.05, 1)),
            lambda: rng.normal(rng.uniform(0, 3), 1, rows),
            lambda: (rng.random(rows) < rng.uniform(0.02, 0.98)).astype(int),
            lambda: np.where(rng.random(rows) < 0.3, np.nan, rng.integers(0, 30, rows)),
        )
        data[f"c{place}"] = makers[int(rng.integers(len(makers)))]()
    return pd.DataFrame(data)


def test_chance_makes_no_relations() -> None:
    tables = 300
    alarms = sum(bool(of_kind(suggest_constraints(random_table(seed)), *RELATIONS)) for seed in range(tables))
    assert alarms <= FALSE_ALARMS * tables


@st.composite
def derived_tables(draw: st.DrawFn) -> pd.DataFrame:
    """Return a table in random order of columns that are functions of others, their 0/1 columns, or independent."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    made = [rng.integers(0, draw(st.integers(2, 6)), 300)]
    for _ in range(draw(st.integers(1, 6))):
        source = made[draw(st.integers(0, len(made) - 1))]
        match draw(st.integers(0, 2)):
            case 0:
                made.append(rng.integers(0, 4, int(source.max()) + 1)[source])
            case 1:
                made += [(source == value).astype(int) for value in np.unique(source)]
            case _:
                made.append(rng.integers(0, draw(st.integers(2, 6)), 300))
    order = draw(st.permutations(range(len(made))))
    return pd.DataFrame({f"c{number}": made[place] for number, place in enumerate(order)})


@settings(deadline=None, max_examples=60)
@given(derived_tables())
def test_groups_share_no_column_and_have_no_more_combinations_than_what_determines_them(data: pd.DataFrame) -> None:
    found = suggest_constraints(data)
    groups = [each for each in found if "groups" in each.constraint and each.active]
    names = [name for each in groups for name in each.features]
    assert len(names) == len(set(names))
    for each in groups:
        combinations = len(data[list(each.features)].drop_duplicates())
        assert combinations <= max(data[name].nunique() for name in each.features) or "0/1" in each.reason
        assert combinations <= 6


AWKWARD = st.text(min_size=1, max_size=12)


@settings(deadline=None, max_examples=40)
@given(st.lists(AWKWARD, min_size=5, max_size=5, unique=True), st.lists(AWKWARD, min_size=3, max_size=3, unique=True))
def test_the_file_reads_back_whatever_the_names(names: list[str], levels: list[str]) -> None:
    small = world(200)
    level = np.array(levels, dtype=object)[small["grade"].to_numpy() % 3]
    data = pd.DataFrame(
        dict(zip(names, [small["last"], small["highest"], level, small["grade"] % 3, small["owner"]], strict=True))
    )
    found = suggest_constraints(data)
    read = mlflow_cf.Constraints.read(active(found))
    groups = {frozenset(group) for group in read.groups}
    assert groups == {frozenset(names) for each in found for names in each.constraint.get("groups", ()) if each.active}
    assert set(read.rules) == {rule for each in found if each.active for rule in each.constraint.get("rules", ())}
    assert len(found.to_yaml().splitlines()) == found.to_yaml().count("\n")


def test_every_training_row_keeps_what_is_active(tmp_path: Path) -> None:
    data = world()
    (tmp_path / "c.yaml").write_text(suggest_constraints(data).to_yaml(), encoding="utf-8")
    model = DummyClassifier().fit(data, np.arange(len(data)) % 2)
    explained = mlflow_cf.wrap(model, data, target=1, constraints=tmp_path / "c.yaml")
    rows = explained.bound_policy.background
    assert len(explained.bound_policy.rules) >= 4
    for rule in explained.bound_policy.rules:
        assert all(rule.holds(row[None], row)[0] for row in rows)


def test_a_larger_table_is_sampled_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlflow_cf.suggest.columns.MOST_ROWS", 500)
    found = suggest_constraints(world(5_000), seed=3)
    assert (found.rows, found.total) == (500, 5_000)
    assert "500 of 5,000 rows, drawn with seed 3" in found.to_yaml()
    assert found.to_yaml() == suggest_constraints(world(5_000), seed=3).to_yaml()


def test_what_cannot_be_looked_at_is_named() -> None:
    data = world()
    data["constant"], data["gone"], data["lists"] = 1, np.nan, [[1]] * len(data)
    data["endless"] = np.where(data["age"] == 20, np.inf, 1.0)
    data["span"] = pd.to_timedelta(data["age"], unit="D")
    data["complex"] = data["age"] + 1j
    data["x" * 1_000] = data["age"]
    found = suggest_constraints(data)
    assert set(found.skipped) == {"constant", "gone", "lists", "endless", "span", "complex", "x" * 1_000}
    assert "Not looked at: endless: it has infinite values" in found.to_yaml()


def test_long_strings_are_levels_of_no_rule() -> None:
    data = world().assign(text=lambda table: table["city"] * 250)
    found = suggest_constraints(data)
    assert frozenset({"city", "text"}) in {frozenset(each.features) for each in of_kind(found, "dependency")}
    assert all(len(line) < 500 for line in found.to_yaml().splitlines())


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        ([1, 2], None, "data: a list is not a table"),
        (pd.DataFrame({"a": []}), None, "data: 0 rows and 1 columns"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), None, "data.a: two columns have this name"),
        (pd.DataFrame({"a": [1, 2]}), [1], "labels: 1 labels for 2 rows"),
    ],
)
def test_bad_input(data: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        suggest_constraints(data, labels)


def test_one_row_has_no_relations() -> None:
    assert len(suggest_constraints(pd.DataFrame({"a": [1], "b": ["x"]}))) == 0


def test_it_prints_itself() -> None:
    found = suggest_constraints(world().rename(columns={"city": "<b>"}))
    assert "x_cf.last <= x_cf.highest" in str(found)
    assert "&lt;b&gt;" in found._repr_html_()
    assert "<b>" not in found._repr_html_()
    assert list(found.to_frame()["support"]) == [each.support for each in found]
    assert found[0] in found
    assert found[:2] == found.found[:2]


def run(*words: object) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_the_command_writes_a_file_that_is_read(tmp_path: Path) -> None:
    world().assign(good=lambda table: table["noise"] > 0).to_csv(tmp_path / "train.csv", index=False)
    done = run("suggest", "-i", tmp_path / "train.csv", "-o", tmp_path / "c.yaml", "--labels", "good")
    assert done.exit_code == 0, done.output
    assert "suggestions from 600 rows" in done.output
    constraints = mlflow_cf.Constraints.read(tmp_path / "c.yaml")
    assert constraints.increasing == ("age", "highest ever billed")
    assert "noise may leak the label" in (tmp_path / "c.yaml").read_text(encoding="utf-8")
    printed = run("suggest", "-i", tmp_path / "train.csv", "--labels", "good")
    assert printed.output == (tmp_path / "c.yaml").read_text(encoding="utf-8")


def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    world(50).to_parquet(tmp_path / "train.parquet")
    assert "there is no file" in run("suggest", "-i", tmp_path / "none.csv").output
    assert "none of .yaml" in run("suggest", "-i", tmp_path / "train.parquet", "-o", tmp_path / "c.txt").output
    assert "did you mean 'noise'" in run("suggest", "-i", tmp_path / "train.parquet", "--labels", "noisy").output


@needs_data
def test_adult_shows_its_education_group_and_whom_one_is() -> None:
    data = pd.read_csv(DATA / "adult.csv")
    found = suggest_constraints(data.iloc[:, :-1], data.iloc[:, -1])
    shown = active(found)
    assert shown["groups"] == [["education", "education_num"]]
    assert shown["increasing"] == ["age", "education_num"]
    assert {"sex", "race", "marital_status", "relationship", "native_country"} == set(shown["immutable"])
    assert not of_kind(found, "order")


@needs_data
def test_credit_shows_its_order_pairs() -> None:
    data = pd.read_csv(DATA / "credit.csv")
    found = suggest_constraints(data.iloc[:, :-1], data.iloc[:, -1])
    assert {each.features for each in of_kind(found, "order") if each.active} == {
        ("MostRecentBillAmount", "MaxBillAmountOverLast6Months"),
        ("MostRecentPaymentAmount", "MaxPaymentAmountOverLast6Months"),
        ("TotalOverdueCounts", "TotalMonthsOverdue"),
    }
    assert set(active(found)["immutable"]) == {"isMale", "isMarried"}
    grows = {name for each in of_kind(found, "increasing") for name in each.features}
    assert grows >= {
        "AgeGroup",
        "EducationLevel",
        "HasHistoryOfOverduePayments",
        "TotalOverdueCounts",
        "TotalMonthsOverdue",
    }
    json.dumps([dict(each.constraint) for each in found])
