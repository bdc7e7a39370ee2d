"""One page of results per data set: every explainer on every model, with the figures a user chooses by."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import mlflow
import numpy as np
import pandas as pd
from cases.data_sets import VIEWS, Case, Split, constraints_for, split
from cases.models import MODELS, fitted, unopened
from pages import docs_table, page_text
from parts import own_share, runs
from parts.gates import Gate
from parts.measures import DEFAULT, answers, broken_promises
from rivals.turns import Asked, Method, Reply, Row, explainers, take_turns, teller

from mlflow_cf import ExplainedModel, metrics
from mlflow_cf.errors import InputError
from mlflow_cf.evaluation.measure.measured import inliers_of
from mlflow_cf.explainers import EXPLAINERS, AnyExplainer
from mlflow_cf.metrics import Inliers

ROWS = 10
LIMIT_S = 2.0  # of wall clock, for every row and explainer
GRACE = 1.2  # of the limit: what is slower misses its promise
SEVERAL = 3  # answers
UNOPENED = "naive bayes"  # a model whose structure nobody reads


@dataclass(frozen=True, eq=False)
class Told(Reply):
    """All answers to one row, how many rows were scored for them, and how often the model was called."""

    rows: Sequence[Row] = ()
    evaluations: int = 0
    calls: int = 0


@dataclass(frozen=True, eq=False)
class Limited:
    """An explainer that is asked for `count` answers within `LIMIT_S`; every call of the model adds to `calls`."""

    explained: ExplainedModel
    explainer: AnyExplainer
    count: int
    calls: list[float]

    def __call__(self, row: pd.DataFrame) -> Told:
        """Explain one row (1, d).

        Raises:
            InputError: the explainer does not take this model.
        """
        self.calls.clear()
        (found,) = self.explained.explain(row, explainer=self.explainer, count=self.count, time_limit_s=LIMIT_S)
        rows = [dict(one.row) for one in found.counterfactuals]
        proved = found.counterfactuals[0].proof == "optimal" if rows else found.status == "infeasible"
        nearest, spent = rows[0] if rows else None, (found.evaluations, len(self.calls))
        return Told(nearest, found.reason, found.diagnostics, proved, rows, *spent)


@dataclass(frozen=True, eq=False)
class Tried:
    """All explainers on one model.

    Attributes:
        model: its name.
        case: data set, fitted model and rows.
        note: how the model was opened, or why not.
        lines: a line per explainer and row, see `lines_of`.
        refused: explainer -> why it does not take the model.
        broken: answers that the model rejects or that break a constraint, in words.
    """

    model: str
    case: Case
    note: str
    lines: pd.DataFrame
    refused: Mapping[str, str]
    broken: Sequence[str]

    def gates(self) -> list[tuple[str, Gate]]:
        """Return what is promised of every explainer: valid and lawful answers, and its time limit."""
        found = []
        for name, told in self.lines.groupby("explainer", sort=False):
            label, slowest = f"{self.case.name} / {self.model}, {name}", float(told["slowest_s"].max())
            counted = told[told["answers"] > 0]
            for what in ("valid", "lawful"):
                share = float((counted[what] / counted["answers"]).mean()) if len(counted) else 1.0
                found.append((label, Gate(what, share, 1.0)))
            found.append((label, Gate("slowest row, s", slowest, GRACE * LIMIT_S, most=True)))
        return found


def run_page(chosen: argparse.Namespace) -> list[str]:
    """Run every explainer on every model and data set; return the promises about answers that were broken."""
    texts, tables, broken = [], [], []
    for name in chosen.data_sets:
        parts = split(name, chosen.seed, VIEWS[name])
        tried = run(parts, chosen.models or [*MODELS, UNOPENED], chosen.rows or ROWS, chosen.seed)
        text = page_text.page(tried, LIMIT_S)
        print(f"\n{text}", flush=True)
        texts.append(text)
        pooled = page_text.together(tried)
        runs.log_figures({f"page {name} {explainer}": told for explainer, told in pooled.items()})
        tables.append(page_text.frame(name, tried))
        if chosen.docs:
            docs_table.write(Path(chosen.docs), tried, pooled, chosen.seed)
        broken += [f"{line} ({name} / {one.model})" for one in tried for line in one.broken]
    mlflow.log_table(pd.concat(tables, ignore_index=True), "page.json")
    mlflow.log_text("\n\n".join(texts), "page.md")
    return broken


def run(parts: Split, models: Sequence[str], rows: int, seed: int) -> list[Tried]:
    """Let every explainer explain so many held-out rows that each model rejects, with one answer and with several."""
    constraints, inliers, tried = constraints_for(parts.name, parts.X, rules=True), None, []
    for model in models:
        unread = model == UNOPENED
        pipeline = unopened(parts.X, parts.y) if unread else fitted(model, parts.X, parts.y, seed)
        case = parts.case(pipeline, rows, constraints)
        explained = case.wrapped(seed)
        inliers = inliers or inliers_of(explained)  # it depends on the background alone
        tried.append(_tried(model, case, explained, inliers))
    return tried


def _tried(model: str, case: Case, explained: ExplainedModel, inliers: Inliers | None) -> Tried:
    calls: list[float] = []
    counted = own_share.watched(explained, calls)
    methods: dict[str, Method] = {}
    refused: dict[str, str] = {}
    for name, explainer in explainers().items():
        asked = {count: Limited(counted, explainer, count, calls) for count in (1, SEVERAL)}
        try:
            asked[1](case.rejected.head(1))
        except InputError as error:
            refused[name] = str(error)
        else:
            methods |= {f"{name} {count}": method for count, method in asked.items()}
    replies = take_turns(methods, case.rejected, teller(f"{case.name} / {model}", len(case.rejected)), warm=1)
    lines, broken = [], []
    for name in EXPLAINERS:
        if name not in refused:
            found, wrong = lines_of(case, explained, inliers, (replies[f"{name} 1"], replies[f"{name} {SEVERAL}"]))
            lines.append(found.assign(explainer=name, model=model))
            broken += [line.replace("BROKEN: ", f"BROKEN: {name}, ", 1) for line in wrong]
    return Tried(model, case, explained.opened.note, pd.concat(lines, ignore_index=True), refused, broken)


def lines_of(
    case: Case, explained: ExplainedModel, inliers: Inliers | None, asked: tuple[Sequence[Asked], Sequence[Asked]]
) -> tuple[pd.DataFrame, list[str]]:
    """Return a line per row of what one explainer replied, and what is wrong with its answers.

    Args:
        case: data set, fitted model and rows.
        explained: the model, wrapped.
        inliers: the background's local outlier factor.
        asked: the replies with one answer and with several.

    Columns: of the first answer those of `measures.answers`, plausible (NaN without an answer), evaluations and calls
    (of the model); of several: several (whether all came), diverse (NaN below two), several_cpu; of both: answers,
    how many; valid and lawful, how many of them are; slowest_s (wall).
    """
    (one, more), (first, several) = asked, ([cast("Told", a.reply) for a in some] for some in asked)
    told = answers(case, one, DEFAULT)
    at = [position for position, reply in enumerate(several) for _ in reply.rows]
    every = [Asked(a.x0, Reply(row), 0.0, 0.0) for a, reply in zip(more, several, strict=True) for row in reply.rows]
    checked = answers(case, every, DEFAULT) if every else told.head(0)
    wrong = broken_promises("one answer", told) + broken_promises("several answers", checked.set_index(pd.Index(at)))

    def count(flags: pd.Series[bool]) -> pd.Series[int]:
        return flags.astype(int).groupby(at).sum().reindex(range(len(told)), fill_value=0)

    lines = told.assign(
        row=range(len(told)),
        **_seen(explained, inliers, case.rejected, first, several),
        evaluations=[reply.evaluations for reply in first],
        calls=[reply.calls for reply in first],
        several=[len(reply.rows) == SEVERAL for reply in several],
        several_cpu=[a.cpu for a in more],
        answers=told["answered"] + count(checked["answered"]),
        valid=told["valid"] + count(checked["valid"]),
        lawful=told["lawful"] + count(checked["lawful"]),
        slowest_s=[max(a.wall, b.wall) for a, b in zip(one, more, strict=True)],
    )
    return lines, wrong


def _seen(
    explained: ExplainedModel,
    inliers: Inliers | None,
    rows: pd.DataFrame,
    first: Sequence[Told],
    several: Sequence[Told],
) -> dict[str, list[float]]:
    """Return per row whether its first answer is plausible, and how diverse several are; NaN where that is unknown."""
    space = explained.space.covering(rows)
    X, _ = space.encode_rows(rows)
    plausible, diverse = [np.nan] * len(rows), [np.nan] * len(rows)
    for at, x in enumerate(X):
        if inliers is not None and first[at].rows:
            plausible[at] = float(inliers.accept(space.encode(space.from_values(list(first[at].rows))))[0])
        if len(several[at].rows) > 1:
            apart = metrics.norm_diversity(space, x, space.encode(space.from_values(list(several[at].rows))))
            diverse[at] = np.nan if apart is None else apart
    return {"plausible": plausible, "diverse": diverse}
