"""Limits before work: what is too large is refused at its first excess, and what is left waits for its place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from worlds import constraint_dicts

import mlflow_cf
from mlflow_cf.artifact.served import ServedModel
from mlflow_cf.constraints import Combinations, Constraints
from mlflow_cf.errors import MESSAGE, MOST_TOLD, InputError, InputErrors, did_you_mean
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.policy import Limits, Query, QueryLimits
from mlflow_cf.policy.limits import check_extent
from mlflow_cf.request.admission import Admission

RNG = np.random.default_rng(0)
DATA = pd.DataFrame({name: RNG.normal(size=300).round(2) for name in ("age", "income", "debt")})
GOOD = (DATA["income"] > DATA["debt"]).astype(int)
MODEL = LogisticRegression().fit(DATA, GOOD)
POOR = DATA[MODEL.predict(DATA) == 0].reset_index(drop=True)
MILLION = 10**6


@pytest.fixture(scope="module")
def explained() -> ExplainedModel:
    return mlflow_cf.wrap(MODEL, DATA, target=1, limits={"explained_rows": 2, "rows": 50})


def ask(explained: ExplainedModel, **asked: Any) -> pd.DataFrame:
    return explained.predict(POOR.head(1), {"counterfactual": asked})


def deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


BEYOND: dict[str, tuple[dict[str, Any], str]] = {
    "names": (
        {"constraints": {"immutable": ["age"] * MILLION}},
        "constraints.immutable: 1,000,000 entries are more than the policy's 1,000; ask for less",
    ),
    "different names": (
        {"constraints": {"increasing": [f"a{i}" for i in range(100_000)]}},
        "constraints.increasing: 100,000 entries",
    ),
    "levels": ({"constraints": {"levels": {"age": ["a"] * 1001}}}, "constraints.levels.age: 1,001 entries"),
    "ranges": ({"constraints": {"ranges": {f"a{i}": [0, 1] for i in range(1001)}}}, "constraints.ranges: 1,001"),
    "relative": ({"constraints": {"relative": {f"a{i}": {} for i in range(1001)}}}, "constraints.relative: 1,001"),
    "pairs": ({"constraints": {"forbidden": {"age": [[0, 1]] * 1001}}}, "constraints.forbidden.age: 1,001 entries"),
    "groups": ({"constraints": {"groups": [["age"]] * 1001}}, "constraints.groups: 1,001 entries"),
    "names of a group": ({"constraints": {"groups": [[], ["age"] * 1001]}}, "constraints.groups[1]: 1,001 entries"),
    "rules": ({"constraints": {"rules": ["x_cf.age > 1"] * 257}}, "constraints.rules: 257 rules are more than"),
    "a rule": (
        {"constraints": {"rules": ["x_cf.age > 1", "x" * 2049]}},
        "constraints.rules[1]: 2,049 characters are more than the policy's 2,048",
    ),
    "a name": ({"constraints": {"immutable": ["age", "a" * 1025]}}, "constraints.immutable[1]: 1,025 characters"),
    "a key": ({"constraints": {"a" * 1025: 1}}, f"constraints.{'a' * 59}: 1,025 characters are more"),
    "a label": ({"target": "a" * MILLION}, "target: 1,000,000 characters are more than the policy's 1,024"),
    "an explainer": ({"explainer": "a" * MILLION}, "explainer: 1,000,000 characters"),
    "options": ({"explainer": {"name": "geco", "options": {f"a{i}": 1 for i in range(1001)}}}, "explainer.options: 1,"),
    "many options": (
        {"explainer": {"name": "geco", "options": {f"a{i}": 1 for i in range(65)}}},
        "explainer.options: dictionary should have at most 64 items",
    ),
    "keys": ({f"a{i}": 1 for i in range(1001)}, "counterfactual: 1,002 entries"),
    "nesting": ({"constraints": {"groups": deep(7)}}, "9 lists and objects inside of one another are more than"),
    "values": (
        {"constraints": {"levels": {f"a{i}": [0] * 999 for i in range(5)}}},
        "values in all are more than the policy's 4,096",
    ),
    "bytes": ({"constraints": {"immutable": ["a" * 1000] * 66}}, "bytes of JSON or more are more than the policy's 65"),
}


@pytest.mark.parametrize(("asked", "message"), BEYOND.values(), ids=BEYOND)
@pytest.mark.parametrize("explain", ["none", "all"])
def test_one_thing_too_much_is_refused(
    explained: ExplainedModel, asked: dict[str, Any], message: str, explain: str
) -> None:
    with pytest.raises(InputError) as error:
        ask(explained, **{"explain": explain, **asked})
    assert message in str(error.value)
    assert len(str(error.value)) <= MESSAGE
    assert error.value.get_http_status_code() == 400


@given(constraint_dicts)
def test_what_is_within_the_limits_is_read_as_without_any(constraints: dict[str, Any]) -> None:
    asked = {"constraints": constraints, "count": 2}
    assert Query.read(asked, QueryLimits()) == Query.read(asked)


FEW = QueryLimits(json_bytes=90, values=18, entries=4, rules=2, depth=4, text_length=6, rule_length=9)
# without signs that JSON writes as several: these count as one
texts = st.text(
    st.characters(min_codepoint=35, exclude_characters="\\\x7f", codec="utf-8"), max_size=7
) | st.sampled_from(["constraints", "rules"])
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
some_json = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5), max_leaves=12
)


def exceeded(options: Mapping[str, Any], limits: QueryLimits) -> set[str]:
    """Return the limits that options exceed, found out by reading all of them."""
    found = set()
    text = json.dumps(options, ensure_ascii=False, separators=(",", ":"))
    places = list(everything(options, ()))
    for keys, value in places:
        in_rules = keys[:2] == ("constraints", "rules")
        if isinstance(value, dict | list):
            most, name = (limits.rules, "rules") if keys == ("constraints", "rules") else (limits.entries, "entries")
            found |= {name} if len(value) > most else set()
            found |= {"depth"} if len(keys) + 1 > limits.depth else set()
        if isinstance(value, str):
            most = limits.rule_length if in_rules and len(keys) == 3 else limits.text_length
            found |= {"text"} if len(value) > most else set()
        if isinstance(value, dict) and any(len(key) > limits.text_length for key in value):
            found.add("text")
    found |= {"values"} if len(places) > limits.values else set()
    escapes = sum(text.count(sign) for sign in "\\")  # JSON writes some signs as two or six; these count as one
    return found | (
        {"bytes"} if len(text.encode(errors="surrogatepass")) > limits.json_bytes and not escapes else set()
    )


def everything(value: Any, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield keys, value
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in entries:
        yield from everything(entry, (*keys, key))


@given(st.dictionaries(texts, some_json, max_size=5))
def test_options_are_refused_exactly_where_they_exceed_a_limit(options: dict[str, Any]) -> None:
    beyond = exceeded(options, FEW)
    with nullcontext() if not beyond else pytest.raises(InputError, match="more than the policy's"):
        check_extent(options, FEW)


class Counted(list[Any]):
    """A list that counts how many of its entries were looked at."""

    seen = 0

    def __iter__(self) -> Iterator[Any]:
        for entry in super().__iter__():
            self.seen += 1
            yield entry


@pytest.mark.parametrize("size", [2_000, 20_000, 200_000])
@pytest.mark.parametrize("key", sorted(Constraints.model_fields))
def test_a_refusal_costs_the_same_however_much_too_large(explained: ExplainedModel, key: str, size: int) -> None:
    """Nothing of a list that is too long is looked at, and nothing behind the first excess."""
    excess, behind = Counted(["age"] * size), Counted([["age"]] * size)
    with pytest.raises(InputError, match=f"{size:,}"):
        ask(explained, constraints={"groups": behind, key: excess})
    assert excess.seen == behind.seen == 0


def test_what_is_read_before_a_refusal_is_bounded(explained: ExplainedModel) -> None:
    lists = [Counted(range(999)) for _ in range(900)]
    with pytest.raises(InputError, match="values in all"):
        ask(explained, constraints={"groups": lists})
    assert sum(one.seen for one in lists) <= 2 * QueryLimits().values


def test_the_owner_is_not_held_to_the_limits_of_requests(explained: ExplainedModel) -> None:
    ages = DATA["age"].unique().tolist()
    (wide,) = explained.explain(POOR.head(1), constraints={"immutable": ["debt"] * 1500, "levels": {"age": ages * 20}})
    (same,) = explained.explain(POOR.head(1), constraints={"immutable": ["debt"], "levels": {"age": ages}})
    assert wide.to_dict() == same.to_dict()


def test_limits_are_set_when_logging() -> None:
    few = mlflow_cf.wrap(MODEL, DATA, target=1, limits={"query": {"entries": 3}})
    with pytest.raises(InputError, match="4 entries are more than the policy's 3"):
        ask(few, constraints={"immutable": ["age"] * 4})
    with pytest.raises(InputError, match=r"limits\.query\.entrys: not a known key; did you mean 'entries'\?"):
        mlflow_cf.wrap(MODEL, DATA, target=1, limits={"query": {"entrys": 3}})
    assert Limits.model_validate({"count": 3}) == Limits(count=3)  # as policies were before


class TestErrors:
    def test_the_first_ones_whole_then_how_many_more(self) -> None:
        error = InputErrors(InputError(f"a{i}", "b" * 200) for i in range(20))
        *lines, last = str(error).splitlines()
        assert lines == [f"a{i}: {'b' * 200}" for i in range(len(lines))]
        assert last == f"and {20 - len(lines)} more"
        assert len(str(error)) <= MESSAGE
        assert len(error.errors) == 20

    def test_no_more_are_made_than_are_told(self) -> None:
        made = (InputError("a", str(number)) for number in range(10**9))
        error = InputErrors(made)
        assert len(error.errors) == MOST_TOLD
        assert error.unlisted
        assert str(error).endswith("and more")
        assert next(made).fact == str(MOST_TOLD + 1)

    @pytest.mark.parametrize("part", [0, 1, 2])
    def test_no_part_of_a_message_is_longer(self, part: int) -> None:
        parts = ["path", "fact", "fix"]
        parts[part] = "\ud83d" * MILLION
        assert len(str(InputError(*parts))) <= MESSAGE

    def test_a_bounded_number_of_names_is_compared(self) -> None:
        names = (f"name{number}" * 1000 for number in range(10**9))
        assert did_you_mean("name7" * MILLION, names)
        assert next(names) < "name300"

    def test_of_many_mistakes_the_first_are_told(self, explained: ExplainedModel) -> None:
        for constraints in (
            {"immutable": [f"a{i}" for i in range(999)]},
            {"levels": {f"a{i}": [[]] for i in range(900)}},
        ):
            with pytest.raises(InputErrors) as error:
                ask(explained, constraints=constraints)
            assert len(str(error.value)) <= MESSAGE
            assert str(error.value).endswith("more")


class TestRows:
    def test_a_server_takes_so_many(self, explained: ExplainedModel) -> None:
        many = pd.concat([POOR] * 3)
        with pytest.raises(InputError, match=f"rows: {len(many)} are more than the policy's 50; send fewer at a time"):
            ServedModel(explained, within_s=60.0).predict(many)
        none = {"counterfactual": {"explain": "none"}}
        assert len(ServedModel(explained).predict(many, none)) == len(many)

    def test_a_server_explains_so_many(self, explained: ExplainedModel) -> None:
        reply = ServedModel(explained, within_s=60.0).predict(POOR.head(5))
        assert reply["status"].tolist() == ["found"] * 2 + ["budget"] * 3
        assert reply["reason"].iloc[4].startswith("beyond the 2 rows that one request may have explained")
        assert reply["prediction"].tolist() == [0] * 5
        assert reply["probability"].notna().all()
        assert set(explained.predict(POOR.head(5))["status"]) == {"found"}


class TestBinding:
    def test_without_explanations_nothing_is_bound(self, explained: ExplainedModel) -> None:
        assert ask(explained, explain="none", constraints={"immutable": ["agee"]})["status"].tolist() == ["skipped"]
        with pytest.raises(InputError, match=r"constraints\.imutable"):  # its form is looked at
            ask(explained, explain="none", constraints={"imutable": ["age"]})

    def test_it_waits_for_a_place(self, explained: ExplainedModel) -> None:
        full = replace(explained, admission=Admission(0))
        reply = ask(full, constraints={"rules": ["x_cf.age > "]})
        assert reply["status"].tolist() == ["busy"]
        assert reply["prediction"].tolist() == [0]

    def test_mistakes_are_told_where_no_row_is_to_be_explained(self, explained: ExplainedModel) -> None:
        rich = {"income": 9.0, "debt": 0.0, "age": 0.0}
        with pytest.raises(InputError, match=r"constraints\.immutable\.agee"):
            explained.predict(rich, {"counterfactual": {"constraints": {"immutable": ["agee"]}}})

    @pytest.mark.parametrize("constraints", [{"rules": ["x_cf.age > 1"]}, {"groups": [["age", "debt"]]}])
    def test_it_ends_with_the_clock(self, explained: ExplainedModel, constraints: dict[str, Any]) -> None:
        reply = ask(explained, constraints=constraints, time_limit_s=1e-9)
        assert reply["status"].tolist() == ["budget"]
        assert reply["reason"].iloc[0] == "stopped by the time limit while the constraints were read"
        assert reply["prediction"].tolist() == [0]

    def test_it_is_asked_to_pause_between_constraints(self, explained: ExplainedModel) -> None:
        pauses = []
        asked = {"immutable": ["age"], "rules": ["x_cf.debt > 0"] * 20, "groups": [["age", "debt"]]}
        explained.bound_policy.tightened(Constraints.read(asked), lambda: pauses.append(1))
        assert len(pauses) >= 23

    def test_a_name_counts_once(self, explained: ExplainedModel) -> None:
        once = explained.bound_policy.tightened(Constraints(immutable=("age",)))
        often = explained.bound_policy.tightened(Constraints(immutable=("age",) * 900))
        assert often.rules == once.rules

    def test_only_new_groups_are_built(self, explained: ExplainedModel) -> None:
        before, after = (
            one.domains
            for one in (
                explained.bound_policy,
                explained.bound_policy.tightened(Constraints(groups=(("age", "debt"),))),
            )
        )
        assert after[1] is before[1]


cells = st.sampled_from([0.0, 1.0, -2.5, np.nan])


@given(st.integers(1, 70).flatmap(lambda wide: st.lists(st.lists(cells, min_size=wide, max_size=wide), min_size=1)))
def test_combinations_are_the_distinct_rows(rows: list[list[float]]) -> None:
    """Of 70 columns with four values each there are more combinations than 64 bits can count."""
    background = np.array(rows)
    columns = tuple(range(background.shape[1]))
    combinations = Combinations(background)
    for some in (columns, columns[::2]):
        if len(some) > 1:
            domain = combinations.domain(some)
            expected, counts = np.unique(np.nan_to_num(background[:, some], nan=np.inf), axis=0, return_counts=True)
            np.testing.assert_array_equal(np.nan_to_num(domain.actions, nan=np.inf), expected)
            np.testing.assert_array_equal(domain.weights, counts)
