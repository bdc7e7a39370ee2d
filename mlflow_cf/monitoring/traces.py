"""Traces of served answers as lines: from MLflow's store, page by page, or from the frame of a search."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Trace
from mlflow.exceptions import MlflowException

from mlflow_cf.audit.record import ATTRIBUTE, FACTS_TAG, UNTRACED_TAG, facts_of
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.monitoring.grouping import Grouping
from mlflow_cf.monitoring.lines import COUNTED, GROUP_TAG, Lines, lines_of
from mlflow_cf.monitoring.outcomes import outcome_of

PAGE: Final = 500  # traces at once: MLflow gives no more
FRAME: Final = ("tags", "request_time")  # what tells a frame of traces from any other table
COLUMNS: Final = (
    "time", "request", "model", "status", "rows", COUNTED, "distance", "n_changed", "proof", "seconds", "changed",
    "acted", "wanted", "complete", "answer", "acted_at", "adopted",
)  # fmt: skip
FOREIGN: Final = "they have no tag cf.status: they are no answers of explained models"
BARE: Final = "traces without facts of the answer, of which the status alone is known"
TWICE: Final = "outcomes that a later one of the same trace replaces"


def is_frame(source: object) -> bool:
    """Return whether something is what `mlflow.search_traces` returns."""
    return isinstance(source, pd.DataFrame) and all(name in source for name in FRAME)


def of_frame(frame: pd.DataFrame, groups: Grouping) -> tuple[Lines, dict[str, int]]:
    """Return the lines of a frame of `mlflow.search_traces`, and what is to be said of how many."""
    names = [name for name in ("trace_id", *FRAME, "assessments", "request", "response", "spans") if name in frame]
    columns = {name: frame[name].tolist() for name in names}
    traces = ({name: column[at] for name, column in columns.items()} for at in range(len(frame)))
    return _lines(traces, groups)


def of_store(
    locations: str | Sequence[str], groups: Grouping, since: pd.Timestamp | None
) -> tuple[Lines, dict[str, int]]:
    """Return the lines of all traces of some experiments, and what is to be said of how many.

    Their spans are only fetched where groups are asked for: tags have the rest.

    Args:
        locations: experiments by name or id, or other locations of traces that MLflow knows.
        groups: columns of the explained rows.
        since: traces before it are not fetched.

    Raises:
        InputError: no such experiment, or a store that cannot be read.
    """
    client = MlflowClient()
    asked = [locations] if isinstance(locations, str) else list(locations)
    if not asked:
        raise InputError("traces", "no experiment is named", "name one, such as 'credit-audit'")
    places = [_location(client, one) for one in asked]
    return _lines(map(_plain, _pages(client, places, since, spans=bool(groups.columns))), groups)


def _pages(client: MlflowClient, places: list[str], since: pd.Timestamp | None, *, spans: bool) -> Iterator[Trace]:
    """Yield the traces of some locations, page by page."""
    first = None if since is None else f"trace.timestamp_ms >= {since.value // 1_000_000}"
    token: str | None = None
    while True:
        try:
            page = client.search_traces(
                locations=places, filter_string=first, max_results=PAGE, page_token=token, include_spans=spans
            )
        except MlflowException as error:
            raise _unread(error) from error
        yield from page
        token = page.token
        if not token:
            return


def _location(client: MlflowClient, name: str) -> str:
    """Return the id of an experiment, or another location as it is.

    Raises:
        InputError: there is no such experiment, or the store cannot be read.
    """
    try:
        if (known := client.get_experiment_by_name(name)) is not None:
            return str(known.experiment_id)
        if "." in name and "/" not in name:
            return name  # a table of traces, as catalog.schema
        names = [one.name for one in client.search_experiments(max_results=200)]
    except MlflowException as error:
        raise _unread(error) from error
    try:
        return str(client.get_experiment(name).experiment_id)
    except MlflowException as error:
        fact = f"{name!r} is neither an experiment nor a file"
        raise InputError("traces", fact, did_you_mean(name, names, "experiments")) from error


def _unread(error: MlflowException) -> InputError:
    """Return what is told of a store that does not answer."""
    fact = f"the traces cannot be read ({error.message.rstrip('.')})"
    return InputError("traces", fact, "check MLFLOW_TRACKING_URI")


def _plain(trace: Trace) -> dict[str, Any]:
    found: dict[str, Any] = {
        "trace_id": trace.info.trace_id,
        "tags": trace.info.tags,
        "request_time": trace.info.request_time,
        "assessments": trace.info.assessments,
    }
    root: Any = next((span for span in trace.data.spans if span.parent_id is None), None) if trace.data else None
    if root is not None:
        found |= {"request": root.inputs, "response": root.outputs, "spans": [{"attributes": root.attributes}]}
    return found


def _lines(traces: Iterable[Mapping[str, Any]], groups: Grouping) -> tuple[Lines, dict[str, int]]:
    columns = groups.columns
    counts: Counter[str] = Counter()
    read = [line for trace in _once(traces) for line in _of_trace(trace, columns, counts)]
    known = len(COLUMNS)
    raw = pd.DataFrame.from_records([line[:known] for line in read], columns=list(COLUMNS))
    rows = pd.DataFrame.from_records([line[known:] for line in read], columns=list(columns), index=raw.index)
    told = {TWICE: counts.pop(TWICE, 0), BARE: counts.pop(BARE, 0)}
    skipped = {why: count for why, count in counts.items() if count}
    lines = lines_of(raw, groups.of(rows.infer_objects()), skipped)
    return lines, {why: count for why, count in told.items() if count}


def _once(traces: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield every trace once: what arrives while pages are read moves others to the next page."""
    seen = set()
    for trace in traces:
        name = trace.get("trace_id")
        if name is None or name not in seen:
            seen.add(name)
            yield trace


def _of_trace(trace: Mapping[str, Any], columns: Sequence[str], counts: Counter[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the line of a trace, and those of answers without a trace that it tells of."""
    tags = _object(trace["tags"])
    status = tags.get("cf.status")
    if status is None:
        counts[FOREIGN] += 1
        return
    time, request, model = trace["request_time"], tags.get("cf.request", ""), tags.get("cf.model_id", "")
    facts = _facts(tags, trace)
    if not facts:
        counts[BARE] += 1
    assessments = trace.get("assessments")
    became, told = outcome_of(assessments) if isinstance(assessments, list) and assessments else ({}, 0)
    counts[TWICE] += max(told - 1, 0)
    row = _object(trace.get("request")).get("row") or {} if columns else {}
    groups = [tags.get(f"{GROUP_TAG}{name}", row.get(name)) for name in columns]
    found = [facts.get(name) for name in ("distance", "n_changed", "proof", "seconds", "changed")]
    after = [became.get(name) for name in ("acted", "wanted", "complete", "answer", "acted_at", "adopted")]
    yield (time, request, model, status, 1.0, False, *found, *after, *groups)
    for other, count in _object(tags.get(UNTRACED_TAG)).items():
        if isinstance(count, int) and count > 0:
            yield (time, request, model, other, float(count), True, *[None] * (len(found) + len(after) + len(groups)))


def _facts(tags: Mapping[str, Any], trace: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of an answer: from its tag, or from its span where it is older than that."""
    if FACTS_TAG in tags:
        return _object(tags[FACTS_TAG])
    answer, spans = _object(trace.get("response")), trace.get("spans")
    try:
        (attributes,) = (_object(span.get("attributes")) for span in spans or ())
        return dict(json.loads(facts_of(answer, float(_object(attributes[ATTRIBUTE])["seconds"]))))
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _object(value: Any) -> dict[str, Any]:
    """Return an object of JSON, whether it has been read already or not."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return {}
    return dict(value) if isinstance(value, Mapping) else {}
