"""A new version goes live only if it reaches its thresholds; no alias moves by mistake."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
import small_loans
from click.testing import CliRunner
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

import mlflow_cf
from mlflow_cf import GateRules, InputError
from mlflow_cf.cli import main
from mlflow_cf.gating import gate as gating
from mlflow_cf.gating import registry as keeping
from mlflow_cf.gating.gate import gate
from mlflow_cf.gating.registry import CLAIM, Registry, UndecidedError
from mlflow_cf.gating.rules import read_rules

pytestmark = pytest.mark.usefixtures("undrawn")
TABLE = small_loans.table()
COVERAGE = "cf/coverage>=0.5"
NEVER = "cf/coverage>=1.1"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an explained model, rows, and a store to be copied: to make one takes seconds."""
    folder, before = tmp_path_factory.mktemp("gate"), mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.create_experiment("gate", artifact_location=str(folder / "artifacts"))
    MlflowClient().create_registered_model("loans")
    mlflow.set_tracking_uri(before)
    mlflow_cf.save_model(small_loans.fitted(TABLE), folder / "model", TABLE, target="good")
    small_loans.rejected(TABLE, 12).to_parquet(folder / "rows.parquet")
    return folder


@pytest.fixture
def registered(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Return what registers one more version of ``loans``, in a store of this test's own."""
    monkeypatch.setattr(keeping, "SETTLED_S", 0.0)
    before = mlflow.get_tracking_uri()
    shutil.copy(saved / "mlflow.db", tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_experiment("gate")

    def register() -> str:
        return str(MlflowClient().create_model_version("loans", str(saved / "model")).version)

    yield register
    mlflow.set_tracking_uri(before)
    mlflow.set_experiment("Default")  # no other store knows ours


@pytest.fixture
def rules(saved: Path) -> GateRules:
    return GateRules(rows=str(saved / "rows.parquet"), thresholds=(COVERAGE, "cf/survival>=0.9"))


def tags(version: str) -> dict[str, str]:
    return dict(MlflowClient().get_model_version("loans", version).tags)


def champion() -> str | None:
    return Registry("loans", "champion").champion()


def test_the_first_version_that_reaches_what_can_be_measured_is_the_champion(
    registered: Callable[[], str], rules: GateRules
) -> None:
    verdict = gate("loans", registered(), rules)
    assert (verdict.passed, verdict.moved, verdict.champion, champion()) == (True, True, None, "1")
    assert any("cf/survival" in note for note in verdict.notes)
    told = tags("1")
    assert told["cf.gate.state"] == "passed"
    assert mlflow.get_run(told["cf.gate.run_id"]).info.status == "FINISHED"
    assert Path(mlflow.artifacts.download_artifacts(told["cf.gate.report"])).stat().st_size > 10_000
    assert CLAIM not in MlflowClient().get_registered_model("loans").tags


def test_a_version_that_falls_short_is_refused_and_says_why(registered: Callable[[], str], rules: GateRules) -> None:
    MlflowClient().set_registered_model_alias("loans", "champion", registered())
    verdict = gate(
        "loans", registered(), rules.model_copy(update={"thresholds": (COVERAGE, NEVER.replace("1.1", "2"))[1:]})
    )
    assert (verdict.passed, verdict.moved, champion()) == (False, False, "1")
    assert "cf/coverage" in verdict.reasons[0]
    assert (tags("2")["cf.gate.state"], tags("2")["cf.gate.champion"]) == ("refused", "1")
    assert "cf/coverage" in tags("2")["cf.gate.reason"]


def test_a_verdict_is_not_reached_twice(
    registered: Callable[[], str], rules: GateRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    MlflowClient().set_registered_model_alias("loans", "champion", registered())
    first = gate("loans", registered(), rules)
    assert first.moved
    assert champion() == "2"
    with monkeypatch.context() as patch:
        patch.setattr(gating, "compare", lambda *_, **__: pytest.fail("compared again"))
        again = gate("loans", "2", rules)
        assert (again.passed, again.moved) == (True, False)
        MlflowClient().set_registered_model_alias("loans", "champion", "1")  # as if the alias had not moved yet
        taken_up = gate("loans", "2", rules)
    assert (taken_up.moved, champion(), taken_up.report) == (True, "2", first.report)
    MlflowClient().set_registered_model_alias("loans", "champion", "1")
    assert not gate("loans", "2", rules.model_copy(update={"thresholds": ("cf/coverage>=2",)})).passed  # other rules


def compared_while(do: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Do something while versions are compared for the first time; return a list that grows with each comparison."""
    times: list[int] = []

    def compare(*given: Any, **asked: Any) -> Any:
        times.append(len(times))
        if len(times) == 1:
            do()
        return mlflow_cf.compare(*given, **asked)

    monkeypatch.setattr(gating, "compare", compare)
    return times


def test_an_alias_that_moved_meanwhile_is_not_overwritten(
    registered: Callable[[], str], rules: GateRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = MlflowClient()
    client.set_registered_model_alias("loans", "champion", registered())
    registered(), registered()
    times = compared_while(lambda: client.set_registered_model_alias("loans", "champion", "3"), monkeypatch)
    verdict = gate("loans", "2", rules)
    assert (verdict.passed, champion(), len(times)) == (False, "3", 1)
    assert "older than" in verdict.reasons[0]
    assert (tags("2")["cf.gate.state"], tags("2")["cf.gate.champion"]) == ("refused", "3")
    times = compared_while(lambda: client.set_registered_model_alias("loans", "champion", "2"), monkeypatch)
    assert gate("loans", registered(), rules).moved
    assert (champion(), len(times)) == ("4", 2)  # compared with the new champion, too


def test_one_gate_at_a_time(registered: Callable[[], str], rules: GateRules, monkeypatch: pytest.MonkeyPatch) -> None:
    client, version = MlflowClient(), registered()
    client.set_registered_model_tag("loans", CLAIM, f"another {time.time():.0f}")
    with pytest.raises(UndecidedError, match="another gate"):
        gate("loans", version, rules)
    assert client.get_registered_model("loans").tags[CLAIM].startswith("another")
    assert champion() is None
    client.delete_registered_model_tag("loans", CLAIM)
    compared_while(lambda: client.set_registered_model_tag("loans", CLAIM, f"thief {time.time():.0f}"), monkeypatch)
    with pytest.raises(UndecidedError, match="another gate"):
        gate("loans", version, rules)
    assert champion() is None


def killed(version: str, rules: GateRules, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the run of a gate whose process was killed while it compared versions."""

    def die() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        compared_while(die, patch)
        with pytest.raises(KeyboardInterrupt):
            gate("loans", version, rules)
    died = tags(version)["cf.gate.run_id"]
    MlflowClient().update_run(died, "RUNNING")
    return died


def test_a_gate_that_died_is_taken_up(
    registered: Callable[[], str], rules: GateRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, version = MlflowClient(), registered()
    died = killed(version, rules, monkeypatch)
    client.set_registered_model_tag("loans", CLAIM, f"dead {time.time() - 1000:.0f}")
    assert Registry("loans", "champion").unfinished() == [version]
    assert gate("loans", version, rules).moved
    assert client.get_run(died).info.status == "FAILED"
    assert Registry("loans", "champion").unfinished() == []


def test_a_gate_that_died_before_the_alias_moved_is_taken_up(
    registered: Callable[[], str], rules: GateRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, registry = registered(), Registry("loans", "champion")

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "promote", die)
        with pytest.raises(KeyboardInterrupt):
            gate("loans", version, rules)
    assert (tags(version)["cf.gate.state"], champion(), registry.unfinished()) == ("moving", None, [version])
    monkeypatch.setattr(gating, "compare", lambda *_, **__: pytest.fail("compared again"))
    assert gate("loans", version, rules).moved
    assert (tags(version)["cf.gate.state"], champion(), registry.unfinished()) == ("passed", version, [])
    registry.note(version, state="moving")  # it died between the move and its note
    assert not gate("loans", version, rules).moved
    assert (tags(version)["cf.gate.state"], tags(version)["cf.gate.reason"]) == ("passed", "")


def test_a_run_that_died_ends_though_its_version_was_announced_again(
    registered: Callable[[], str], rules: GateRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, version = MlflowClient(), registered()
    died = killed(version, rules, monkeypatch)
    Registry("loans", "champion").note(version, state="waiting")
    first = gate("loans", version, rules)
    assert client.get_run(died).info.status == "FAILED"
    Registry("loans", "champion").note(version, state="waiting")
    gate("loans", version, rules)
    assert client.get_run(first.run_id).info.status == "FINISHED"  # it had ended well


def test_a_claim_of_a_clock_that_is_ahead_does_not_last(registered: Callable[[], str], rules: GateRules) -> None:
    version = registered()
    MlflowClient().set_registered_model_tag("loans", CLAIM, f"dead {time.time() + 86_400:.0f}")
    assert gate("loans", version, rules).moved


def test_no_version_passes_beside_a_champion_that_was_not_compared(
    registered: Callable[[], str], saved: Path, rules: GateRules
) -> None:
    gone = MlflowClient().create_model_version("loans", str(saved / "gone"))
    MlflowClient().set_registered_model_alias("loans", "champion", gone.version)
    verdict = gate("loans", registered(), rules.model_copy(update={"thresholds": (COVERAGE,)}))
    assert (verdict.passed, champion()) == (False, "1")
    assert "it was compared with nothing: 1, the champion, is left out" in verdict.reasons[0]


def test_rows_that_moved_are_the_same(registered: Callable[[], str], saved: Path, rules: GateRules) -> None:
    first, other = rules.table()[1], saved / "moved.parquet"
    shutil.copy(saved / "rows.parquet", other)
    assert rules.model_copy(update={"rows": str(other)}).table()[1] == first


def test_what_could_not_be_decided_is_left_to_be_taken_up(
    registered: Callable[[], str], rules: GateRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, registry = registered(), Registry("loans", "champion")

    def fail() -> None:
        raise OSError("the connection is lost")

    with monkeypatch.context() as patch:
        compared_while(fail, patch)
        with pytest.raises(UndecidedError, match="is lost"):
            gate("loans", version, rules)
    assert (tags(version)["cf.gate.state"], registry.unfinished()) == ("running", [version])
    MlflowClient().set_registered_model_alias("loans", "champion", version)  # by hand, before it is gated again
    assert not gate("loans", version, rules).moved
    assert (tags(version)["cf.gate.state"], registry.unfinished()) == ("passed", [])


def test_a_claim_is_renewed_while_versions_are_compared(
    registered: Callable[[], str], rules: GateRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "RENEWED_S", 0.01)
    seen = []

    def wait() -> None:
        MlflowClient().set_registered_model_tag(
            "loans", CLAIM, MlflowClient().get_registered_model("loans").tags[CLAIM].split()[0] + " 5"
        )
        until = time.monotonic() + 30
        while MlflowClient().get_registered_model("loans").tags[CLAIM].endswith(" 5") and time.monotonic() < until:
            time.sleep(0.01)
        seen.append(MlflowClient().get_registered_model("loans").tags[CLAIM])

    compared_while(wait, monkeypatch)
    assert gate("loans", registered(), rules).moved
    assert time.time() - float(seen[0].split()[1]) < 60


def test_a_registry_that_is_down_decides_nothing(
    registered: Callable[[], str], rules: GateRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = registered()

    def down(*_: Any, **__: Any) -> None:
        raise MlflowException("no route to it")

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_registered_model_alias", down)
        with pytest.raises(UndecidedError, match="no route"):
            gate("loans", version, rules)
    assert champion() is None
    assert gate("loans", version, rules).moved  # the verdict is known


@pytest.mark.parametrize(
    ("version", "change", "told"),
    [
        ("7", {}, "loans/7: is no version"),
        ("nobody", {}, "loans/nobody: is no version"),
        ("1", {"rows": "gone.parquet"}, "rows: gone.parquet cannot be read"),
        ("1", {"rows": "rows.txt"}, "rows: rows.txt is none of"),
        ("1", {"thresholds": ["cf/coverage"]}, "threshold: 'cf/coverage' is no metric"),
        ("1", {"thresholds": []}, "rules.thresholds"),
        ("1", {"thresholdss": [COVERAGE]}, "rules.thresholdss"),
        ("1", {"labels": "nothing"}, "labels"),
        ("1", {"alias": "v1"}, "rules.alias: names a version to MLflow"),
        ("1", {"alias": "Latest"}, "rules.alias: names a version to MLflow"),
        ("1", {"alias": "the best"}, "rules.alias"),
    ],
)
def test_what_does_not_fit_is_told(
    registered: Callable[[], str], rules: GateRules, version: str, change: dict[str, Any], told: str
) -> None:
    registered()
    with pytest.raises(InputError, match=told.replace("(", r"\(")):
        gate("loans", version, {**rules.model_dump(), **change})
    assert champion() is None


def test_rules_are_read_from_a_file(saved: Path, tmp_path: Path) -> None:
    path = saved / "gate.yaml"
    path.write_text(f"loans:\n  rows: rows.parquet\n  thresholds: ['{COVERAGE}']\n  groups: [job]\n", encoding="utf-8")
    found = read_rules(path)["loans"]
    assert (found.rows, found.groups, found.alias) == (str(saved / "rows.parquet"), ("job",), "champion")
    table, digest = found.table()
    assert (len(table), digest) == (12, found.table()[1])
    assert digest != found.model_copy(update={"count": 2}).table()[1]
    for text, told in (("a: [", "cannot be read"), ("- loans", "no registered models"), ("loans: 3", "loans")):
        (tmp_path / "other.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(InputError, match=told):
            read_rules(tmp_path / "other.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        read_rules(tmp_path / "none.yaml")


def test_the_command_exits_as_a_pipeline_needs(registered: Callable[[], str], saved: Path, tmp_path: Path) -> None:
    registered(), registered()
    path = tmp_path / "gate.yaml"

    def run(*words: str, least: float = 0.5) -> tuple[int, str]:
        rows = json.dumps(str(saved / "rows.parquet"))
        path.write_text(f"loans:\n  rows: {rows}\n  thresholds: ['cf/coverage>={least}']\n", encoding="utf-8")
        result = CliRunner().invoke(main, ["gate", *words, "--rules", str(path), "--text"])
        return result.exit_code, result.output

    assert run("loans", "1")[0] == 0
    assert "the alias moved" in run("loans", "2")[1]
    code, told = run("loans", "1")
    assert (code, "older than" in told) == (1, True)
    assert run("loans", "9")[0] == 3
    assert run("loan", "1")[0] == 2
    assert run("loans")[0] == 2
    assert run("loans", "1", "--listen")[0] == 2
    code, told = run("--listen")
    assert (code, "secret" in told) == (2, True)


def test_a_version_that_cannot_be_loaded_is_refused(
    registered: Callable[[], str], rules: GateRules, tmp_path: Path
) -> None:
    MlflowClient().set_registered_model_alias("loans", "champion", registered())
    (tmp_path / "empty").mkdir()
    version = str(MlflowClient().create_model_version("loans", str(tmp_path / "empty")).version)
    verdict = gate("loans", version, rules)
    assert (verdict.passed, champion()) == (False, "1")
    assert "loans/2" in verdict.reasons[0]


def test_a_verdict_reads_as_a_sentence() -> None:
    verdict = gating.Verdict("loans", "2", "1", passed=False, reasons=("too few",), notes=("old",), report="runs:/a/b")
    assert str(verdict).splitlines() == [
        "version 2 of 'loans', beside 1: refused",
        "  too few",
        "note: old",
        "report: runs:/a/b",
    ]
    assert str(replace(verdict, passed=True, moved=True, champion=None)).splitlines()[0].endswith("passes")


def test_the_table_may_be_an_artifact(registered: Callable[[], str], saved: Path) -> None:
    with mlflow.start_run() as run:
        mlflow.log_artifact(str(saved / "rows.parquet"))
    table, _ = GateRules(rows=f"runs:/{run.info.run_id}/rows.parquet", thresholds=(COVERAGE,)).table()
    pd.testing.assert_frame_equal(table, pd.read_parquet(saved / "rows.parquet"))
    with pytest.raises(InputError, match="cannot be fetched"):
        GateRules(rows="runs:/nothing/rows.parquet", thresholds=(COVERAGE,)).table()
