"""A real server under the requests that once stopped one: each is a short 400, and predictions go on."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import small_loans
from attacks import ATTACKS, ECHOED
from served import Server, serving

import mlflow_cf

TABLE = small_loans.table()
ROWS = {"dataframe_records": small_loans.rejected(TABLE, 1).to_dict("records")}
LONGEST = 3_000  # characters of a reply: 2 KB of ours in what MLflow puts around them


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("attacked")
    options = {"target": "good", "constraints": small_loans.CONSTRAINTS}
    mlflow_cf.save_model(small_loans.fitted(TABLE), folder / "m", TABLE, **options)
    with serving(str(folder / "m"), folder / "output.txt") as running:
        yield running


@pytest.mark.parametrize("explain", ["none", "all"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused(server: Server, attack: str, explain: str) -> None:
    reply = server.post(ROWS, explain=explain, **ATTACKS[attack]())
    assert reply.status_code == 400, reply.text[:1000]
    assert len(reply.text) <= LONGEST or attack in ECHOED
    assert "stack_trace" not in reply.text


def test_predictions_go_on_while_clients_leave(server: Server) -> None:
    """The first of all attacks: six large queries whose clients are gone before they are read."""
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(server.post, ROWS, 60, **ATTACKS["100,000 names"]()) for _ in range(6)]
        status, reply = server.ask(ROWS, explain="none")
        assert status == 200
        assert reply["predictions"][0]["status"] == "skipped"
        assert {one.result().status_code for one in sent} == {400}
