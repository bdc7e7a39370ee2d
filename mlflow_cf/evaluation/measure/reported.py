"""What an evaluation hands over to its report, and the report among a run's artifacts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from mlflow_cf.errors import frames
from mlflow_cf.evaluation.measure.cohorts import Cohorts, SummaryOptions, of_lines
from mlflow_cf.evaluation.measure.lines import at as lines_at
from mlflow_cf.evaluation.measure.shown import Kept
from mlflow_cf.evaluation.source import Source
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.policy import Query
from mlflow_cf.reporting.data import LINES, Material
from mlflow_cf.reporting.groups import GROUP
from mlflow_cf.reporting.page import page, write
from mlflow_cf.reporting.shapes import Table, percent, short
from mlflow_cf.request.request import Caller
from mlflow_cf.request.widening import regions_of
from mlflow_cf.words.result import Explanation

REPORT: Final = "report.html"
REGIONS_S: Final = 20.0  # for the regions of all rows that are shown
COMMON_S: Final = 20.0  # for the common changes
MOST_COMMON: Final = 10_000  # rows that common changes are looked for in

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What was measured, as far as a report needs it.

    Attributes:
        source: the model; rows: the table (m, d).
        paths: the lines of each explainer, the winner's first.
        kept: explanations by the winner.
        figures: means and counts of all explainers.
        notes, failures: as in `Evaluation`.
        count, seed, time_limit_s: as they were asked for.
    """

    source: Source
    rows: pd.DataFrame
    paths: Mapping[str, Path]
    kept: Sequence[Kept]
    figures: pd.DataFrame
    notes: tuple[str, ...]
    failures: Mapping[str, str]
    count: int
    seed: int | None
    time_limit_s: float | None = None


def material_of(found: Outcome, *, patient: bool = False) -> Material:
    """Return what the report of an evaluation is made of: also regions and common changes.

    What takes too long of these is left out, unless somebody is `patient`.
    """
    explained = found.source.explained
    lines = {name: _lines(path) for name, path in found.paths.items()}
    winner = next(iter(found.paths))
    summary, limit = None, np.inf if found.time_limit_s is None else found.time_limit_s
    own = lines[winner]
    if len(own) == len(found.rows) and (own["status"] == "found").any():
        within = SummaryOptions(family="answers", time_limit_s=None if patient else min(COMMON_S, limit))
        summary = _common(found, winner, within)
    return Material(
        title=found.source.title or "Explained model",
        explained=explained,
        lines=lines,
        figures=found.figures,
        shown=_with_regions(explained, found.rows, found.kept, found.count, None if patient else min(REGIONS_S, limit)),
        common=None if summary is None else _table(summary),
        guarantee="" if summary is None else f"{summary.guarantee}; family: {summary.family}{_drawn(found)}",
        notes=found.notes,
        failures=found.failures,
        count=found.count,
        seed=found.seed,
    )


def _common(found: Outcome, winner: str, options: SummaryOptions) -> Cohorts:
    """Return the common changes of all rows, or of as many as fit: answers are objects here, some kilobytes each."""
    names = pq.read_schema(found.paths[winner]).names
    columns = ["counterfactual", *(name for name in names if name.startswith(GROUP))]
    drawn = np.arange(len(found.rows))
    if len(drawn) > MOST_COMMON:
        seed = found.source.explained.policy.seed if found.seed is None else found.seed
        drawn = np.sort(np.random.default_rng(seed).choice(len(drawn), MOST_COMMON, replace=False))
    some = lines_at(found.paths[winner], drawn, columns)
    return of_lines(found.source.explained, found.rows.iloc[drawn], some, options=options)


def _drawn(found: Outcome) -> str:
    return f"; {MOST_COMMON:,} of the rows, drawn by the seed" if len(found.rows) > MOST_COMMON else ""


def log_report(material: Material, folder: str) -> str:
    """Log the report to the active run and return its path among the artifacts; one that fails is told, and "".

    What was measured is never lost for the sake of a page.
    """
    path = f"{folder}/{REPORT}"
    try:
        mlflow.log_text(page(material), path)
    except Exception as error:  # noqa: BLE001  whatever goes wrong, the evaluation stands
        failed(error)
        return ""
    return path


def failed(error: Exception) -> None:
    """Say that there is no report, and why."""
    reason = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
    _logger.warning("no report was made (%s); what was measured is logged", reason)
    _logger.debug("%s", frames(error))


def write_report(material: Material, path: Path) -> None:
    """Write the report to a file, whole or not at all.

    Raises:
        InputError: it cannot be written to.
    """
    write(path, page(material))


def _lines(path: Path) -> pd.DataFrame:
    names = pq.read_schema(path).names
    return pd.read_parquet(path, columns=[*LINES, *(name for name in names if name.startswith(GROUP))])


def _with_regions(
    explained: ExplainedModel, rows: pd.DataFrame, kept: Sequence[Kept], count: int, seconds: float | None
) -> dict[int, Explanation]:
    """Return explanations by the number of their line, with the regions that requests may ask for, too."""
    found = {one.line: one.explanation for one in kept}
    answered = [one for one in kept if one.explanation.status == "found"]
    if not answered or not explained.policy.privacy.regions or explained.opened.structure is None:
        return found
    query = Query.read({"region": True, "count": count})
    caller = Caller(seconds, 0.0, served=False)
    request = explained.context.request(query, explained.explainer, caller, (), lambda _: ())
    table = explained.space.read(rows.iloc[[one.place for one in answered]])
    told = regions_of(request, table, {at: one.explanation for at, one in enumerate(answered)})
    return found | {one.line: told[at] for at, one in enumerate(answered)}


def _table(found: Cohorts) -> Table | None:
    if not found.items:
        return None
    groups = list(found.groups)[:6]
    head = ("change", "rows turned", "share", "mean distance", *groups)
    lines = [
        (
            item.text,
            f"{item.turned:,}",
            percent(item.share),
            short(item.distance),
            *(percent(item.by_group[name]) for name in groups),
        )
        for item in found.items
    ]
    covered = ("all of them", f"{round(found.covered * found.rows):,}", percent(found.covered), "")
    return Table(head, (*lines, (*covered, *(percent(found.by_group[name]) for name in groups))))
