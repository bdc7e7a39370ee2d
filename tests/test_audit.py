"""Traces of what requests were answered: found, read, computed again; and a store that is not there."""

import json
import logging
import pickle
import sqlite3
from contextlib import closing
from dataclasses import replace
from threading import Event

import mlflow
import numpy as np
import pandas as pd
import pytest
import rule_worlds
import small_loans
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import mlflow_cf
from mlflow_cf.artifact.served import ServedModel, replay_trace
from mlflow_cf.audit import record as records
from mlflow_cf.audit import trace as traces
from mlflow_cf.audit.record import (
    AnsweredBy,
    AskedFor,
    Record,
    differences,
    record_of,
    replay,
    row_values,
    table_of,
)
from mlflow_cf.audit.trace import Audit
from mlflow_cf.cli import main
from mlflow_cf.features import FeatureSpace
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Query
from mlflow_cf.records.document import digest, query_values
from mlflow_cf.wrapping import assemble

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
ASKED = small_loans.rejected(TABLE, 3)
ASKED.loc[0, "income"] += 0.012345678  # more digits than a time has, so that a search for them finds no time
OPTIONS = {"target": "good", "constraints": small_loans.CONSTRAINTS}
QUERY = {"count": 2, "certify": True, "seed": 7, "constraints": {"ranges": {"income": [10, 110.5]}}}
ORIGIN = AnsweredBy("m-1", "0" * 64, {})


@pytest.fixture(autouse=True, scope="module")
def at_once(throw_away_store):
    """Have MLflow write traces when they end: a flush of its threads takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
        mlflow.tracing.reset()
        yield
    mlflow.tracing.reset()


@pytest.fixture(scope="module")
def logged(at_once):
    """Return the loaded pyfunc of a logged model for each kind of trace."""
    found = {}
    options = {**OPTIONS, "privacy": {"explainers": ["nearest_row", "random_search", "exact"]}, "pip_requirements": []}
    for mode in ("rows", "digests"):
        info = mlflow_cf.log_model(MODEL, mode, TABLE, **options, trace=mode)
        found[mode] = mlflow.pyfunc.load_model(info.model_uri)
    return found


@pytest.fixture(scope="module")
def answered(logged):
    """Return for each kind of trace the reply to a request, and its traces."""
    return {mode: asked(model, ASKED, **QUERY) for mode, model in logged.items()}


def audit_of(pyfunc):
    return pyfunc._model_impl.audit


def asked(pyfunc, rows, **options):
    """Return the reply to a request, and its traces in the order of the rows once they have arrived."""
    before = {trace.info.trace_id for trace in found_by(pyfunc)}
    reply = pyfunc.predict(rows, params={"counterfactual": options}).to_dict("records")
    audit_of(pyfunc).settle()
    new = [trace for trace in found_by(pyfunc) if trace.info.trace_id not in before]
    return reply, sorted(new, key=lambda trace: trace.data.spans[0].attributes["cf.record"]["position"])


def found_by(pyfunc, more=""):
    text = f"tag.`cf.model_id` = '{pyfunc.metadata.model_id}'{more}"
    return mlflow.search_traces(filter_string=text, return_type="list")


def run(*words):
    told = () if "--json" in words else ("--text",)
    return CliRunner().invoke(main, ["replay", *map(str, words), *told])


def test_an_explained_row_is_a_trace_that_is_found_by_its_tags(logged, answered):
    model = logged["rows"]
    reply, new = answered["rows"]
    assert len(new) == len(ASKED)
    (span,) = new[1].data.spans
    assert span.inputs == {"row": ASKED.iloc[1].to_dict(), "query": QUERY}
    assert span.outputs == reply[1]
    facts = span.attributes["cf.record"]
    assert facts["origin"]["manifest_sha256"] == model.metadata.flavors["mlflow_cf"]["manifest_sha256"]
    assert facts["origin"]["versions"]["mlflow-cf"] == mlflow_cf.__version__
    assert facts["asked"]["explainer"]["name"] == "geco"
    assert facts["asked"]["target"] == {"label": "good"}
    assert 0 < facts["seconds"] < 60
    ids = {trace.info.trace_id for trace in new}
    for more in ("tag.`cf.status` = 'found'", "tag.`cf.prediction` = 'bad'", "tag.`cf.explainer` = 'geco'"):
        assert ids <= {trace.info.trace_id for trace in found_by(model, f" AND {more}")}
    assert len({trace.info.tags["cf.request"] for trace in new}) == 1
    of_model = mlflow.search_traces(model_id=model.metadata.model_id, return_type="list")
    assert ids <= {trace.info.trace_id for trace in of_model}
    assert new[0].info.execution_duration >= 0


def test_rows_that_were_not_explained_are_not_traced(logged):
    table = pd.concat([ASKED.head(1), TABLE[MODEL.predict(TABLE) == "good"].head(2)])
    assert [trace.info.tags["cf.status"] for trace in asked(logged["rows"], table)[1]] == ["found"]
    assert asked(logged["rows"], ASKED, explain="none")[1] == []


def test_tracing_that_is_off_starts_nothing(tmp_path, monkeypatch):
    for name in ("start_span_no_context", "start_span"):
        monkeypatch.setattr(mlflow, name, lambda *_, **__: pytest.fail("a span"))
    mlflow_cf.save_model(MODEL, tmp_path / "m", TABLE, **OPTIONS, pip_requirements=[])
    model = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    assert audit_of(model) is None
    assert set(model.predict(ASKED)["status"]) == {"found"}


def test_logging_a_model_traces_nothing(logged):
    everything = mlflow.search_traces(filter_string="tag.`cf.model_id` = ''", return_type="list")
    assert everything == []


def test_digests_say_nothing_of_the_row(answered):
    reply, new = answered["digests"]
    (span,) = new[0].data.spans
    assert span.inputs == {"sha256": new[0].info.tags["cf.row_sha256"], "query": QUERY}
    text = json.dumps([span.to_dict(), new[0].info.to_dict()])
    assert str(ASKED.income[0]) not in text
    assert ASKED.job[0] not in text
    assert reply[0]["counterfactuals"][0]["text"] not in text
    assert [found["changed"] for found in span.outputs["counterfactuals"]] == [
        [change["feature"] for change in found["changes"]] for found in reply[0]["counterfactuals"]
    ]


def test_a_replay_is_identical(answered):
    for trace in answered["rows"][1][:2]:
        done = run(trace.info.trace_id)
        assert (done.exit_code, done.output) == (0, "identical\n")


@pytest.mark.parametrize("explainer", ["nearest_row", "random_search", "exact"])
def test_a_replay_uses_the_explainer_of_the_request(logged, explainer):
    _, (trace,) = asked(logged["rows"], ASKED.head(1), explainer=explainer, max_evaluations=500)
    again = replay_trace(trace.info.trace_id)
    assert again.verdict == "identical"
    assert trace.info.tags["cf.explainer"] == explainer


def test_a_replay_of_digests_needs_the_row(answered, tmp_path):
    trace = answered["digests"][1][1]
    done = run(trace.info.trace_id)
    assert done.exit_code == 2
    assert "trace: it holds a digest of its row instead of the row; pass the row, perhaps among others" in done.output
    TABLE.to_csv(tmp_path / "rows.csv", index=False)
    done = run(trace.info.trace_id, "--rows", tmp_path / "rows.csv", "--json")
    assert (done.exit_code, json.loads(done.output)["verdict"]) == (0, "identical")
    TABLE.assign(age=99).to_csv(tmp_path / "rows.csv", index=False)
    done = run(trace.info.trace_id, "--rows", tmp_path / "rows.csv")
    assert done.exit_code == 2
    assert f"rows: none of {len(TABLE)} has the digest of the trace" in done.output


def tampered(throw_away_store, trace_id, old, new):
    """Replace a text in what the store holds of a trace."""
    with closing(sqlite3.connect(throw_away_store / "mlflow.db")) as store:
        done = store.execute(
            "UPDATE spans SET content = replace(content, ?, ?) WHERE trace_id = ? AND instr(content, ?)",
            (old, new, trace_id, old),
        )
        store.commit()
        assert done.rowcount == 1


@pytest.mark.parametrize("mode", ["rows", "digests"])
def test_a_replay_tells_what_was_tampered_with(logged, throw_away_store, mode):
    reply, (trace,) = asked(logged[mode], ASKED.head(1), **QUERY)
    distance = reply[0]["counterfactuals"][0]["distance"]
    tampered(throw_away_store, trace.info.trace_id, f'\\"distance\\": {distance!r}', '\\"distance\\": 0.001')
    ASKED.to_json(throw_away_store / "rows.json", orient="records")
    done = run(trace.info.trace_id, "--rows", throw_away_store / "rows.json")
    assert done.exit_code == 1
    assert done.output == f"counterfactuals[0].distance: was 0.001, is {distance!r}\ndifferent\n"


def test_a_row_that_was_tampered_with_is_refused(logged, throw_away_store):
    _, (trace,) = asked(logged["rows"], ASKED.head(1))
    tampered(throw_away_store, trace.info.trace_id, f'\\"age\\": {ASKED.age[0]}', '\\"age\\": 20')
    assert "trace: its row has another digest than was noted with it" in run(trace.info.trace_id).output


def test_another_artifact_is_refused_unless_it_is_named(logged, throw_away_store, tmp_path):
    _, (trace,) = asked(logged["rows"], ASKED.head(1), **QUERY)
    stricter = {**small_loans.CONSTRAINTS, "immutable": ["age", "owner"]}
    mlflow_cf.save_model(MODEL, tmp_path / "m", TABLE, target="good", constraints=stricter, pip_requirements=[])
    done = run(trace.info.trace_id, "--model-uri", tmp_path / "m")
    assert done.exit_code == 1
    assert done.output.startswith("compared with another artifact than the one that answered: manifest ")
    assert done.output.endswith("different\n")
    manifest = logged["rows"].metadata.flavors["mlflow_cf"]["manifest_sha256"]
    tampered(throw_away_store, trace.info.trace_id, manifest, "0" * 64)
    done = run(trace.info.trace_id)
    assert done.exit_code == 2
    assert "is not the artifact that answered" in done.output
    done = run(trace.info.trace_id, "-m", logged["rows"].metadata.get_model_info().model_uri)
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "identical")


def test_a_saved_folder_is_traced_and_must_be_named(tmp_path):
    mlflow_cf.save_model(MODEL, tmp_path / "m", TABLE, **OPTIONS, trace=True, pip_requirements=[])
    model = mlflow.pyfunc.load_model(str(tmp_path / "m"))
    model.predict(ASKED.head(1))
    audit_of(model).settle()
    (trace,) = mlflow.search_traces(filter_string="tag.`cf.model_id` = ''", return_type="list")
    assert "it names no logged model: a folder answered" in run(trace.info.trace_id).output
    assert run(trace.info.trace_id, "-m", tmp_path / "m").output == "identical\n"
    mlflow.MlflowClient().delete_traces(trace.info.experiment_id, trace_ids=[trace.info.trace_id])


def test_what_is_no_trace_of_ours_is_one_clear_message():
    assert "trace: 'tr-nothing' cannot be fetched" in run("tr-nothing").output
    with mlflow.start_span("other") as span:
        span.set_inputs({"query": 1})
    assert "trace: does not hold an explanation of a served model" in run(span.trace_id).output


def test_no_value_of_the_background_is_in_a_trace(answered):
    for _, new in answered.values():
        text = json.dumps([[trace.to_dict(), trace.info.to_dict()] for trace in new])
        assert str(small_loans.CANARY) not in text


def test_a_store_that_is_not_there_leaves_replies_untouched(logged, monkeypatch, caplog):
    expected, _ = asked(logged["rows"], ASKED, **QUERY)  # waits, or traces would still arrive in another test
    model = ServedModel(logged["rows"].get_raw_model(), audit=Audit(logged["rows"].get_raw_model(), ORIGIN))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "audit")
    store = mlflow.get_tracking_uri()
    caplog.set_level(logging.DEBUG)
    logging.getLogger("mlflow").addHandler(caplog.handler)
    try:
        mlflow.set_tracking_uri("http://127.0.0.1:9")
        reply = model.predict(ASKED, {"counterfactual": QUERY}).to_dict("records")
        model.audit.settle()
    finally:
        mlflow.set_tracking_uri(store)
        logging.getLogger("mlflow").removeHandler(caplog.handler)
    assert reply == expected
    assert "127.0.0.1" in caplog.text
    for value in (ASKED.income[0], reply[0]["counterfactuals"][0]["text"]):
        assert str(value) not in caplog.text


def test_a_trace_that_fails_is_told_without_values(logged, monkeypatch, caplog):
    def fail(*_args, **_kwargs):
        raise ValueError(f"income {ASKED.income[0]}")

    model = ServedModel(logged["rows"].get_raw_model(), audit=Audit(logged["rows"].get_raw_model(), ORIGIN))
    for place in ("write", "row_values"):
        monkeypatch.setattr(traces, place, fail)
        for _ in range(3):
            assert set(model.predict(ASKED)["status"]) == {"found"}
            model.audit.settle()
    assert [message for message in caplog.messages if "been traced" in message] == [
        "explanations that have not been traced so far: 3, the latest because of: ValueError",
        "explanations that have not been traced so far: 12, the latest because of: ValueError",
    ]
    assert str(ASKED.income[0]) not in caplog.text


def test_traces_are_bounded_in_number_and_size(logged, monkeypatch, caplog):
    model = logged["rows"]
    monkeypatch.setattr(traces, "MOST_ROWS", 2)
    assert len(asked(model, ASKED)[1]) == 2
    assert "have not been traced so far: 1, the latest because of: at most 2 of a request" in caplog.text
    monkeypatch.setattr(records, "MOST_CHARS", 100)
    _, new = asked(model, ASKED.head(1), count=5)
    (span,) = new[0].data.spans
    assert "row" in span.inputs  # it is short enough
    assert "reason_sha256" in span.outputs
    assert replay_trace(new[0].info.trace_id).verdict == "identical"


def test_what_is_not_traced_of_a_long_table_becomes_no_object(logged, monkeypatch):
    monkeypatch.setattr(Audit, "_write", lambda *_: None)
    audit, rows = audit_of(logged["rows"]), pd.concat([TABLE] * 6, ignore_index=True)
    answers = audit.explained.request(rows, {})
    statuses = answers.statuses  # makes those that no array holds
    before = sum(one is not None for one in answers.items._made)
    own = Audit(audit.explained, audit.origin)
    own.note(rows, {}, answers, 0)
    own.settle()
    made = sum(one is not None for one in answers.items._made) - before
    kept = min(sum(status not in traces.UNTRACED for status in statuses), traces.MOST_ROWS)
    assert 0 < made <= kept < len(rows)
    assert sum(own._untraced.values()) == len(rows) - kept


def test_no_reply_waits_for_a_store_that_does_not_answer(logged, monkeypatch, caplog):
    release, handed = Event(), []
    monkeypatch.setattr(traces, "MOST_WAITING", 2)
    monkeypatch.setattr(traces, "write", lambda record, *_: handed.append(record) or release.wait(60))
    model = ServedModel(logged["rows"].get_raw_model(), audit=Audit(logged["rows"].get_raw_model(), ORIGIN))
    for _ in range(4):
        assert set(model.predict(ASKED.head(1))["status"]) == {"found"}  # returns although nothing is written
    release.set()
    model.audit.settle()
    assert len(handed) == 2
    assert "have not been traced so far: 1, the latest" in caplog.text


def test_rows_that_the_clock_cut_are_told(logged):
    explained = logged["rows"].get_raw_model()
    (found,) = explained.request(ASKED.head(1), {"counterfactual": QUERY})
    values = row_values(explained.space, ASKED, [0])[0]
    late = AskedFor({**QUERY, "time_limit_s": 2.0}, {"label": "good"}, {}, 1_000_000, 1)
    cut = record_of(replace(found, diagnostics={"cut": "clock"}), values, 0, ORIGIN, late, "rows")
    assert replay(cut, explained).verdict == "identical"  # by chance: that is told too
    other = replace(cut, answer={**cut.answer, "evaluations": 1})
    assert replay(other, explained).verdict == "cut"
    assert replay(replace(other, cut=""), explained).verdict == "different"


def test_a_served_model_can_be_copied(logged):
    audit = audit_of(logged["rows"])
    again = pickle.loads(pickle.dumps(Audit(audit.explained, audit.origin)))  # noqa: S301  our own
    assert again.origin == audit.origin


# Rows of a table with every kind of column


EVERY = rule_worlds.background(24)
SPACE = FeatureSpace.infer(EVERY, rule_worlds.FEATURES)


@given(st.integers(0, 10_000))
def test_every_row_comes_back_from_json(seed):
    rows = rule_worlds.draw_rows(seed, 3)
    frame = rule_worlds.table(rows, EVERY)
    numbers = list(range(len(frame)))
    values = row_values(SPACE, frame, numbers)
    assert sorted(values) == numbers
    again = json.loads(json.dumps(values[2], allow_nan=False))
    assert again == values[2]
    back = table_of(SPACE, again)
    wide = SPACE.covering(frame)
    np.testing.assert_array_equal(wide.encode(back), wide.encode(frame.iloc[[2]]))
    assert digest(row_values(SPACE, back, [0])[0]) == digest(values[2])


@pytest.fixture(scope="module")
def odd():
    """Return an explained model over every kind of column, which decides by members, dates and missing rooms."""

    def member(frame):
        early = (frame["start"] < rule_worlds.DAYS[2]).to_numpy()
        return np.where(frame["member"].to_numpy(dtype=bool) & early & frame["rooms"].notna().to_numpy(), "yes", "no")

    opened = OpenModel("callable", ("no", "yes"), member)
    options = WrapOptions(target="yes", features=rule_worlds.FEATURES, trace=True)
    return assemble(opened, EVERY, None, options)


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_every_kind_are_replayed(odd, seed):
    rows = rule_worlds.table(rule_worlds.draw_rows(seed, 3), EVERY)
    query = Query.read({"count": 2, "max_evaluations": 2000, "explain": "all"})
    answers = odd.request(rows, {"counterfactual": query_values(query)})
    wanted = [number for number, one in enumerate(answers) if one.status not in traces.UNTRACED]
    facts = AskedFor(query_values(query), {}, {}, 2000, len(rows))
    for number, values in row_values(odd.space, rows, wanted).items():
        noted = record_of(answers[number], values, number, ORIGIN, facts, "rows")
        sent = json.loads(json.dumps([noted.inputs(), noted.answer, noted.facts()], allow_nan=False))
        assert Record.read(*sent) == noted
        assert replay(Record.read(*sent), odd).verdict == "identical"


# Laws


QUERIES = st.fixed_dictionaries(
    {},
    optional={
        "explain": st.sampled_from(["unfavourable", "all"]),
        "count": st.integers(1, 10),
        "seed": st.integers(0, 2**63 - 1),
        "time_limit_s": st.floats(1e-3, 10),
        "certify": st.booleans(),
        "explainer": st.sampled_from(["geco", {"name": "geco", "options": {"q": 50}}]),
        "target": st.sampled_from([1, True, "good", 0.5, {"label": 1, "min_probability": 0.7}, {"other": True}]),
        "constraints": st.fixed_dictionaries(
            {},
            optional={
                "ranges": st.dictionaries(
                    st.sampled_from("ab"), st.tuples(st.none() | st.floats(-9, 9), st.integers(9, 2**60)).map(list)
                ),
                "levels": st.just({"a": [1, True, "x", 0.1]}),
                "relative": st.just({"a": {"up": 0.1}}),
                "immutable": st.just(["a"]),
                "max_changes": st.integers(1, 9),
                "rules": st.just(["x_cf.a >= x.a"]),
            },
        ),
    },
)


@given(QUERIES)
def test_a_query_comes_back_from_json(options):
    query = Query.read(options)
    assert Query.read(json.loads(json.dumps(query_values(query), allow_nan=False))) == query


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_there_are_differences_where_values_differ(one, other):
    assert list(differences("", one, json.loads(json.dumps(one)))) == []
    found = list(differences("", one, other))
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert not (same and found)
    if one != other:
        assert found
