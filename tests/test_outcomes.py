"""What became of advice: told once, twice, of nothing; and what monitoring makes of traces in a store."""

import json

import mlflow
import numpy as np
import pandas as pd
import pytest
import small_loans

import mlflow_cf
from mlflow_cf.artifact.served import ServedModel
from mlflow_cf.audit import trace as traces
from mlflow_cf.audit.record import AnsweredBy, facts_of
from mlflow_cf.audit.trace import Audit
from mlflow_cf.errors import InputError
from mlflow_cf.monitoring.outcomes import outcome, outcome_of

pytestmark = pytest.mark.system

WEEK = pd.Timedelta("7D")
TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
ASKED = small_loans.rejected(TABLE, 3)
ASKED.loc[0, "income"] += 0.012345678  # more digits than a time has, so that a search for them finds no time
WANTED = TABLE[MODEL.predict(TABLE) == "good"].head(2)
EXPERIMENT = "outcomes"


@pytest.fixture(scope="module")
def served(throw_away_store):
    """Return for each kind of trace the reply to a request of three refused rows and two others, and the ids of its
    traces."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_ENABLE_ASYNC_TRACE_LOGGING", "false")
        patch.setenv("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        mlflow.tracing.reset()
        mlflow.set_experiment(EXPERIMENT)
        for mode in ("rows", "digests"):
            explained = mlflow_cf.wrap(
                MODEL, TABLE, target="good", constraints=small_loans.CONSTRAINTS, trace=mode, seed=1
            )
            audit = Audit(explained, AnsweredBy(f"m-{mode}", "0" * 64, {}))
            model = ServedModel(explained, audit=audit)
            reply = model.predict(pd.concat([ASKED, WANTED]), {"counterfactual": {"count": 2}}).to_dict("records")
            audit.settle()
            traces = mlflow.search_traces(filter_string=f"tag.`cf.model_id` = 'm-{mode}'", return_type="list")
            ordered = sorted(traces, key=lambda one: one.data.spans[0].attributes["cf.record"]["position"])
            found[mode] = reply, [one.info.trace_id for one in ordered]
        yield found
    mlflow.tracing.reset()
    mlflow.set_experiment("Default")


def feedback(trace_id):
    return [one for one in mlflow.get_trace(trace_id).info.assessments if one.name == "cf.outcome"]


def test_tags_have_what_monitoring_needs_and_no_value(served):
    reply, ids = served["digests"]
    tags = mlflow.get_trace(ids[0]).info.tags
    facts, nearest = json.loads(tags["cf.facts"]), min(reply[0]["counterfactuals"], key=lambda one: one["distance"])
    assert facts.pop("seconds") > 0
    assert facts == {
        "changed": [change["feature"] for change in nearest["changes"]],
        **{name: nearest[name] for name in ("distance", "n_changed", "proof")},
    }
    others = [mlflow.get_trace(one).info.tags.get("cf.untraced") for one in ids]
    assert others == ['{"already":2}', None, None]


def test_names_that_no_tag_has_room_for_are_left_out():
    answer = {"counterfactuals": [{"distance": 0.1, "n_changed": 1, "proof": "none", "changed": ["x" * 5_000]}]}
    assert json.loads(facts_of(answer, 0.5)) == {"distance": 0.1, "n_changed": 1, "proof": "none", "seconds": 0.5}
    assert json.loads(facts_of({"counterfactuals": []}, 0.5)) == {"seconds": 0.5}


def test_an_outcome_is_feedback_that_says_which_answer_was_followed(served):
    reply, ids = served["rows"]
    second = reply[0]["counterfactuals"][1]
    told = outcome(ids[0], row=second["row"], decision="good")
    assert (told.answer, told.complete, told.wanted, told.replaces) == (2, True, True, False)
    assert told.adopted == tuple(change["feature"] for change in second["changes"])
    (stored,) = feedback(ids[0])
    assert stored.value == "acted, decided as wanted"
    assert stored.source.source_type == "CODE"
    assert outcome_of([stored]) == outcome_of([stored.to_dictionary()])
    columns, count = outcome_of([stored])
    assert (columns["acted"], columns["wanted"], columns["adopted"], count) == (1.0, 1.0, list(told.adopted), 1)


def test_the_latest_outcome_counts(served):
    _, ids = served["rows"]
    first = outcome(ids[1], acted=False)
    again = outcome(ids[1], answer=1, decision="bad")
    third = outcome(ids[1], answer=1, decision=True)
    assert [one.replaces for one in (first, again, third)] == [False, True, True]
    stored = feedback(ids[1])
    assert [one.value for one in stored if one.valid is not False] == ["acted, decided as wanted"]
    assert outcome_of(stored)[0]["wanted"] == 1.0
    assert outcome_of(stored[::-1])[0]["wanted"] == 1.0


def test_more_than_was_advised_is_enough_and_less_is_a_part(served):
    reply, ids = served["rows"]
    before = ASKED.iloc[2].to_dict()
    advised = reply[2]["counterfactuals"][0]
    beyond = {
        name: value + (value - before[name]) if isinstance(value, float) and name == "income" else value
        for name, value in advised["row"].items()
    }
    assert outcome(ids[2], row=beyond).answer == 1
    assert outcome(ids[2], row=beyond).complete
    nothing = outcome(ids[2], row=pd.DataFrame([before]))
    assert (nothing.answer, nothing.adopted, nothing.complete) == (None, (), False)
    assert nothing.notes == ("the row makes no change that an answer advises",)
    pair = [one for one in reply[2]["counterfactuals"] if one["n_changed"] == 2]
    if pair:
        part = {**before, pair[0]["changes"][0]["feature"]: pair[0]["row"][pair[0]["changes"][0]["feature"]]}
        assert outcome(ids[2], row=part, answer=1 + reply[2]["counterfactuals"].index(pair[0])).complete is False


def test_digests_need_to_be_told_which_answer(served):
    _, ids = served["digests"]
    with pytest.raises(InputError, match=r"row: the trace holds digests, .* say which answer was followed: answer=1"):
        outcome(ids[0], row=ASKED.iloc[0])
    told = outcome(ids[0], row=ASKED.iloc[0], answer=1)
    assert told.adopted
    assert "the trace holds digests" in told.notes[0]
    text = json.dumps([one.to_dictionary() for one in feedback(ids[0])])
    assert str(ASKED.income[0]) not in text


def test_an_unknown_answer_is_told_as_such(served):
    told = outcome(served["digests"][1][1])
    assert (told.answer, told.adopted) == (None, ())
    assert outcome_of(feedback(told.trace_id))[0]["adopted"] is None


WRONG = {
    "trace_id: 'tr-none' cannot be fetched": {"trace_id": "tr-none"},
    "trace_id: '' is no id": {"trace_id": ""},
    "answer: 9 is none of the": {"answer": 9},
    "answer: nobody acted on it": {"answer": 1, "acted": False},
    "answer: True is none of the": {"answer": True},
    "acted: nan is no truth value": {"acted": float("nan")},
    "acted: 'False' is no truth value": {"acted": "False"},
    "acted: <NA> is no truth value": {"acted": pd.NA},
    "acted: None is no truth value": {"acted": None},
    "row: there are 2 rows": {"row": ASKED.head(2)},
    "row: list is no row": {"row": [1, 2]},
    "row: has none of the features": {"row": {"incom": 3}},
    "decision: 3 is not of the kind of the wanted label 'good'": {"decision": 3},
    "at: 'soon' is no time": {"at": "soon"},
    "at: 2020-01-01.* is before the answer of": {"at": "2020-01-01"},
    "at: 2200-01-01.* has not come yet": {"at": "2200-01-01"},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_does_not_fit_is_one_clear_message_and_stores_nothing(served, message):
    trace_id = served["rows"][1][0]
    before = len(feedback(trace_id))
    with pytest.raises(InputError, match=message):
        outcome(**{"trace_id": trace_id, **WRONG[message]})
    assert len(feedback(trace_id)) == before


@pytest.mark.parametrize("missing", [float("nan"), np.float64("nan"), pd.NA, pd.NaT])
def test_what_is_missing_is_not_told(served, missing):
    told = outcome(served["digests"][1][2], decision=missing, answer=missing)
    assert (told.wanted, told.answer, told.value) == (None, None, "acted")


def test_numbers_of_numpy_are_numbers(served):
    told = outcome(served["digests"][1][2], acted=np.True_, answer=np.int64(1), decision=np.False_)
    assert (told.answer, told.wanted, told.value) == (1, False, "acted, decided otherwise")
    assert outcome_of(feedback(told.trace_id))[0]["answer"] == 1
    assert outcome(told.trace_id, acted=np.False_).value == "not acted"


def test_a_clock_that_is_a_little_behind_does_no_harm(served):
    trace = mlflow.get_trace(served["rows"][1][0])
    answered = pd.Timestamp(trace.info.request_time, unit="ms")
    told = outcome(trace.info.trace_id, answer=1, at=answered - pd.Timedelta("1min"))
    assert pd.Timestamp(told.at) == answered.tz_localize("UTC")
    assert "the clocks differ: it is taken to be the moment of the answer" in told.notes


def test_what_is_no_answer_has_no_outcome(served):
    with mlflow.start_span("other") as span:
        span.set_inputs({"query": 1})
    with pytest.raises(InputError, match="trace: does not hold an explanation of a served model"):
        outcome(span.trace_id)


def test_monitoring_reads_the_store_and_shows_outcomes(served):
    reply, ids = served["rows"]
    outcome(ids[0], acted=False)
    for at, acted in enumerate((True, False, True)):
        outcome(ids[at], acted=acted, answer=1 if acted else None, decision="good" if acted else None)
    with pytest.raises(InputError, match="model: there are answers of 2 models"):
        mlflow_cf.monitor(EXPERIMENT, log_run=False)
    found = mlflow_cf.monitor(EXPERIMENT, model="m-rows", groups="job", log_run=False)
    assert found.spans["answers"].tolist()[0] == 5
    own = found.windows[found.windows["group"] == ""].set_index("measure")["value"]
    assert own["status.already"] == pytest.approx(0.4)
    nearest = [min(one["distance"] for one in line["counterfactuals"]) for line in reply[:3]]
    assert own["distance"] == pytest.approx(np.mean(nearest))
    assert set(found.windows["group"]) == {"", *(f"job.{job}" for job in ASKED["job"])}
    with pytest.raises(InputError, match=r"groups\.job: no answer tells it; trace rows instead of digests, or give"):
        mlflow_cf.monitor(EXPERIMENT, model="m-digests", groups="job", log_run=False)
    became = found.outcomes[found.outcomes["group"] == ""].set_index("measure")["value"]
    assert (became["acted"], became["validity"]) == (pytest.approx(2 / 3), 1.0)
    assert became["days_p50"] < 1
    assert any("outcomes that a later one of the same trace replaces: " in note for note in found.notes)
    assert any("there is no whole window to test yet" in note for note in found.notes)
    frame = mlflow.search_traces(filter_string="tag.`cf.model_id` = 'm-rows'")
    again = mlflow_cf.monitor(frame, groups="job", log_run=False)
    pd.testing.assert_frame_equal(again.windows, found.windows)
    pd.testing.assert_frame_equal(again.outcomes, found.outcomes)


def test_only_traces_since_the_reference_are_fetched(served):
    today = pd.Timestamp.now("UTC").floor("D")
    found = mlflow_cf.monitor(EXPERIMENT, model="m-rows", reference=(today - WEEK, today + WEEK), log_run=False)
    assert found.spans["answers"].tolist() == [5]
    with pytest.raises(InputError, match="source: no answers to follow"):
        mlflow_cf.monitor(EXPERIMENT, model="all", reference=(today + WEEK, today + 2 * WEEK), log_run=False)
    with pytest.raises(InputError, match="model: 'models:/none/1' is not found"):
        mlflow_cf.monitor(EXPERIMENT, model="models:/none/1", log_run=False)


def test_rows_beyond_the_limits_of_tracing_are_counted(served, monkeypatch):
    monkeypatch.setattr(traces, "MOST_ROWS", 1)
    explained = mlflow_cf.wrap(MODEL, TABLE, target="good", trace="digests")
    audit = Audit(explained, AnsweredBy("m-many", "0" * 64, {}))
    model = ServedModel(explained, audit=audit)
    model.predict(ASKED, {"counterfactual": {"explain": "none"}})
    model.predict(ASKED)
    audit.settle()
    frame = mlflow.search_traces(filter_string="tag.`cf.model_id` = 'm-many'")
    assert json.loads(frame["tags"].iloc[0]["cf.untraced"]) == {"found": 2, "skipped": 3}
    own = mlflow_cf.monitor(frame, log_run=False).windows.set_index("measure")["value"]
    assert own["coverage"] == 1
    assert own["status.skipped"] == 0.5


def test_older_traces_are_read_from_their_spans(served):
    frame = mlflow.search_traces(filter_string="tag.`cf.model_id` = 'm-digests'")
    older = [{name: value for name, value in tags.items() if name != "cf.facts"} for tags in frame["tags"]]
    tables = (mlflow_cf.monitor(one, log_run=False) for one in (frame, frame.assign(tags=older)))
    first, second = (one.windows for one in tables)
    pd.testing.assert_frame_equal(first, second, rtol=1e-3)


def test_experiments_that_are_not_there_are_one_clear_message(served):
    with pytest.raises(InputError, match="'outcome' is neither an experiment nor a file; did you mean 'outcomes'"):
        mlflow_cf.monitor("outcome")
    with pytest.raises(InputError, match="no experiment is named"):
        mlflow_cf.monitor([])
