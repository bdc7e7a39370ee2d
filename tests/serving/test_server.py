"""A real ``mlflow models serve`` process: formats, wishes within the policy, and replies to everything else."""

import json
from concurrent.futures import ThreadPoolExecutor

import mlflow
import pandas as pd
import pytest
import requests
import small_loans
from mlflow import MlflowClient
from mlflow.types.schema import Array, Object, Property
from served import near, serving

import mlflow_cf

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
ASKED = small_loans.rejected(TABLE, 3)
OPTIONS = {
    "target": "good",
    "constraints": small_loans.CONSTRAINTS,
    "privacy": {"explainers": ["geco", "nearest_row"]},
}
EXPLAINED = mlflow_cf.wrap(MODEL, TABLE, **OPTIONS)
RECORDS = ASKED.to_dict("records")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serve a registered model by its alias."""
    mlflow.set_experiment("served")
    info = mlflow_cf.log_model(MODEL, "explained", TABLE, **OPTIONS, registered_model_name="served")
    MlflowClient().set_registered_model_alias("served", "champion", info.registered_model_version)
    with serving("models:/served@champion", tmp_path_factory.mktemp("server") / "output.txt") as running:
        yield running


def records(*rows):
    return {"dataframe_records": list(rows)}


def refused(server, body, **options):
    """Return the message of a 400 that gives nothing away."""
    status, reply = server.ask(body, **options)
    assert status == 400, reply
    assert "stack_trace" not in reply
    assert "Traceback" not in reply["message"]
    assert str(small_loans.CANARY) not in reply["message"]
    return reply["message"]


FORMATS = {
    "split": {"dataframe_split": ASKED.to_dict(orient="split", index=False)},
    "split with index": {"dataframe_split": ASKED.set_axis([7, 8, 9]).to_dict(orient="split")},
    "records": {"dataframe_records": RECORDS},
    "inputs, columns": {"inputs": ASKED.to_dict("list")},
    "inputs, rows": {"inputs": RECORDS},
    "other order": {"dataframe_records": [dict(reversed(row.items())) for row in RECORDS]},
    "more columns": {"dataframe_records": [{**row, "more": "x"} for row in RECORDS]},
}


@pytest.mark.parametrize("body", FORMATS.values(), ids=FORMATS)
def test_every_format_gets_the_same_answer(server, body):
    status, reply = server.ask(body)
    assert status == 200
    assert reply["predictions"] == near(EXPLAINED.predict(ASKED).to_dict("records"))


def test_a_reply_is_what_the_signature_says(server):
    _, reply = server.ask(records(RECORDS[0]), count=2)
    (answer,) = reply["predictions"]
    outputs = mlflow.models.get_model_info("models:/served@champion").signature.outputs
    assert list(answer) == outputs.input_names()
    assert (answer["prediction"], answer["status"], answer["reason"], answer["explainer"]) == (
        "bad",
        "found",
        "",
        "geco",
    )
    assert len(answer["counterfactuals"]) == 2
    kinds = outputs.input_dict()["counterfactuals"].type.dtype
    for found in answer["counterfactuals"]:
        assert sorted(found) == [kind.name for kind in kinds.properties]
        assert (found["prediction"], list(found["row"])) == ("good", list(TABLE.columns))
        assert found["row"]["age"] == RECORDS[0]["age"]
        assert found["changes"]
        assert found["probability"] >= 0.5


def test_a_region_is_what_the_signature_says(server):
    status, reply = server.ask(records(*RECORDS), region=True)
    assert status == 200
    outputs = mlflow.models.get_model_info("models:/served@champion").signature.outputs.to_dict()
    (answers,) = (column for column in outputs if column["name"] == "counterfactuals")
    typed = answers["items"]["properties"]["region"]["items"]["properties"]
    found = [one for answer in reply["predictions"] for one in answer["counterfactuals"]]
    assert found
    for one in found:
        assert set(one) <= set(answers["items"]["properties"])
        assert one["region_reason"] == ""
        assert [side["feature"] for side in one["region"]] == [change["feature"] for change in one["changes"]]
        for side, change in zip(one["region"], one["changes"], strict=True):
            assert set(side) == set(typed)
            assert isinstance(side["maximal"], bool)
            assert change["to"] in side["levels"] or float(side["low"]) <= float(change["to"]) <= float(side["high"])
        assert "it holds while " in one["text"]


def test_csv(server):
    reply = requests.post(server.url, data=ASKED.to_csv(index=False), headers={"Content-Type": "text/csv"}, timeout=60)
    assert reply.json()["predictions"] == near(EXPLAINED.predict(ASKED).to_dict("records"))


def test_parallel_requests(server):
    expected = EXPLAINED.predict(ASKED).to_dict("records")
    with ThreadPoolExecutor(4) as pool:
        for status, reply in pool.map(lambda _: server.ask(records(*RECORDS)), range(8)):
            assert status == 200
            rows = reply["predictions"]
            if rows[0]["status"] == "busy":
                assert [row["prediction"] for row in rows] == [row["prediction"] for row in expected]
            else:
                assert rows == near(expected)


class TestWithinThePolicy:
    def test_tighter_constraints(self, server):
        _, free = server.ask(records(*RECORDS))
        assert any(
            c["feature"] == "income" for r in free["predictions"] for cf in r["counterfactuals"] for c in cf["changes"]
        )
        status, tight = server.ask(records(*RECORDS), constraints={"immutable": ["income", "age"]}, count=3)
        assert status == 200
        changed = {c["feature"] for r in tight["predictions"] for cf in r["counterfactuals"] for c in cf["changes"]}
        assert changed
        assert not changed & {"income", "age"}

    def test_seed_and_evaluations(self, server):
        asked = {"seed": 12, "max_evaluations": 500, "count": 3}
        one, two = (server.ask(records(*RECORDS), **asked)[1]["predictions"] for _ in range(2))
        assert one == two
        assert {row["seed"] for row in one} == {12}
        assert all(row["evaluations"] <= 500 for row in one)

    def test_which_rows_are_explained(self, server):
        good = TABLE[MODEL.predict(TABLE) == "good"].dropna().head(1).to_dict("records")[0]
        for explain, statuses in (("none", ["skipped", "skipped"]), ("unfavourable", ["found", "already"])):
            _, reply = server.ask(records(RECORDS[0], good), explain=explain)
            assert [row["status"] for row in reply["predictions"]] == statuses
            assert [row["prediction"] for row in reply["predictions"]] == ["bad", "good"]

    def test_another_explainer(self, server):
        _, reply = server.ask(records(RECORDS[0]), explainer="nearest_row")
        assert reply["predictions"][0]["explainer"] == "nearest_row"


LOOSER = {
    "frees an immutable feature": ({"constraints": {"immutable": []}}, "constraints.immutable: would free 'age'"),
    "a range for an immutable one": (
        {"constraints": {"ranges": {"age": [0, 99]}}},
        "constraints.ranges.age: immutable",
    ),
    "a wider range": (
        {"constraints": {"ranges": {"income": [0, 500]}}},
        "constraints.ranges.income: [0, 500] is wider",
    ),
    "more changes": ({"constraints": {"max_changes": 4}}, "constraints.max_changes: 4 is more than the policy's 2"),
    "more time": ({"time_limit_s": 60}, "time_limit_s: 60 is more than the policy's"),
    "more evaluations": ({"max_evaluations": 10**9}, "max_evaluations: 1000000000 is more than the policy's"),
    "more answers": ({"count": 1000}, "count: 1000 is more than the policy's 10"),
}
WRONG = {
    "count 0": ({"count": 0}, "count: "),
    "count of another type": ({"count": "3"}, "count: "),
    "unknown feature": (
        {"constraints": {"ranges": {"incom": [0, 1]}}},
        "constraints.ranges.incom: not a feature; did you mean 'income'?",
    ),
    "unknown constraint": (
        {"constraints": {"imutable": ["job"]}},
        "constraints.imutable: not a known key; did you mean 'immutable'?",
    ),
    "another target": ({"target": "bad"}, "target: sealed by the policy, which wants 'good'"),
    "100,000 names": (
        {"explain": "none", "constraints": {"immutable": [f"a{number}" for number in range(100_000)]}},
        "constraints.immutable: 100,000 entries are more than the policy's 1,000",
    ),
    "unknown target": ({"target": "great"}, "target.label: the model does not know 'great'"),
    "unknown explainer": (
        {"explainer": "geko"},
        "explainer: 'geko' does not answer requests to this model; ask for 'geco' or 'nearest_row'",
    ),
    "unknown explain": ({"explain": "some"}, "explain: "),
    "seed": ({"seed": -1}, "seed: "),
    "time": ({"time_limit_s": 0}, "time_limit_s: "),
    "constraints of another shape": ({"constraints": [1]}, "constraints: "),
    "deep": ({"constraints": {"ranges": {"income": {"a": {"b": [1]}}}}}, "constraints.ranges.income"),
}


@pytest.mark.parametrize(("options", "message"), [*LOOSER.values(), *WRONG.values()], ids=[*LOOSER, *WRONG])
def test_wishes_that_cannot_be_met_are_named(server, options, message):
    assert message in refused(server, records(RECORDS[0]), **options)


@pytest.mark.parametrize("value", [{"cuont": 1}, None, [1], "x", 3])
def test_options_of_another_shape(server, value):
    message = refused(server, {**records(RECORDS[0]), "params": {"counterfactual": value}})
    assert "counterfactual" in message
    assert "cuont" in message or not isinstance(value, dict)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (records({key: value for key, value in RECORDS[0].items() if key != "income"}), "income"),
        (records({**RECORDS[0], "income": "much"}), "income"),
        (records({**RECORDS[0], "income": [1]}), "income"),
        (records({**RECORDS[0], "age": None}), "age"),
        (records({**RECORDS[0], "age": 2**70}), "age"),
        ({"dataframe_split": {"columns": list(TABLE.columns), "data": []}}, "rows: there are none"),
        (records(), "missing"),
        ({"inputs": [[1, 2, 3]]}, "missing"),
    ],
)
def test_rows_that_cannot_be_read(server, body, word):
    assert word in refused(server, body)


def test_one_bad_row_does_not_stop_the_others(server):
    bad = [{**RECORDS[0], "income": float("inf")}, {**RECORDS[0], "job": {"a": 1}}]
    status, reply = server.ask(records(RECORDS[1], *bad, RECORDS[2]))
    assert status == 200
    rows = reply["predictions"]
    assert [row["status"] for row in rows] == ["found", "invalid", "invalid", "found"]
    assert rows[1]["reason"].startswith("income: ")
    assert rows[2]["reason"].startswith("job: ")
    assert [rows[0], rows[3]] == near(EXPLAINED.predict(ASKED).to_dict("records")[1:])


def test_unknown_levels_and_missing_values_are_answered(server):
    rows = [
        {**RECORDS[0], "job": "astronaut"},
        {**RECORDS[0], "debts": None},
        {k: v for k, v in RECORDS[0].items() if k != "debts"},
    ]
    status, reply = server.ask(records(*rows))
    assert status == 200
    expected = MODEL.predict(pd.DataFrame(rows))
    assert [row["prediction"] for row in reply["predictions"]] == expected.tolist()
    assert {row["status"] for row in reply["predictions"]} <= {"found", "already"}


def matches(value, kind, path=""):
    """Check a value of a reply against a type of the logged schema; a nullable one may be null."""
    if isinstance(kind, Array):
        assert isinstance(value, list), path
        for one in value:
            matches(one, kind.dtype, f"{path}[]")
    elif isinstance(kind, Object):
        assert set(value) == {field.name for field in kind.properties}, path
        for field in kind.properties:
            if value[field.name] is not None or field.required:
                matches(value[field.name], field.dtype, f"{path}.{field.name}")
    else:
        known = {"double": (int, float), "long": int, "string": str, "boolean": bool}
        assert isinstance(value, known[kind.name]), path


def test_levers_and_responsiveness_come_as_the_schema_says(server):
    asked = {"levers": [["income"], ["owner", "debts"]], "responsiveness": True}
    bad = {**RECORDS[0], "income": float("inf")}
    status, reply = server.ask(records(*RECORDS, bad), **asked)
    assert status == 200
    schema = mlflow.models.get_model_info("models:/served@champion").signature.outputs
    for row in reply["predictions"][:3]:
        matches(row, Object([Property(one.name, one.type, required=one.required) for one in schema]))
    expected = EXPLAINED.predict(ASKED, {"counterfactual": asked}).to_dict("records")
    assert reply["predictions"][:3] == near(expected)
    assert reply["predictions"][3]["levers"] == []
    assert "levers[0]: 'age' is immutable under the policy" in refused(server, records(RECORDS[0]), levers=[["age"]])


def test_reasons_come_as_the_schema_says(server):
    asked = {"reasons": {"most": 2}}
    bad = {**RECORDS[0], "income": float("inf")}
    status, reply = server.ask(records(*RECORDS, bad), **asked)
    assert status == 200
    schema = mlflow.models.get_model_info("models:/served@champion").signature.outputs
    for row in reply["predictions"][:3]:
        matches(row, Object([Property(one.name, one.type, required=one.required) for one in schema]))
        told = row["reasons"]
        assert told["status"] == "already" if row["status"] == "already" else told["method"] == "exact"
        if told["factors"]:
            whole = sum(factor["contribution"] for factor in told["factors"]) + told["rest"]
            assert abs(whole - told["shortfall"]) <= 1e-9
    assert reply["predictions"][3]["reasons"]["status"] == "none"
    assert "reasons.most: " in refused(server, records(RECORDS[0]), reasons={"most": 0})


def test_one_request_asks_for_all_that_there_is(server):
    asked = {"region": "all", "levers": 2, "responsiveness": True, "record": True, "certify": True, "language": "de"}
    status, reply = server.ask(records(*RECORDS), **asked)
    assert status == 200
    schema = mlflow.models.get_model_info("models:/served@champion").signature.outputs
    for row in reply["predictions"]:
        matches(row, Object([Property(one.name, one.type, required=one.required) for one in schema]))
        (found,) = row["counterfactuals"]
        assert found["region"]
        assert found["text"].splitlines()[1].startswith("das gilt, solange ")
        assert row["levers"]
        assert row["responsiveness"]["responsive"] is True
        assert EXPLAINED.check(row["record"]).ok


def test_a_ladder_has_an_answer_for_each_rung(server):
    asked = {"target": {"label": "good", "ladder": [0.5, 0.7, 0.9]}}
    status, reply = server.ask(records(*RECORDS, {**RECORDS[0], "income": float("inf")}), **asked)
    assert status == 200
    assert reply["predictions"][:3] == near(EXPLAINED.predict(ASKED, {"counterfactual": asked}).to_dict("records"))
    for row in reply["predictions"][:3]:
        for answer in row["counterfactuals"]:
            assert answer["probability"] >= asked["target"]["ladder"][answer["rung"] - 1]
    assert reply["predictions"][3]["status"] == "invalid"
    falling = {"label": "good", "ladder": [0.7, 0.5]}
    assert "target.ladder[1]: 0.5 does not exceed 0.7" in refused(server, records(RECORDS[0]), target=falling)


def test_the_servers_own_output_gives_nothing_away(server):
    refused(server, records(RECORDS[0]), count=0)
    text = server.log.read_text()
    assert "Traceback" not in text
    assert str(small_loans.CANARY) not in text


def test_a_served_record_checks_and_an_edited_one_does_not(server):
    _, reply = server.ask(records(RECORDS[0]), record=True, certify=True, region=True)
    (answer,) = reply["predictions"]
    record = json.loads(answer["record"])
    assert record["row"] == RECORDS[0]
    assert record["answer"]["counterfactuals"][0]["changes"] == answer["counterfactuals"][0]["changes"]
    registered = mlflow_cf.load_model("models:/served@champion")
    for model in (registered, EXPLAINED):
        found = model.check(answer["record"])
        assert found.ok, str(found)
    assert "was edited" in registered.check({**record, "seed": record["seed"] + 1})[0].reason
    _, reply = server.ask(records(RECORDS[0]))
    assert reply["predictions"][0]["record"] == ""
