"""How the rows of a request share its time limit, and how a search spends what it gets."""

import time

import pytest

from mlflow_cf.problem import Budget
from mlflow_cf.request.explaining import LEAST_S, RowClock


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time in a list, for the test to move."""
    moment = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: moment[0])
    return moment


def test_without_a_deadline_there_is_no_end(now: list[float]) -> None:
    clock = RowClock(None)
    clock.share(2, 2)
    assert clock.row_end(0) is None
    assert now


def test_rows_share_evenly_what_is_not_kept_for_proofs(now: list[float]) -> None:
    clock = RowClock(110.0)
    clock.share(4, 4)
    assert clock.row_end(0) == pytest.approx(102.0)
    now[0] = 102.0
    assert clock.row_end(1) == pytest.approx(104.0)
    now[0] = 102.5  # was quick: the others get more
    assert clock.row_end(2) == pytest.approx(102.5 + 5.5 / 2)


def test_later_rows_keep_their_share(now: list[float]) -> None:
    clock = RowClock(110.0)
    clock.share(1, 2)
    assert clock.row_end(0) == pytest.approx(104.0)
    now[0] = 105.0
    clock.share(1, 1)
    assert clock.row_end(0) == pytest.approx(109.0)


def test_some_rows_are_answered_rather_than_none(now: list[float]) -> None:
    clock = RowClock(100.5)
    clock.share(32, 1000)
    ends = []
    while (end := clock.row_end(0)) is not None and end > now[0]:
        ends.append(end)
        now[0] = end
        if len(ends) == 32:
            break
    assert ends[:8] == pytest.approx([100.0 + LEAST_S * n for n in range(1, 9)])
    assert ends[8:] == pytest.approx([100.0 + 0.8 * 0.5] * len(ends[8:]))  # of rounding


def test_proofs_that_take_long_get_their_time(now: list[float]) -> None:
    clock = RowClock(110.0)
    clock.share(2, 4)
    clock.learn(2, 3.0)
    now[0] = 104.0
    clock.share(2, 2)
    assert clock.row_end(0) == pytest.approx(104.0 + (6.0 - 1.5) / 2)
    now[0] = 106.25
    assert clock.row_end(1) == pytest.approx(110.0 - 2 * 1.5)


def test_what_cannot_be_proved_in_time_is_not_searched(now: list[float]) -> None:
    clock = RowClock(110.0)
    clock.learn(2, 3.0)
    clock.share(4, 4)
    now[0] = 103.0
    assert clock.row_end(3) == pytest.approx(103.0 + 1.0 / 4)
    assert clock.row_end(4) == now[0]


class TestPortions:
    """Rows that a search scores in one go."""

    def test_all_of_them_without_a_clock(self) -> None:
        assert Budget(10_000).batch_size(5000) == 5000

    def test_few_before_the_pace_is_known(self, now: list[float]) -> None:
        budget = Budget(10_000)
        budget.start(now[0] + 10, now[0] + 12)
        assert budget.batch_size(5000) == 256
        assert budget.batch_size(30) == 30

    def test_as_many_as_take_half_of_what_is_left(self, now: list[float]) -> None:
        budget = Budget(10_000)
        budget.start(now[0] + 10, now[0] + 12)
        budget.take(256)
        now[0] += 2
        assert budget.batch_size(5000) == 512

    def test_never_so_few_that_the_call_costs_more_than_they_do(self, now: list[float]) -> None:
        budget = Budget(10_000)
        budget.start(now[0] + 10, now[0] + 12)
        budget.take(256)
        now[0] += 9
        assert budget.batch_size(5000) == 64
