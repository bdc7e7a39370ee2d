"""One version gated: compared with the champion on a stored table, held against thresholds, promoted or not."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import mlflow
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import MetricThreshold
from mlflow.models.evaluation.validation import ModelValidationFailedException

from mlflow_cf.errors import CounterfactualError, InputError
from mlflow_cf.evaluation.compare.comparison import Comparison
from mlflow_cf.evaluation.compare.versions_compared import compare
from mlflow_cf.files.tables import text_columns
from mlflow_cf.gating.registry import MOVING, UNFINISHED, Claim, Registry, UndecidedError, reached
from mlflow_cf.gating.rules import GateRules, read_rules, rules_for
from mlflow_cf.validation import validated

ROUNDS: Final = 3  # comparisons with champions that change meanwhile
OF_TWO: Final = ("cf/survival", "cf/probability_lost")  # metrics of a version beside the one before it

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """Whether a version passed its gate, and why.

    Attributes:
        name, version: the registered version.
        champion: the version it was compared with; None: there was none.
        passed: whether it reached all thresholds.
        reasons: why it did not.
        moved: whether the alias moved to it now.
        run_id: the MLflow run of the comparison; "": nothing had to be compared.
        report: URI of the report.
        notes: what else is worth knowing.
    """

    name: str
    version: str
    champion: str | None
    passed: bool
    reasons: tuple[str, ...] = ()
    moved: bool = False
    run_id: str = ""
    report: str = ""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        beside = f"beside {self.champion}" if self.champion else "which has no champion beside it"
        head = f"version {self.version} of {self.name!r}, {beside}: {'passes' if self.passed else 'refused'}"
        lines = [head, *(f"  {reason}" for reason in self.reasons), *(f"note: {note}" for note in self.notes)]
        lines += [f"report: {self.report}"] if self.report else []
        return "\n".join([*lines, "the alias moved to it"] if self.moved else lines)


def gate(
    name: str, version: str | int, rules: GateRules | Mapping[str, object] | str | Path, *, again: bool = False
) -> Verdict:
    """Compare a version with the champion, and move the alias to it if it reaches every threshold.

    The verdict is written into tags of the version (``cf.gate.state``, ``.reason``, ``.champion``, ``.run_id``,
    ``.report``) before the alias moves. The same version, rules, rows and champion are not compared twice. One gate
    at a time works on a registered model. Before the alias moves it is looked at again: where it is another version's
    by now, the comparison is made anew.

    Args:
        name: of the registered model; version: its number, or an alias.
        rules: what it must reach; as `GateRules`, a dict of its fields, or a YAML file with rules by registered model.
        again: compare even if there is a verdict.

    Raises:
        InputError: no such version, or rules that do not fit it.
        UndecidedError: another gate is at work on this model, the registry cannot be reached, or the champion kept
            changing. The alias has not moved.
    """
    if isinstance(rules, str | Path):
        rules = rules_for(name, read_rules(Path(rules)))
    elif not isinstance(rules, GateRules):
        rules = validated(GateRules, rules, "rules")
    registry = Registry(name, rules.alias)
    number = str(registry.version(str(version)).version)
    with registry.claimed() as claim:
        for _ in range(ROUNDS):
            champion = registry.champion()
            if champion == number:
                why = f"it is the {rules.alias} already"
                _finish(registry, number, why)
                return Verdict(name, number, champion, passed=True, notes=(why,))
            verdict = _decided(registry, number, champion, rules, again=again)
            if not verdict.passed or _promoted(registry, claim, verdict):
                return replace(verdict, moved=verdict.passed)
    raise UndecidedError(f"{name}@{rules.alias}", "kept changing while versions were compared", "ask again")


def _promoted(registry: Registry, claim: Claim, verdict: Verdict) -> bool:
    """Move the alias, unless it is another version's by now."""
    claim.check()
    if registry.champion() != verdict.champion:
        return False
    registry.promote(verdict.version)
    registry.note(verdict.version, state="passed")
    return True


def _finish(registry: Registry, version: str, why: str) -> None:
    """Note that a version has the alias already, if a gate of it was cut off."""
    state = registry.told(version).get("state")
    if state == MOVING:
        registry.note(version, state="passed")
    elif state in UNFINISHED:
        registry.note(version, reason=why, at=_now(), state="passed")


def _decided(registry: Registry, version: str, champion: str | None, rules: GateRules, *, again: bool) -> Verdict:
    """Return the verdict on a version: the one in its tags, or a new one, which is in its tags then."""
    if champion is not None and int(version) < int(champion):
        why = f"it is older than the {rules.alias}, {champion}; set the alias by hand to go back"
        registry.note(version, reason=why, champion=champion, at=_now(), state="refused")
        return Verdict(registry.name, version, champion, passed=False, reasons=(why,))
    told = registry.told(version)
    if told.get("state") in UNFINISHED:
        _end(told.get("run_id", ""))
    try:
        table, digest = rules.table(text_columns(f"models:/{registry.name}/{version}"))
        same = told.get("digest") == digest and told.get("champion") == (champion or "none")
        if same and not again and told.get("state") in ("passed", "refused", MOVING):
            passed, reasons = told["state"] != "refused", tuple(filter(None, [told.get("reason")]))
            found = Verdict(registry.name, version, champion, passed, reasons)
            note = f"decided on {told.get('at', 'an earlier day')}"
            return replace(found, run_id=told.get("run_id", ""), report=told.get("report", ""), notes=(note,))
        found = _compared(registry, version, champion, rules, table)
    except UndecidedError:  # it stays unfinished, and is taken up again
        raise
    except CounterfactualError as error:
        with suppress(UndecidedError):  # what is wrong is told by the error, too
            registry.note(version, state="failed", reason=error.message, at=_now())
        raise
    state, reason = MOVING if found.passed else "refused", "; ".join(found.reasons)
    noted = {"reason": reason, "champion": champion or "none", "digest": digest, "report": found.report, "at": _now()}
    registry.note(version, **noted, state=state)  # the state at last: what is cut off is done again
    return found


def _compared(registry: Registry, version: str, champion: str | None, rules: GateRules, table: pd.DataFrame) -> Verdict:
    """Compare a version with the champion in a run of its own, and hold it against the thresholds."""
    wanted = rules.wanted()
    notes = []
    if champion is None:
        left = [metric for metric in wanted if metric.startswith(OF_TWO)]
        wanted = {metric: one for metric, one in wanted.items() if metric not in left}
        notes += [f"left out, since there is no {rules.alias} yet: {', '.join(left)}"] if left else []
    with reached(), mlflow.start_run(run_name=f"gate {registry.name} {version}", nested=True) as run:
        registry.note(version, run_id=run.info.run_id, state="running")
        found = compare(
            registry.name,
            table,
            versions=[one for one in (champion, version) if one is not None],
            labels=rules.labels,
            groups=list(rules.groups) or None,
            count=rules.count,
            seed=rules.seed,
            time_limit_s=rules.time_limit_s,
            max_evaluations=rules.max_evaluations,
            certify=rules.certify,
        )
    reasons = _shortfalls(found, wanted)
    if champion is not None and not reasons and (why := found.failed.get(f"{registry.name}/{champion}")):
        reasons = (f"it was compared with nothing: {champion}, the {rules.alias}, is left out: {why}",)
    report = f"runs:/{found.run_id}/{found.report}" if found.report else ""
    one = Verdict(registry.name, version, champion, not reasons, reasons)
    return replace(one, run_id=found.run_id, report=report, notes=(*notes, *found.notes))


def _shortfalls(found: Comparison, wanted: Mapping[str, MetricThreshold]) -> tuple[str, ...]:
    """Return why the newest version falls short; one that could not be compared always does."""
    try:
        found.validate(wanted)
    except ModelValidationFailedException as error:
        return (*str(error.message).split("\n"), *(f"{name}: {why}" for name, why in found.failed.items()))
    except InputError as error:
        return (str(error.message),)
    return ()


def _end(run_id: str) -> None:
    """Mark the run of a gate that died as failed."""
    client = mlflow.MlflowClient()
    with suppress(MlflowException):
        if run_id and client.get_run(run_id).info.status == "RUNNING":
            _logger.warning("the gate of run %s did not end; its work is done again", run_id)
            client.set_terminated(run_id, "FAILED")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
