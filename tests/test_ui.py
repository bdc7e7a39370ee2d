"""The server of the what-if page: what it tells of a model, what it reads, what it refuses, and what it asks."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import requests
import small_loans
import uvicorn
from click.testing import CliRunner
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression

import mlflow_cf
from mlflow_cf import ExplainedModel, InputError
from mlflow_cf.cli import main
from mlflow_cf.cli.page import named
from mlflow_cf.ui.app import MOST_BYTES, PAGE, what_if
from mlflow_cf.ui.asking import Asked
from mlflow_cf.ui.facts import facts_of, pictures_of
from mlflow_cf.ui.rows import pasted, rows_of, table_of

ROW_NAMES = ("age", "income", "job", "owner", "debts")
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([10**400, -(10**400), "\ud800", "nurse", "2024-01-01"])
)
JSON = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ROW_NAMES, "x"]), inner)
)
ROW = {"age": 40, "income": 23.3, "job": "nurse", "owner": True, "debts": 2.0}


@dataclass(frozen=True)
class Client:
    """Asks the page's server as the page does."""

    url: str

    def get(self, path: str, headers: dict[str, str] | None = None) -> requests.Response:
        return requests.get(f"{self.url}{path}", headers=headers, timeout=60)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> requests.Response:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        return requests.post(f"{self.url}{path}", data=data, headers=sent, timeout=60)

    def ask(self, what: str, row: dict[str, Any] = ROW, model: int = 0, **options: Any) -> Any:
        more = {key: options.pop(key) for key in ("feature", "counterfactuals") if key in options}
        body = {"dataframe_records": [row], "params": {"counterfactual": options}, **more}
        return self.post(f"models/{model}/{what}", body)


@contextmanager
def running(app: FastAPI) -> Iterator[Client]:
    """Serve an application in a thread for the time of a `with` block."""
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield Client(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/")
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def loans() -> pd.DataFrame:
    return small_loans.table()


@pytest.fixture(scope="module")
def explained(loans: pd.DataFrame) -> ExplainedModel:
    features = {"income": {"label": "yearly income", "unit": "EUR"}}
    return mlflow_cf.wrap(
        small_loans.fitted(loans), loans, target="good", constraints=small_loans.CONSTRAINTS, features=features
    )


@pytest.fixture(scope="module")
def shown(loans: pd.DataFrame) -> ExplainedModel:
    model = small_loans.fitted(loans.head(40))
    return mlflow_cf.wrap(model, loans, target="good", privacy={"sample": "shown"})


@pytest.fixture(scope="module")
def client(explained: ExplainedModel, shown: ExplainedModel, loans: pd.DataFrame) -> Iterator[Client]:
    with running(what_if([("loans 1", explained), ("loans 2", shown)], loans.head(12))) as found:
        yield found


def told(explained: ExplainedModel) -> dict[str, Any]:
    return facts_of(explained, "loans", pictures_of(explained))


def feature(facts: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in facts["features"] if one["name"] == name)


class TestFacts:
    def test_what_the_policy_holds(self, explained: ExplainedModel) -> None:
        facts = told(explained)
        assert (facts["target"], facts["threshold"], facts["limits"]["max_changes"]) == ("good", 0.5, 2)
        assert feature(facts, "age")["policy"]["locked"] == "policy"
        assert feature(facts, "income")["policy"]["range"] == [0, 120]
        assert (feature(facts, "income")["label"], feature(facts, "income")["unit"]) == ("yearly income", "EUR")
        assert set(feature(facts, "job")["levels"]) == {"clerk", "cook", "nurse"}
        assert facts["explainers"] == ["geco", "exact"]

    def test_what_else_the_policy_says_of_a_feature(self, loans: pd.DataFrame) -> None:
        constraints = {
            "relative": {"income": {"up_percent": 25, "down": 0}},
            "forbidden": {"job": [["cook", "clerk"]]},
            "groups": [["age", "debts"]],
            "rules": ["IF x_cf.income > x.income THEN x_cf.age > x.age"],
            "levels": {"job": ["cook", "nurse"]},
            "increasing": ["age"],
        }
        facts = told(mlflow_cf.wrap(small_loans.fitted(loans), loans, target="good", constraints=constraints))
        held = {name: feature(facts, name)["policy"] for name in loans}
        assert held["income"]["told"] == ["not down", "up by at most 25 %"]
        assert held["income"]["rules"] == held["age"]["rules"] == constraints["rules"]
        assert (held["age"]["direction"], held["age"]["told"]) == ("increasing", ["changes together with debts"])
        assert held["job"]["levels"] == ["cook", "nurse"]
        assert held["job"]["told"] == ["some transitions are forbidden"]

    def test_nothing_rare_is_told_of_a_private_sample(self, explained: ExplainedModel, shown: ExplainedModel) -> None:
        _, high = feature(told(explained), "income")["axis"]
        assert high < small_loans.CANARY
        assert feature(told(shown), "income")["axis"][1] > high
        assert str(small_loans.CANARY) not in json.dumps(told(explained))
        frame = pd.DataFrame({"x": np.arange(40.0), "kind": ["usual"] * 37 + ["rare"] * 3})
        model = mlflow_cf.wrap(lambda rows: rows["x"] / 40, frame, target=1, output="score")
        assert feature(told(model), "kind")["levels"] == ["usual"]

    def test_all_of_it_is_json(self, client: Client) -> None:
        facts = client.get("facts").json()
        assert [one["name"] for one in facts["models"]] == ["loans 1", "loans 2"]
        assert len(facts["rows"]) == 12

    def test_no_more_than_two_models(self, explained: ExplainedModel) -> None:
        for models in ([], [("loans", explained)] * 3):
            with pytest.raises(InputError, match="one, or two"):
                what_if(models)


class TestRows:
    def test_the_sample_is_shown_where_it_is_no_secret(self, explained: ExplainedModel, shown: ExplainedModel) -> None:
        assert rows_of(explained, None) == []
        assert len(rows_of(shown, None)) == small_loans.ROWS

    def test_given_rows_have_their_predictions(self, explained: ExplainedModel, loans: pd.DataFrame) -> None:
        found = rows_of(explained, loans.head(5).assign(more=1))
        assert [one["prediction"] for one in found] == list(small_loans.fitted(loans).predict(loans.head(5)))
        assert found[0]["row"]["income"] == loans["income"].iloc[0]
        assert rows_of(explained, loans.head(5).drop(columns="debts"))[0]["row"]["debts"] is None
        assert rows_of(explained, loans.head(0)) == []
        with pytest.raises(InputError, match="income"):
            rows_of(explained, loans.drop(columns="income"))

    @pytest.mark.parametrize(
        "text",
        [
            json.dumps(ROW),
            json.dumps([ROW, ROW]),
            json.dumps({"dataframe_records": [ROW]}),
            json.dumps({"dataframe_split": {"columns": list(ROW), "data": [list(ROW.values())]}}),
            "age,income,job,owner,debts\n40,23.3,nurse,True,2",
            "age;income;job;owner;debts;more\n40;23.3;nurse;yes;2;x\n41;1;cook;no;1;x\n",
            "\ufeffage,income,job,owner,debts\n40,23.3,nurse,true,2",
        ],
    )
    def test_pasted(self, explained: ExplainedModel, text: str) -> None:
        assert pasted(explained.space, text)["row"] == ROW

    def test_missing_values_and_unknown_levels(self, explained: ExplainedModel) -> None:
        row = pasted(explained.space, "age,income,job,owner,debts\n40,23.3,pilot,true,")["row"]
        assert (row["job"], row["debts"]) == ("pilot", None)
        assert "debts" in pasted(explained.space, json.dumps({k: v for k, v in ROW.items() if k != "debts"}))["row"]

    @pytest.mark.parametrize(
        ("text", "path"),
        [
            ("", "pasted"),
            ("{", "pasted"),
            ("[1, 2]", "pasted"),
            ("[]", "pasted"),
            ("[" * 100_000, "pasted"),
            ("age,income", "pasted"),
            ("age,income\n1", "pasted"),
            ('{"dataframe_split": {"columns": 3}}', "pasted"),
            ('{"dataframe_records": [7]}', "pasted"),
            ('{"other": 1}', "pasted"),
            (json.dumps({**ROW, "age": "old"}), "rows.age"),
            (json.dumps({**ROW, "age": 40.5}), "rows.age"),
            (json.dumps({**ROW, "age": None}), "rows.age"),
            (json.dumps({**ROW, "age": 1e300}), "rows.age"),
            (json.dumps({**ROW, "income": [1]}), "rows.income"),
            (json.dumps({**ROW, "income": True}), "rows.income"),
            (json.dumps({**ROW, "job": 7}), "rows.job"),
            (json.dumps({**ROW, "owner": "perhaps"}), "rows.owner"),
            (json.dumps({name: value for name, value in ROW.items() if name != "income"}), "rows.income"),
        ],
    )
    def test_what_cannot_be_read_is_told_with_its_path(self, explained: ExplainedModel, text: str, path: str) -> None:
        with pytest.raises(InputError) as caught:
            pasted(explained.space, text)
        assert caught.value.path == path

    def test_dates_are_read_as_days(self) -> None:
        days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(40), unit="D")
        frame = pd.DataFrame({"x": np.arange(40.0), "day": days})
        model = mlflow_cf.wrap(lambda rows: rows["x"] / 40, frame, target=1, output="score")
        assert pasted(model.space, "x,day\n1,2024-01-05")["row"] == {"x": 1.0, "day": "2024-01-05"}
        with pytest.raises(InputError, match="2024-12-31"):
            pasted(model.space, "x,day\n1,yesterday")
        assert feature(told(model), "day")["days"]
        found = Asked.of(model, "days").curve(
            {"dataframe_records": [{"x": 1.0, "day": "2024-01-05"}], "feature": "day"}
        )
        assert found["points"][found["own"]]["value"] == "2024-01-05"

    @given(text=st.text(max_size=80) | st.builds(json.dumps, JSON) | st.just('{"age": ' + "9" * 5_000 + "}"))
    def test_whatever_is_pasted_is_read_or_refused(self, explained: ExplainedModel, text: str) -> None:
        with suppress(InputError):
            assert set(pasted(explained.space, text)["row"]) == set(ROW)

    @given(row=st.fixed_dictionaries(dict.fromkeys(ROW, VALUES)) | JSON)
    def test_whatever_is_sent_is_a_row_or_refused(self, explained: ExplainedModel, row: Any) -> None:
        with suppress(InputError):
            table = table_of(explained.space, [row])
            assert len(table) == 1
            assert table.dtypes.to_dict() == explained.background.dtypes.to_dict()
            explained.space.covering(table).encode(table)


class TestAnswers:
    def test_they_are_those_of_a_request(self, client: Client, explained: ExplainedModel) -> None:
        options = {"count": 2, "constraints": {"immutable": ["job"]}, "certify": True, "levers": 1}
        reply = client.ask("answer", **options).json()
        (record,) = explained.request(pd.DataFrame([ROW]), {"counterfactual": options})
        assert reply["record"] == json.loads(json.dumps(record.to_dict()))
        assert len(reply["answers"]) == len(reply["record"]["counterfactuals"]) == 2
        assert "→" in reply["answers"][0]

    def test_many_at_once_get_the_same(self, client: Client) -> None:
        with ThreadPoolExecutor(6) as threads:
            replies = [one.json()["record"] for one in threads.map(lambda _: client.ask("answer", count=2), range(12))]
        told = [record for record in replies if record["status"] != "busy"]
        assert told
        assert told == [told[0]] * len(told)

    def test_a_row_without_answer_has_a_reason(self, client: Client) -> None:
        reply = client.ask("answer", constraints={"immutable": ["income", "job", "owner", "debts"]}).json()
        assert reply["record"]["status"] == "infeasible"
        assert reply["record"]["reason"]
        assert reply["answers"] == []

    @pytest.mark.parametrize(
        ("row", "options", "path"),
        [
            (ROW, {"count": 1_000}, "count"),
            (ROW, {"time_limit_s": 60}, "time_limit_s"),
            (ROW, {"constraints": {"ranges": {"income": [0, 500]}}}, "constraints.ranges.income"),
            (ROW, {"constraints": {"increasing": ["age"]}}, "constraints.increasing.age"),
            (ROW, {"constraints": {"max_changes": 3}}, "constraints.max_changes"),
            (ROW, {"explainer": "nearest_row"}, "explainer"),
            (ROW, {"nonsense": 1}, "nonsense"),
            ({**ROW, "income": float("nan")}, {}, "rows.income"),
            ({**ROW, "age": 10**400}, {}, "rows.age"),
            ({**ROW, "job": "\ud800"}, {}, "rows.job"),
            ({**ROW, "income": "much"}, {}, "rows.income"),
        ],
    )
    def test_errors_have_paths(self, client: Client, row: dict[str, Any], options: dict[str, Any], path: str) -> None:
        reply = client.ask("answer", row, **options)
        assert reply.status_code == 400
        assert [one["path"] for one in reply.json()["errors"]] == [path]

    def test_all_errors_of_a_row_at_once(self, client: Client) -> None:
        errors = client.ask("answer", {"age": "old", "income": "much"}).json()["errors"]
        assert [one["path"] for one in errors] == ["rows.age", "rows.income", "rows.job", "rows.owner"]

    def test_survival_under_the_other_version(self, client: Client, shown: ExplainedModel) -> None:
        rows = [found["row"] for found in client.ask("answer", count=3).json()["record"]["counterfactuals"]]
        answers = client.ask("survival", model=1, counterfactuals=rows).json()["answers"]
        verified = shown.verify(pd.DataFrame([ROW]), pd.DataFrame(rows))
        assert [one["valid"] for one in answers] == [one.valid for one in verified]
        assert client.ask("survival", model=1, counterfactuals=[]).status_code == 400

    def test_documents_to_keep(self, client: Client) -> None:
        card, notice = client.ask("card").json(), client.ask("notice").json()
        assert card["text"].startswith("<!DOCTYPE html>")
        assert "cf-card" in card["text"]
        assert "yearly income" in notice["text"]
        for one in (card, notice):
            assert "<script" not in one["text"]

    def test_a_policy_without_reasons_gives_no_notice(self, loans: pd.DataFrame) -> None:
        model = mlflow_cf.wrap(small_loans.fitted(loans), loans, target="good", privacy={"reasons": False})
        body = {"dataframe_records": [ROW]}
        with pytest.raises(InputError, match=r"privacy\.reasons"):
            Asked.of(model, "loans").kept(body, "notice")
        assert not told(model)["may"]["reasons"]


class TestCurves:
    @pytest.mark.parametrize("name", ["income", "job", "owner", "debts", "age"])
    def test_points_are_what_the_model_predicts(self, client: Client, loans: pd.DataFrame, name: str) -> None:
        curve = client.ask("curve", feature=name).json()
        model = small_loans.fitted(loans)
        rows = pd.DataFrame([{**ROW, name: point["value"]} for point in curve["points"]]).astype(loans.dtypes)
        assert [point["prediction"] for point in curve["points"]] == list(model.predict(rows))
        good = list(model.classes_).index("good")
        np.testing.assert_allclose([p["score"] for p in curve["points"]], model.predict_proba(rows)[:, good])
        assert [point["met"] for point in curve["points"]] == (model.predict(rows) == "good").tolist()
        assert curve["points"][curve["own"]]["value"] == ROW[name]
        assert curve["thresholds"] == [0.5]

    def test_a_missing_value_has_a_point(self, client: Client) -> None:
        curve = client.ask("curve", {**ROW, "debts": None}, feature="debts").json()
        assert curve["points"][curve["own"]]["value"] is None
        assert curve["points"][curve["own"]]["at"] is None

    def test_of_a_regression(self) -> None:
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
        model = LinearRegression().fit(frame, 3 * frame["a"] - frame["b"])
        asked = Asked.of(mlflow_cf.wrap(model, frame, target={"low": 1.0, "high": 2.0}), "line")
        curve = asked.curve({"dataframe_records": [{"a": 0.0, "b": 0.0}], "feature": "a"})
        values = np.array([point["value"] for point in curve["points"]])
        scores = np.array([point["score"] for point in curve["points"]])
        np.testing.assert_allclose(scores, 3 * values, atol=1e-9)
        assert [point["met"] for point in curve["points"]] == ((scores >= 1) & (scores <= 2)).tolist()
        assert curve["thresholds"] == [1.0, 2.0]

    def test_of_several_classes_there_is_no_threshold(self) -> None:
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"a": rng.normal(size=200), "b": rng.normal(size=200)})
        model = LogisticRegression().fit(frame, np.digitize(frame["a"], [-0.5, 0.5]))
        asked = Asked.of(mlflow_cf.wrap(model, frame, target={"other": True}), "three")
        curve = asked.curve({"dataframe_records": [{"a": 0.0, "b": 0.0}], "feature": "a"})
        assert curve["thresholds"] == []
        assert [point["met"] for point in curve["points"]] == [point["prediction"] != 1 for point in curve["points"]]

    def test_of_no_feature(self, client: Client) -> None:
        assert client.ask("curve", feature="incme").json()["errors"][0]["path"] == "feature"
        assert client.ask("curve", feature=["income"]).status_code == 400


class TestSecurity:
    @pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost:1@evil", "[::1]:5006", ""])
    def test_foreign_hosts(self, client: Client, host: str) -> None:
        for reply in (client.get("facts", {"Host": host}), client.post("models/0/answer", {}, {"Host": host})):
            assert reply.status_code in (400, 421)
            assert "features" not in reply.text

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ],
    )
    def test_foreign_origins(self, client: Client, headers: dict[str, str]) -> None:
        assert client.get("facts", headers).status_code == 403
        assert client.post("models/0/answer", {}, headers).status_code == 403

    def test_its_own_origin(self, client: Client) -> None:
        origin = {"Origin": client.url.rstrip("/")}
        assert client.post("models/0/row", {"text": json.dumps(ROW)}, origin).status_code == 200

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
    def test_posts_of_forms(self, client: Client, kind: str) -> None:
        assert client.post("models/0/answer", {}, {"Content-Type": kind}).status_code == 415

    def test_other_methods_and_addresses(self, client: Client) -> None:
        assert requests.put(f"{client.url}facts", timeout=60).status_code == 405
        for path in ("page/../app.py", "page/app.py", "page/%2e%2e%2fapp.py", "docs", "openapi.json", "models/0"):
            assert client.get(path).status_code in (404, 405)
        for path in ("models/2/answer", "models/-1/answer", "models/0/records"):
            assert client.post(path, {}).status_code == 404

    @pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"dataframe_records": 3}'])
    def test_bodies_that_are_none(self, client: Client, body: bytes) -> None:
        reply = client.post("models/0/answer", body)
        assert reply.status_code == 400
        assert reply.json()["errors"]

    def test_bodies_are_limited(self, client: Client) -> None:
        assert client.post("models/0/row", {"text": "x" * MOST_BYTES}).status_code == 413

    def test_headers(self, client: Client) -> None:
        for path in ("", "facts", "page/main.js", "page/none.js"):
            headers = client.get(path).headers
            policy = headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store"
            assert "Access-Control-Allow-Origin" not in headers

    def test_what_fails_tells_no_value(
        self, explained: ExplainedModel, caplog: pytest.LogCaptureFixture, monkeypatch: Any
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise RuntimeError(str(small_loans.CANARY))

        app = what_if([("loans", explained)])
        monkeypatch.setattr(ExplainedModel, "request", fail)
        with running(app) as client, caplog.at_level(logging.DEBUG, "mlflow_cf"):
            reply = client.ask("answer")
        assert reply.status_code == 500
        assert "RuntimeError" in reply.text
        assert str(small_loans.CANARY) not in reply.text + caplog.text

    def test_the_page_needs_nothing_from_elsewhere(self) -> None:
        folder = Path(mlflow_cf.__file__).parent / "ui" / "page"
        assert {path.name for path in folder.iterdir()} == set(PAGE)
        for path in folder.iterdir():
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert "://" not in text, path
            assert " style=" not in text, path
            assert " onclick" not in text, path
            if path.suffix == ".js":
                assert text.count("innerHTML") == (1 if path.name == "dom.js" else 0)


class TestCommand:
    def test_folders_are_called_by_their_last_part(self) -> None:
        assert named(["a/loans", "models:/credit/2"]) == [
            ("loans", "a/loans"),
            ("models:/credit/2", "models:/credit/2"),
        ]
        assert named(["a/loans", "b/loans"]) == [("a/loans", "a/loans"), ("b/loans", "b/loans")]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ([], "--model-uri"),
            (["-m", "a", "-m", "b", "-m", "c"], "two models"),
            (["-m", "a", "--rows", "nothing.csv"], "nothing.csv"),
            (["-m", "a", "--port", "70000"], "70000"),
            (["-m", "no/such/folder", "--port", "0", "--no-open"], "no/such/folder"),
        ],
    )
    def test_what_it_refuses(self, options: list[str], said: str) -> None:
        found = CliRunner().invoke(main, ["ui", *options])
        assert found.exit_code != 0
        assert said in found.output
