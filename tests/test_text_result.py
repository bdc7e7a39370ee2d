"""Sentences, and the record of a reply: its keys, its types, strict JSON."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.model.judge import OpenModel
from mlflow_cf.options import WrapOptions
from mlflow_cf.words.changes import Change, written
from mlflow_cf.words.result import Counterfactual, Explanation
from mlflow_cf.words.sentences import Speaker, spoken
from mlflow_cf.wrapping import assemble


@pytest.mark.parametrize(
    ("value", "in_reply", "in_words"),
    [
        (41000, "41000", "41,000"),
        (-1234567, "-1234567", "-1,234,567"),
        (0, "0", "0"),
        (0.5, "0.5", "0.5"),
        (1234.5, "1234.5", "1,234.5"),
        (2.0, "2.0", "2"),
        (12345678.25, "12345678.25", "12,345,678"),
        (True, "true", "yes"),
        (False, "false", "no"),
        ("rent", "rent", "rent"),
        ("", "", ""),
        (None, None, "missing"),
    ],
)
def test_values(value: Any, in_reply: str | None, in_words: str) -> None:
    assert written(value) == in_reply
    assert spoken(value) == in_words


@pytest.mark.parametrize("number", [0.1 + 0.2, 1e-7, 1e22, 123456789.123, -0.0, 5e-324])
def test_numbers_of_a_reply_can_be_read_back_exactly(number: float) -> None:
    assert float(written(number) or "") == number


@pytest.mark.parametrize(
    ("changes", "prediction", "expected"),
    [
        ([("income", 41000, 46500)], 1, "income rises from 41,000 to 46,500: the prediction becomes 1"),
        (
            [("debt_ratio", 0.5, 0.25), ("owner", False, True)],
            "good",
            "debt ratio falls from 0.5 to 0.25 and owner changes from no to yes: the prediction becomes good",
        ),
        (
            [("a", 1, 2), ("b", "x", "y"), ("c", None, 3)],
            True,
            "a rises from 1 to 2, b changes from x to y and c changes from missing to 3: the prediction becomes yes",
        ),
        (
            [("x", 0.1234567, 0.12345671)],
            0,
            "x rises from 0.1234567 to 0.12345671: the prediction becomes 0",
        ),
    ],
)
def test_sentences(changes: list[tuple[str, Any, Any]], prediction: Any, expected: str) -> None:
    assert Speaker().answer(tuple(Change(*change) for change in changes), prediction) == expected


def test_change_record_keeps_a_missing_value_null() -> None:
    assert Change("a", None, 3).to_dict() == {"feature": "a", "from": None, "to": "3"}


FRAME = pd.DataFrame(
    {
        "income": [10, 20, 30, 40, 50, 60],
        "ratio": np.array([0.5, 0.25, 1.5, 0.75, 2.0, 1.0], dtype="float32"),
        "home": ["rent", "own", "rent", None, "own", "rent"],
        "member": [True, False, True, False, True, False],
        "rooms": pd.array([1, 2, None, 4, 2, 1], dtype="Int64"),
    }
)


@pytest.fixture(scope="module")
def wrapped() -> ExplainedModel:
    def score(rows: pd.DataFrame) -> np.ndarray:
        good = np.clip(rows["income"].to_numpy(dtype=float) / 100 + rows["member"].to_numpy() * 0.2, 0, 1)
        return np.column_stack([1 - good, good])

    model = OpenModel(
        "test", ("no", "yes"), lambda r: np.where(score(r)[:, 1] > 0.5, "yes", "no"), score, score_kind="probability"
    )
    return assemble(model, FRAME, None, WrapOptions(target="yes"))


class TestRecord:
    """DESIGN section 6: these keys, these types, in this order; nothing a strict JSON reader refuses."""

    def test_shape(self, wrapped: ExplainedModel) -> None:
        reply = wrapped.predict(FRAME.iloc[[1, 2, 5]], {"counterfactual": {"count": 2}})
        assert list(reply.columns) == [
            "prediction",
            "probability",
            "status",
            "reason",
            "counterfactuals",
            "levers",
            "responsiveness",
            "record",
            "reasons",
            "explainer",
            "seed",
            "evaluations",
            "judge_calls",
            "judged_rows",
        ]
        assert reply["status"].tolist() == ["found", "found", "already"]
        assert reply["prediction"].tolist() == ["no", "no", "yes"]
        for record in reply.to_dict("records"):
            text = json.dumps(record, allow_nan=False)  # plain types alone, and no NaN
            assert json.loads(text) == record
            assert [type(record[k]) for k in ("reason", "explainer", "seed", "evaluations")] == [str, str, int, int]
            assert (record["judge_calls"], record["judged_rows"]) == (0, 0)  # of models that others answer for

    def test_counterfactuals(self, wrapped: ExplainedModel) -> None:
        query = FRAME.iloc[[2]]
        record = wrapped.predict(query)["counterfactuals"].iloc[0][0]
        assert list(record) == [
            "row",
            "changes",
            "prediction",
            "probability",
            "distance",
            "n_changed",
            "proof",
            "bound",
            "solver",
            "text",
            "plan",
            "region",
            "region_reason",
            "rung",
            "survival",
        ]
        assert list(record["row"]) == list(FRAME.columns)
        # its own value everywhere but in the change; missing stays missing
        assert record["row"] == {"income": 40, "ratio": 1.5, "home": "rent", "member": True, "rooms": None}
        assert record["changes"] == [{"feature": "income", "from": "30", "to": "40"}]
        assert record["n_changed"] == 1
        assert (record["proof"], record["bound"], record["plan"]) == ("none", None, [])
        assert record["prediction"] == "yes"
        assert record["probability"] == pytest.approx(0.6)
        assert record["distance"] == pytest.approx(0.5 / 5 + 0.5 * (10 / 50) / 5)
        assert record["text"] == "income rises from 30 to 40: the prediction becomes yes"

    def test_objects_say_the_same(self, wrapped: ExplainedModel) -> None:
        found = wrapped.explain(FRAME.iloc[[2]])[0]
        assert found.to_dict() == wrapped.predict(FRAME.iloc[[2]]).to_dict("records")[0]
        assert "seconds" in found.diagnostics
        assert "seconds" not in json.dumps(found.to_dict())

    def test_frame(self, wrapped: ExplainedModel) -> None:
        found = wrapped.explain(FRAME.iloc[[1]], count=2)[0]
        frame = found.to_frame()
        facts = ["counterfactual", "prediction", "probability", "distance", "n_changed", "proof"]
        assert list(frame.columns) == [*FRAME.columns, *facts]
        assert len(frame) == len(found.counterfactuals) == 2
        assert Explanation("not_found", "why", 0, None).to_frame().empty

    def test_words(self, wrapped: ExplainedModel) -> None:
        found = wrapped.explain(FRAME.iloc[[2]])[0]
        assert str(found) == "found\n  income rises from 30 to 40: the prediction becomes yes"
        assert str(Explanation("infeasible", "because", 0, None)) == "infeasible: because"

    def test_html_is_escaped(self) -> None:
        change = Change("<b>", "<script>", "&")
        row = Counterfactual({"<b>": "&"}, (change,), "<i>", None, 0.1, 1)
        shown = Explanation("found", "<u>", "<p>", None, (row,))._repr_html_()
        for dirty in ("<b>0", "<script>", "<i>", "<u>", "<p>("):
            assert dirty not in shown.replace("<b>found</b>", "")
        assert "&lt;script&gt;" in shown
        assert "<table>" not in Explanation("skipped", "", 1, None)._repr_html_()


def test_types_of_the_prediction_are_plain() -> None:
    for classes, typed in (((0, 1), int), ((False, True), bool), (("a", "b"), str), ((0.0, 1.0), float)):
        labels = np.array(classes)
        model = OpenModel("test", classes, lambda r, labels=labels: labels[(r["x"].to_numpy() > 2).astype(int)])
        frame = pd.DataFrame({"x": [1, 2, 3, 4], "y": ["p", "q", "p", "q"]})
        reply = assemble(model, frame, None, WrapOptions(target=classes[1])).predict(frame)
        assert {type(p) for p in reply["prediction"]} == {typed}
        assert type(reply["counterfactuals"].iloc[0][0]["prediction"]) is typed
        assert reply["probability"].tolist() == [None] * 4


def test_a_date_has_a_direction() -> None:
    later = Change("end_date", "2024-03-01", "2024-03-01T12:00:00")
    told = Speaker().answer((Change("start", "2024-03-01", "2024-02-01"), later), 1)
    parts = (
        "start moves earlier, from 2024-03-01 to 2024-02-01",
        "end date moves later, from 2024-03-01 to 2024-03-01T12",
    )
    assert all(part in told for part in parts)
    for old, new in ((None, "2024-02-01"), ("2024-03", "2024-02-01"), ("x", "y")):
        assert f"start changes from {spoken(old)} to {spoken(new)}: " in Speaker().answer(
            (Change("start", old, new),), 1
        )
