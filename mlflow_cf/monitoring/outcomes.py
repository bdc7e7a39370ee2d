"""What became of advice: whether a person acted on it, on which answer, and how the decision went then."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import mlflow
import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import AssessmentSource, AssessmentSourceType, Trace
from mlflow.exceptions import MlflowException

from mlflow_cf.audit.record import ATTRIBUTE, Record
from mlflow_cf.errors import InputError, did_you_mean

NAME: Final = "cf.outcome"  # of the feedback
SOURCE: Final = "mlflow-cf"
SKEW_S: Final = 300.0  # seconds that clocks may differ
TOLD: Final = ("acted", "wanted", "complete", "answer", "adopted")  # what monitoring reads
DECIDED: Final = {True: ", decided as wanted", False: ", decided otherwise", None: ""}

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What became of one answered row.

    Attributes:
        trace_id: the trace of its answer.
        acted: whether the person acted on the advice.
        answer: the counterfactual that they acted on, 1 for the first of the reply; None: not known, or none.
        adopted: features that they have changed as that answer advises, or further.
        complete: whether these are all that it changes; None: not known.
        wanted: whether the later decision was the wanted one; None: not told.
        at: when they acted, as ISO text of UTC.
        replaces: whether another outcome was told of this trace before, which counts no more.
        notes: what is to be known of it.
    """

    trace_id: str
    acted: bool
    answer: int | None
    adopted: tuple[str, ...]
    complete: bool | None
    wanted: bool | None
    at: str
    replaces: bool = False
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        """What MLflow's pages show: ``acted, decided as wanted``."""
        return f"{'acted' if self.acted else 'not acted'}{DECIDED[self.wanted]}"

    def metadata(self) -> dict[str, str]:
        """Return what the feedback carries; names of features, and no value of a row."""
        known = not self.acted or self.answer is not None or self.complete is not None
        told = {
            "cf.acted": self.acted,
            "cf.answer": self.answer,
            "cf.adopted": list(self.adopted) if known else None,
            "cf.complete": self.complete,
            "cf.wanted": self.wanted,
            "cf.at": self.at,
        }
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in told.items()}


def outcome(
    trace_id: str,
    *,
    acted: bool = True,
    row: Values | pd.Series[Any] | pd.DataFrame | None = None,
    decision: bool | str | float | None = None,
    answer: int | None = None,
    at: pd.Timestamp | str | None = None,
) -> Outcome:
    """Store with the trace of an answer what became of it, as MLflow feedback named ``cf.outcome``.

    Args:
        trace_id: MLflow's id of the trace, ``tr-...``.
        acted: whether the person acted on the advice: True or False.
        row: the person's later row by feature. Which answer they followed is worked out from it, where the trace has
            its values: the one of whose changes the largest part was made, or surpassed. The row is not stored.
        decision: what was decided then: a label or value of the model, compared with the target of the answer; or
            whether it was the wanted one, True or False; None, or what else is missing, such as NaN: not told.
        answer: which answer they followed, 1 for the first; None, or missing: worked out from `row`, or not known.
        at: when they acted; None: now. Without a zone it is UTC.

    Returns:
        What was stored. Told twice, the later one counts; it says so.

    Raises:
        InputError: no such trace, or none of ours; no such answer; a row or a decision that says nothing, or a time
            before the answer.
    """
    if not isinstance(acted, bool | np.bool_):
        raise InputError("acted", f"{acted!r} is no truth value", "True or False; leave out whom nothing is known of")
    answer = None if _is_missing(answer) else answer
    decision = None if _is_missing(decision) else decision
    trace = _trace(trace_id)
    record = _record(trace)
    followed, adopted, complete, notes = _followed(record, row, answer, acted=acted)
    earlier = [one for one in trace.info.assessments if one.name == NAME and one.valid is not False]
    moment, skewed = _moment(at, trace.info.request_time)
    told = Outcome(
        trace_id=trace_id,
        acted=bool(acted),
        answer=None if followed is None else int(followed),
        adopted=adopted,
        complete=complete,
        wanted=None if decision is None else _is_wanted(decision, record),
        at=moment,
        replaces=bool(earlier),
        notes=(*notes, *skewed),
    )
    _store(told, None if not earlier else str(max(earlier, key=_told_at).assessment_id))
    return told


def outcome_of(assessments: Iterable[Any]) -> tuple[dict[str, Any], int]:
    """Return the latest outcome among a trace's assessments as columns of a table, and how many there were.

    Args:
        assessments: MLflow's own objects, or their dictionaries as `mlflow.search_traces` has them.
    """
    own = [one for one in map(_plain_assessment, assessments) if one["name"] == NAME]
    counted = [one for one in own if one["valid"] is not False]
    if not counted:
        return {}, len(own)
    data = max(counted, key=lambda one: one["told"])["metadata"] or {}
    try:
        read = {name: json.loads(data.get(f"cf.{name}", "null")) for name in TOLD}
    except (TypeError, json.JSONDecodeError):
        return {}, len(own)
    if not isinstance(read["acted"], bool):
        return {}, len(own)
    adopted = read["adopted"] if isinstance(read["adopted"], list) else None
    return {**read, "adopted": adopted, "acted_at": data.get("cf.at") if read["acted"] else None}, len(own)


def _plain_assessment(one: Any) -> dict[str, Any]:
    if isinstance(one, Mapping):
        told = str(one.get("last_update_time") or one.get("create_time") or "")
        return {
            "name": one.get("assessment_name"),
            "valid": one.get("valid"),
            "told": told,
            "metadata": one.get("metadata"),
        }
    return {"name": one.name, "valid": one.valid, "told": _told_at(one), "metadata": one.metadata}


def _told_at(one: Any) -> str:
    milliseconds = int(one.last_update_time_ms or one.create_time_ms or 0)
    return pd.Timestamp(milliseconds, unit="ms").isoformat(timespec="milliseconds")


def _trace(trace_id: str) -> Trace:
    fix = "check the id, and MLFLOW_TRACKING_URI"
    if not isinstance(trace_id, str) or not trace_id:
        raise InputError("trace_id", f"{trace_id!r} is no id of a trace", fix)
    try:
        found: Trace = MlflowClient().get_trace(trace_id)
        return found
    except MlflowException as error:
        raise InputError("trace_id", f"{trace_id!r} cannot be fetched ({error.message.rstrip('.')})", fix) from error


def _record(trace: Trace) -> Record:
    root: Any = next((span for span in trace.data.spans if span.parent_id is None), None)
    if root is None:
        raise InputError("trace_id", "holds no span", "it may not have been sent in full yet; try again in a moment")
    return Record.read(root.inputs, root.outputs, root.attributes.get(ATTRIBUTE))


def _followed(
    record: Record, row: Values | pd.Series[Any] | pd.DataFrame | None, answer: int | None, *, acted: bool
) -> tuple[int | None, tuple[str, ...], bool | None, list[str]]:
    """Return the answer that was followed, what was changed as it advises, whether that is all of it, and notes."""
    answers = list(record.answer["counterfactuals"])
    if answer is not None and not (_is_whole(answer) and 1 <= answer <= len(answers)):
        fix = f"number one of them: 1 to {len(answers)}" if answers else "leave answer out"
        raise InputError("answer", f"{answer!r} is none of the {len(answers)} answers of the trace", fix)
    if not acted:
        if answer is not None:
            raise InputError("answer", "nobody acted on it", "pass acted=True, or no answer")
        return None, (), None, []
    if row is None:
        if answer is None:
            return None, (), None, ["which answer was followed is not known: neither row nor answer was given"]
        return answer, tuple(_features(answers[answer - 1])), None, []
    if record.row is None or record.digested:
        if answer is None:
            fix = "say which answer was followed: answer=1"
            raise InputError("row", "the trace holds digests, and no values to compare a row with", fix)
        note = "the trace holds digests: the row says nothing, and all that the answer changes counts as adopted"
        return answer, tuple(_features(answers[answer - 1])), None, [note]
    return _compared(record, _values(row, record.row), answer)


def _compared(
    record: Record, later: Values, answer: int | None
) -> tuple[int | None, tuple[str, ...], bool | None, list[str]]:
    """Return what of the answers a later row has made true."""
    before, answers = record.row or {}, list(record.answer["counterfactuals"])
    made = [
        [name for name in _features(found) if _reached(before.get(name), found["row"].get(name), later.get(name))]
        for found in answers
    ]
    sizes = [len(_features(found)) for found in answers]
    parts = [len(done) / max(size, 1) for done, size in zip(made, sizes, strict=True)]
    if answer is None:
        best = max(range(len(parts)), key=lambda place: (parts[place], len(made[place]), -place), default=None)
        answer = None if best is None or not made[best] else best + 1
    if answer is None:
        return None, (), False, ["the row makes no change that an answer advises"]
    done, size = made[answer - 1], sizes[answer - 1]
    notes = [] if len(done) == size else [f"{len(done)} of {size} changes were made"]
    return answer, tuple(done), len(done) == size, notes


def _features(found: Values) -> list[str]:
    return list(found["changed"]) if "changed" in found else [str(change["feature"]) for change in found["changes"]]


def _reached(before: Any, advised: Any, later: Any) -> bool:
    """Whether a value is where advice wanted it, or beyond: seen from where the person was."""
    if _is_number(advised) and _is_number(later):
        if not _is_number(before):
            return math.isclose(later, advised)
        near = math.isclose(later, advised, rel_tol=1e-9, abs_tol=1e-12)
        return near or (later > advised if advised > before else later < advised)
    return bool(advised == later)


def _is_missing(value: Any) -> bool:
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _values(row: Values | pd.Series[Any] | pd.DataFrame, known: Values) -> dict[str, Any]:
    """Return a person's later row as the plain values of a trace.

    Raises:
        InputError: not one row, or none of the features.
    """
    if isinstance(row, pd.DataFrame):
        if len(row) != 1:
            raise InputError("row", f"there are {len(row)} rows", "pass one")
        row = row.iloc[0]
    if not isinstance(row, Mapping | pd.Series):
        raise InputError("row", f"{type(row).__name__} is no row", "pass a dict by feature, or a table of one row")
    given = {str(name): value for name, value in row.items()}
    if not set(given) & set(known):
        raise InputError("row", "has none of the features", did_you_mean(next(iter(given), ""), known, "features"))
    return {name: _plain(given[name], known[name]) for name in known if name in given}


def _plain(value: Any, like: Any) -> Any:
    """Return a value as traces hold it: plain, dates as text, what is missing as None."""
    if _is_missing(value):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if hasattr(value, "isoformat"):
        try:
            return like if pd.Timestamp(like) == pd.Timestamp(value) else value.isoformat()
        except (ValueError, TypeError):
            return value.isoformat()
    return value


def _is_wanted(decision: Any, record: Record) -> bool:
    """Return whether a later decision is what the answer was to lead to.

    Raises:
        InputError: it cannot be compared with the target.
    """
    target = record.asked.target
    if isinstance(decision, np.generic):
        decision = decision.item()
    label = target.get("label")
    if isinstance(decision, bool) and not isinstance(label, bool):
        return decision
    if label is not None:
        if type(label) is not type(decision) and not (_is_number(label) and _is_number(decision)):
            fix = "pass the label as it is, or True or False"
            raise InputError("decision", f"{decision!r} is not of the kind of the wanted label {label!r}", fix)
        return bool(label == decision)
    if target.get("other"):
        return bool(decision != record.answer["prediction"])
    low, high = target.get("low"), target.get("high")
    if (low is None and high is None) or not _is_number(decision):
        raise InputError("decision", f"{decision!r} cannot be compared with the target", "pass True or False")
    return (low is None or decision >= low) and (high is None or decision <= high)


def _moment(at: pd.Timestamp | str | None, answered_ms: int) -> tuple[str, list[str]]:
    """Return when a person acted as ISO text, and a note where clocks differ.

    Raises:
        InputError: no time, or one before the answer or in the future.
    """
    now = pd.Timestamp.now("UTC")
    try:
        moment = now if at is None else pd.Timestamp(at)
    except (ValueError, TypeError) as error:
        raise InputError("at", f"{at!r} is no time", "such as '2026-03-01T09:30'") from error
    if pd.isna(moment):
        raise InputError("at", f"{at!r} is no time", "such as '2026-03-01T09:30'")
    moment = moment.tz_localize("UTC") if moment.tzinfo is None else moment.tz_convert("UTC")
    answered = pd.Timestamp(answered_ms, unit="ms", tz="UTC")
    ahead, behind = (moment - now).total_seconds(), (answered - moment).total_seconds()
    if ahead > SKEW_S:
        raise InputError("at", f"{moment.isoformat()} has not come yet", "check the clock, or the zone of the time")
    if behind > SKEW_S:
        fact = f"{moment.isoformat()} is before the answer of {answered.isoformat()}"
        raise InputError("at", fact, "check the trace, the clock, and the zone of the time")
    note = ["the clocks differ: it is taken to be the moment of the answer"] if behind > 0 else []
    return max(moment, answered).isoformat(), note


def _store(told: Outcome, earlier: str | None) -> None:
    """Store an outcome with its trace, in place of an earlier one if there is any.

    Raises:
        InputError: MLflow refuses it.
    """
    source = AssessmentSource(AssessmentSourceType.CODE, SOURCE)
    rationale = "; ".join(told.notes) or None
    try:
        if earlier is None:
            mlflow.log_feedback(
                trace_id=told.trace_id, name=NAME, value=told.value, source=source, rationale=rationale,
                metadata=told.metadata(),
            )  # fmt: skip
        else:
            mlflow.override_feedback(
                trace_id=told.trace_id, assessment_id=earlier, value=told.value, source=source, rationale=rationale,
                metadata=told.metadata(),
            )  # fmt: skip
    except MlflowException as error:
        fact = f"MLflow does not store the outcome ({error.message.rstrip('.')})"
        raise InputError("trace_id", fact, "check the store, and try again") from error
