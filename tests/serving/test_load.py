"""A server with more to explain than it can: predictions stay fast, and nothing runs on afterwards."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import pandas as pd
import pytest
import requests
import small_loans
from served import serving
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import mlflow_cf

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="gives the server two cores and counts its CPU as Linux does"
)
TABLE = small_loans.table()
LOAD_S = 4.0
TIME_LIMIT_S = 1.0
CLIENTS = 8  # that ask for explanations, and as many that ask for predictions
# A model that cannot be opened: every candidate goes through scikit-learn.
ENCODE = make_column_transformer(
    (SimpleImputer(), ["age", "income", "debts"]), (OneHotEncoder(sparse_output=False), ["job", "owner"])
)
MODEL = make_pipeline(ENCODE, GaussianNB()).fit(TABLE, small_loans.labels(TABLE))
REJECTED, ACCEPTED = (TABLE[(MODEL.predict(TABLE) == label) & TABLE["debts"].notna()] for label in ("bad", "good"))
DEMANDING = {"count": 5, "time_limit_s": TIME_LIMIT_S, "max_evaluations": 1_000_000}


def body(rows):
    return {"dataframe_records": rows.to_dict("records")}


ROWS = 50  # keep one core busy until the time limit
LARGE = body(pd.concat([REJECTED] * 10).head(ROWS))


@contextmanager
def two_cores():
    """Give the processes that are started in a `with` block no more than two cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("load")
    mlflow_cf.save_model(MODEL, folder / "m", TABLE, target="good", constraints=small_loans.CONSTRAINTS)
    with ExitStack() as stack:
        with two_cores():
            running = stack.enter_context(serving(str(folder / "m"), folder / "output.txt"))
        yield running


def test_predictions_while_explanations_are_saturated(server):
    end = time.monotonic() + LOAD_S

    def explain(_):
        """Return what the requests for explanations got."""
        replies = []
        while time.monotonic() < end:
            replies.append(server.ask(LARGE, **DEMANDING))
            time.sleep(0.3)  # "ask again in a moment"
        return replies

    def predict(number):
        """Return status, seconds and reply of requests that need no search."""
        replies = []
        rows, options = ((REJECTED, {"explain": "none"}), (ACCEPTED, {"explain": "unfavourable"}))[number % 2]
        while time.monotonic() < end:
            started = time.perf_counter()
            status, reply = server.ask(body(rows.iloc[[number]]), **options)
            replies.append((status, time.perf_counter() - started, reply))
            time.sleep(0.05)
        return replies

    with ThreadPoolExecutor(2 * CLIENTS) as pool:
        explaining = [pool.submit(explain, number) for number in range(CLIENTS)]
        predicting = [pool.submit(predict, number) for number in range(CLIENTS)]
    explained = [reply for client in explaining for reply in client.result()]
    predicted = [reply for client in predicting for reply in client.result()]

    assert {status for status, *_ in explained + predicted} == {200}
    assert np.quantile([seconds for _, seconds, _ in predicted], 0.99) <= 1.0
    assert {row["status"] for *_, reply in predicted for row in reply["predictions"]} == {"skipped", "already"}
    answers = [reply["predictions"] for _, reply in explained]
    assert all([row["prediction"] for row in rows] == ["bad"] * ROWS for rows in answers)
    kinds = [{row["status"] for row in rows} for rows in answers]
    assert {"busy"} in kinds
    assert all("busy" not in kind for kind in kinds if kind != {"busy"})  # a request has its place, or it has not
    assert any("found" in kind for kind in kinds)


def test_nothing_runs_on_for_clients_that_left(server):
    for _ in range(4):
        with suppress(requests.Timeout):
            server.post(LARGE, timeout_s=0.1, **DEMANDING)
    time.sleep(TIME_LIMIT_S + 1.0)
    before = server.cpu_s()
    assert before > 0
    time.sleep(1.0)
    assert server.cpu_s() - before < 0.05
