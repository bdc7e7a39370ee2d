"""Whatever the published JSON schema allows gets a reply or a refusal that names its place; nothing else comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest
import small_loans
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.artifact.served import ServedModel
from mlflow_cf.cli import main
from mlflow_cf.errors import InputError
from mlflow_cf.words.result import Status

TABLE = small_loans.table()
ASKED = small_loans.rejected(TABLE, 1)
SCHEMA = json.loads(CliRunner().invoke(main, ["schema"]).output)
SERVED = ServedModel(
    mlflow_cf.wrap(
        small_loans.fitted(TABLE), TABLE, target="good", limits={"max_evaluations": 500}, privacy={"sample": "private"}
    ),
    within_s=30.0,
)
STATUSES = set(get_args(Status))
TEXTS = st.one_of(
    st.sampled_from([*TABLE.columns, "clerk", "nobody", "good", "geco", "exact", "nearest_row", "x_cf.income >= 40"]),
    st.text(max_size=12),
)


def drawn(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return values that fit a JSON schema of the kinds that pydantic writes."""
    if "$ref" in schema:
        return st.deferred(lambda: drawn(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]))
    if "anyOf" in schema:
        return st.one_of([drawn(one) for one in schema["anyOf"]])
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    return KINDS.get(schema.get("type", ""), anything)(schema)


def anything(_: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.booleans() | st.integers() | TEXTS


def number(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    low = schema.get("minimum", schema.get("exclusiveMinimum", -1e6))
    return st.floats(max(low, -1e150), schema.get("maximum", 1e6)) | st.integers(max(int(low), -9), 99)


def array(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "prefixItems" in schema:
        return st.tuples(*map(drawn, schema["prefixItems"])).map(list)
    return st.lists(drawn(schema.get("items", {})), max_size=4)


def table(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    named = {name: drawn(one) for name, one in schema.get("properties", {}).items()}
    if named:
        required = {name: named.pop(name) for name in schema.get("required", ())}
        return st.fixed_dictionaries(required, optional=named)
    others = schema.get("additionalProperties")
    return st.dictionaries(TEXTS, drawn(others) if isinstance(others, dict) else anything({}), max_size=3)


KINDS: dict[str, Callable[[dict[str, Any]], st.SearchStrategy[Any]]] = {
    "string": lambda _: TEXTS,
    "boolean": lambda _: st.booleans(),
    "null": lambda _: st.none(),
    "integer": lambda schema: st.integers(schema.get("minimum", -(10**6)), schema.get("maximum", 10**6)),
    "number": number,
    "array": array,
    "object": table,
}


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large])
@given(drawn(SCHEMA))
def test_what_the_schema_allows_is_answered_or_refused(options: dict[str, Any]) -> None:
    try:
        reply = SERVED.predict(ASKED, {"counterfactual": options})
    except InputError as refused:
        if not refused.path or len(refused.message) > 2_100 or str(small_loans.CANARY) in refused.message:
            raise
        return
    assert set(reply["status"]) <= STATUSES
    json.dumps(reply.to_dict("records"), allow_nan=False)


@pytest.mark.parametrize("options", [{"count": 0}, {"explain": "some"}, {"constraints": {"ranges": []}}, {"extra": 1}])
def test_what_it_forbids_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        SERVED.predict(ASKED, {"counterfactual": options})
