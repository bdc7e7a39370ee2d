"""Figures of an evaluation: how explanations ended, how near answers are, what they change, what groups get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mlflow_cf.evaluation import lines
from mlflow_cf.evaluation.aggregates import STATUSES

MOST_FEATURES: Final = 15  # bars of one figure
BINS: Final = 30


def figures(paths: Mapping[str, Path], table: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures of evaluated explainers.

    Args:
        paths: the lines of each explainer, by its name.
        table: all `aggregates`.
    """
    facts = {name: lines.read(path, ["status", "mixed", "changed"]) for name, path in paths.items()}
    yield "outcomes", _outcomes(facts)
    if any(one["mixed"].notna().any() for one in facts.values()):
        yield "distances", _distances(facts)
        yield "changed_features", _changed(facts)
    if (table["group"] != "").any():
        yield "groups", _groups(table)


def _outcomes(facts: Mapping[str, pd.DataFrame]) -> Figure:
    counts = {name: one["status"].value_counts().reindex(STATUSES, fill_value=0) for name, one in facts.items()}
    figure, axes = _drawing("rows by status")
    _bars(axes, pd.DataFrame(counts), "rows")
    return figure


def _distances(facts: Mapping[str, pd.DataFrame]) -> Figure:
    figure, axes = _drawing("distance of answers")
    known = {name: one["mixed"].dropna() for name, one in facts.items()}
    axes.hist(list(known.values()), bins=BINS, label=list(known), histtype="step")
    axes.set_xlabel("distance")
    axes.set_ylabel("rows")
    _legend(axes, len(facts))
    return figure


def _changed(facts: Mapping[str, pd.DataFrame]) -> Figure:
    shares = {}
    for name, one in facts.items():
        answered = [list(changed) for changed in one["changed"] if len(changed)]
        counts = Counter(feature for changed in answered for feature in changed)
        shares[name] = pd.Series(counts, dtype="float64") / max(len(answered), 1)
    table = pd.DataFrame(shares).fillna(0.0)
    order = table.sum(axis=1).sort_values(ascending=False).index[:MOST_FEATURES]
    figure, axes = _drawing("what the nearest answers change")
    _bars(axes, table.loc[order], "share of answers")
    return figure


def _groups(table: pd.DataFrame) -> Figure:
    figure, axes = _drawing("coverage by group, with standard errors")
    coverage = table[(table["metric"] == "coverage") & (table["group"] != "")]
    for name, one in coverage.groupby("explainer", sort=False):
        axes.errorbar(one["value"], one["group"], xerr=one["standard_error"].fillna(0.0), fmt="o", label=str(name))
    axes.set_xlabel("coverage")
    axes.set_xlim(0.0, 1.05)
    _legend(axes, coverage["explainer"].nunique())
    return figure


def _drawing(title: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    return figure, axes


def _bars(axes: Axes, table: pd.DataFrame, noun: str) -> None:
    """Draw one group of bars per line of `table`, one bar per column."""
    height = 0.8 / len(table.columns)
    for number, name in enumerate(table.columns):
        axes.barh([place + number * height for place in range(len(table))], table[name], height, label=str(name))
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(table))], [str(label) for label in table.index])
    axes.invert_yaxis()
    axes.set_xlabel(noun)
    _legend(axes, len(table.columns))


def _legend(axes: Axes, several: int) -> None:
    if several > 1:
        axes.legend()
