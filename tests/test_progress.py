"""The bar of long work: shown to those who wait in a terminal, never to a server's log."""

import sys

import numpy as np
import pandas as pd
import pytest

import mlflow_cf
from mlflow_cf.request import explaining

ROWS = pd.DataFrame({"x": np.arange(40) % 10, "y": np.arange(40) % 7})


def in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this test's own stderr be a terminal, and nothing be too short for a bar."""
    monkeypatch.setattr(explaining, "LONG_S", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def decide(rows: pd.DataFrame) -> np.ndarray:
    return (rows["x"] > 4).astype(int).to_numpy()


def test_explain_shows_how_far_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    in_a_terminal(monkeypatch)
    made = mlflow_cf.wrap(decide, ROWS, target=1, output="label")
    found = made.explain(ROWS)
    shown = capsys.readouterr().err
    assert "explaining" in shown
    assert f"/{sum(one.status == 'found' for one in found)} " in shown


def test_a_reply_shows_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    in_a_terminal(monkeypatch)
    made = mlflow_cf.wrap(decide, ROWS, target=1, output="label")
    capsys.readouterr()
    made.predict(ROWS)
    assert capsys.readouterr().err == ""


def test_nothing_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with explaining.progress(3, watched=True) as count:
        count(3)
    assert capsys.readouterr().err == ""
