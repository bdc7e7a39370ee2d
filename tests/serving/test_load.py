"""A server with more to explain than it can: predictions are answered all the same, and places come back."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests
import small_loans
from served import Server, serving

import mlflow_cf
from mlflow_cf.request.admission import Admission

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="gives the server two cores")

TABLE = small_loans.table()
MODEL = small_loans.fitted(TABLE)
REJECTED, ACCEPTED = (TABLE[(MODEL.predict(TABLE) == label) & TABLE["debts"].notna()] for label in ("bad", "good"))
LONG = {"time_limit_s": 600}
PATIENCE_S = 60  # with a busy machine, before the test gives up


def body(rows):
    return {"dataframe_records": rows.to_dict("records")}


def gated(gate):
    """Return a model whose searches, which ask about more than one row, wait until there is a file `gate`."""

    def label(rows):
        if len(rows) > 1 and not gate.exists():
            waiting = gate.with_name(f"{time.monotonic_ns()}.waiting")
            waiting.touch()
            while not gate.exists():
                time.sleep(0.01)
            waiting.unlink()
        return MODEL.predict(rows)

    return label


@contextmanager
def two_cores():
    """Give the processes that are started in a `with` block no more than two cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class Crowded:
    """A server with few places for searches, which stand still while its gate is shut."""

    server: Server
    places: int
    gate: Path

    @contextmanager
    def full(self, **options):
        """Have as many requests inside as there are places, all waiting, for the time of a `with` block."""
        self.gate.unlink()
        with ThreadPoolExecutor(self.places) as pool:
            try:
                inside = []
                for place in range(1, self.places + 1):
                    inside.append(pool.submit(self.server.ask, body(REJECTED.head(1)), **options))
                    until(lambda place=place: len(list(self.gate.parent.glob("*.waiting"))) == place)
                yield inside
            finally:
                self.gate.touch()


def until(reached):
    """Wait for what must come."""
    end = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("load")
    (gate := folder / "gates" / "open").parent.mkdir()
    gate.touch()
    options = {"target": "good", "constraints": small_loans.CONSTRAINTS, "limits": LONG, "output": "label"}
    mlflow_cf.save_model(gated(gate), folder / "m", TABLE, **options, allow_functions=True, validate="here")
    with ExitStack() as stack:
        with two_cores():
            places = Admission().places
            running = stack.enter_context(serving(str(folder / "m"), folder / "output.txt"))
        yield Crowded(running, places, gate)


def statuses(answered):
    status, reply = answered
    assert status == 200, reply
    return [(row["prediction"], row["status"]) for row in reply["predictions"]]


def test_predictions_while_explanations_are_saturated(crowded):
    ask = crowded.server.ask
    with crowded.full(**LONG) as inside:
        with ThreadPoolExecutor(8) as pool:
            unasked = [pool.submit(ask, body(REJECTED.iloc[[row]]), explain="none") for row in range(8)]
            turned_away = [pool.submit(ask, body(REJECTED.iloc[[row]])) for row in range(8)]
            accepted = [pool.submit(ask, body(ACCEPTED.iloc[[row]])) for row in range(8)]
        assert [statuses(reply.result()) for reply in unasked] == [[("bad", "skipped")]] * 8
        assert [statuses(reply.result()) for reply in turned_away] == [[("bad", "busy")]] * 8
        assert [statuses(reply.result()) for reply in accepted] == [[("good", "already")]] * 8
        assert not any(reply.done() for reply in inside)
    assert [statuses(reply.result()) for reply in inside] == [[("bad", "found")]] * crowded.places


def test_clients_that_left_leave_their_places(crowded):
    ask = crowded.server.ask
    with crowded.full(timeout_s=0.1) as inside:
        for reply in inside:
            with suppress(requests.Timeout):
                pytest.fail(f"the gate is shut: {reply.result()}")
        assert statuses(ask(body(REJECTED.head(1)))) == [("bad", "busy")]
    until(lambda: statuses(ask(body(REJECTED.head(1)))) == [("bad", "found")])
