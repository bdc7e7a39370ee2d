"""An explained model saved by the first version of the format is loaded and answers as it did then."""

import json
import re
import shutil
import time
from copy import deepcopy
from pathlib import Path

import mlflow
import pandas as pd
import pytest

import mlflow_cf

FOLDER = Path(__file__).parent / "schema_1"
ROWS = pd.DataFrame(**json.loads((FOLDER / "rows.json").read_text(encoding="utf-8")))
REPLIES = json.loads((FOLDER / "replies.json").read_text(encoding="utf-8"))
SEEN = pd.read_parquet(FOLDER / "credit" / "counterfactual" / "background.parquet")
VALUES = re.compile(r"(let \w+) go from [0-9,]+ to [0-9,]+")  # of the background, in advice that only owners get
COMPUTED = {"probability", "distance", "bound"}  # fractions, whose last digits a library may change


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a copy of the artifact: nothing may need, or leave, a file beside it."""
    return shutil.copytree(FOLDER / "credit", tmp_path_factory.mktemp("schema 1") / "credit")


@pytest.fixture
def no_hurry(monkeypatch):
    """Stop the clock: a slow machine, or one that compiles first, shall find what a fast one does."""
    monkeypatch.setattr(time, "perf_counter", lambda: 0.0)


def shown(table):
    """Return replies as JSON values, without what a search cost: that may change."""
    return [{key: value for key, value in reply.items() if key != "evaluations"} for reply in table.to_dict("records")]


def expected(value, key=""):
    """Return recorded replies as something to compare with what is shown."""
    if isinstance(value, dict):
        return {name: expected(one, name) for name, one in value.items() if name != "evaluations"}
    if isinstance(value, list):
        return [expected(one) for one in value]
    return pytest.approx(value, rel=1e-9) if key in COMPUTED and value is not None else value


LATER_IN_REPLIES = {"levers", "responsiveness", "record", "reasons", "judge_calls", "judged_rows"}
LATER = {"solver", "region", "region_reason", "rung", "survival"}


def without_later_keys(reply):
    """Return a reply without keys that came later; nobody asked for what they tell."""
    assert reply["levers"] == []
    assert reply["responsiveness"]["shares"] == []
    assert reply["reasons"]["status"] == ""
    assert (reply["judge_calls"], reply["judged_rows"]) == (0, 0)
    kept = {key: value for key, value in reply.items() if key not in LATER_IN_REPLIES}
    answers = [{key: value for key, value in one.items() if key not in LATER} for one in reply["counterfactuals"]]
    return {**kept, "counterfactuals": answers}


def check(found, recorded, count):
    """Compare replies with the recorded ones.

    A search may find nearer counterfactuals today, and prove more of them, near-copies are no answers any more, and
    what leaves no background row is named; nothing else may differ.
    """
    for reply, before in zip(map(without_later_keys, found), recorded, strict=True):
        if reply != expected(before):
            now, then = reply.pop("counterfactuals"), without_near_copies(before.pop("counterfactuals"))
            if len(now) < count:
                before.pop("reason")
                fewer = f"{len(now)} of {count} counterfactuals asked for: nothing else "
                none = "none of the background rows that are predicted as wanted meets constraints."
                assert reply.pop("reason").startswith(fewer if now else none)
            assert reply == expected(before)
            assert len(now) >= len(then)
            for one, other in zip(now, then, strict=False):
                proved = (one["proof"], other["proof"]) == ("optimal", "none")
                then_too = {**other, "proof": "optimal", "bound": one["distance"]} if proved else other
                same = one == expected(then_too) or (one["proof"], other["proof"]) == ("none", "none")
                assert same or (proved and one["distance"] < other["distance"])
                assert one["distance"] < other["distance"] + 1e-9


def without_near_copies(answers):
    """Return answers without those that differ from one before them by less than 5 % of a number's range."""
    kept = []
    for answer in answers:
        to = {change["feature"]: change["to"] for change in answer["changes"]}
        if not any(near(to, {change["feature"]: change["to"] for change in other["changes"]}) for other in kept):
            kept.append(answer)
    return kept


def near(one, other):
    spread = {name: SEEN[name].max() - SEEN[name].min() for name in ("age", "income")}
    return one.keys() == other.keys() and all(
        abs(float(one[name]) - float(other[name])) < 0.05 * spread[name] if name in spread else one[name] == other[name]
        for name in one
    )


def asked(reply):
    return json.dumps(reply["params"])


def test_the_requests_differ_and_ask_for_every_kind_of_answer():
    assert len(set(map(asked, REPLIES))) == len(REPLIES) > 1
    assert all(len(reply["predictions"]) == len(ROWS) for reply in REPLIES)
    statuses = {one["status"] for reply in REPLIES for one in reply["predictions"]}
    assert statuses == {"found", "not_found", "infeasible"}


@pytest.mark.usefixtures("no_hurry")
@pytest.mark.parametrize("reply", REPLIES, ids=asked)
def test_rows_as_the_model_was_trained_on(saved, reply):
    explained = mlflow_cf.load_model(saved)
    rows = ROWS.astype({feature.name: feature.raw_dtype for feature in explained.space.features})
    assert isinstance(rows["job"].dtype, pd.CategoricalDtype)
    assert rows[list(ROWS)].astype(object).equals(ROWS.astype(object))
    found = explained.explain(rows, **reply["params"]).to_records()
    check(shown(found), deepcopy(reply["predictions"]), reply["params"].get("count", 1))


@pytest.mark.usefixtures("no_hurry")
@pytest.mark.parametrize("reply", REPLIES, ids=asked)
def test_rows_as_they_come_over_http(saved, reply):
    """What was logged without a word on privacy is private."""
    served, params = mlflow.pyfunc.load_model(str(saved)), {"counterfactual": reply["params"]}
    if reply["params"].get("explainer", "geco") not in ("geco", "exact"):
        with pytest.raises(mlflow_cf.InputError, match="does not answer requests to this model"):
            served.predict(ROWS, params)
        return
    recorded = [one | {"reason": VALUES.sub(r"\1 rise", one["reason"])} for one in reply["predictions"]]
    check(shown(served.predict(ROWS, params)), deepcopy(recorded), reply["params"].get("count", 1))


def test_loading_changes_nothing(saved):
    files = {path.relative_to(FOLDER / "credit") for path in (FOLDER / "credit").rglob("*") if path.is_file()}
    mlflow_cf.load_model(saved)
    left = {path.relative_to(saved) for path in saved.rglob("*") if path.is_file()}
    assert left == files
    assert all((saved / name).read_bytes() == (FOLDER / "credit" / name).read_bytes() for name in files)
