"""A comparison in MLflow: one run with a child per version, metrics on the logged models, tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import mlflow
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from mlflow_cf.evaluation.compare.comparison import Comparison
from mlflow_cf.evaluation.compare.versions import Candidate
from mlflow_cf.evaluation.logged import bars

MOST_WORDS: Final = 4_000  # characters of a description
FOLDER: Final = "compare"  # of tables and figures among the artifacts of the run
TABLES: Final = ("aggregates", "survival", "burden", "advice", "differences")


@contextmanager
def versioned(candidate: Candidate) -> Iterator[str]:
    """Work in a child run, tagged with the logged model and the registered version; the value is its id."""
    registered = candidate.registered
    tags = {
        "cf.version": candidate.name,
        "cf.uri": candidate.source if isinstance(candidate.source, str) else None,
        "cf.model_id": candidate.model_id,
        "cf.registered_model": registered and registered.name,
        "cf.registered_version": registered and str(registered.version),
    }
    with mlflow.start_run(run_name=candidate.name, nested=True, tags={k: v for k, v in tags.items() if v}) as run:
        yield run.info.run_id


def log_comparison(comparison: Comparison) -> None:
    """Log tables and figures to the active run."""
    for name in TABLES:
        table: pd.DataFrame = getattr(comparison, name)
        if len(table):
            # MLflow selects texts as objects
            texts = {column: object for column in table.columns if table[column].dtype == "str"}
            mlflow.log_table(table.astype(texts), f"{FOLDER}/{name}.json")
    for name, figure in figures_of(comparison).items():
        mlflow.log_figure(figure, f"{FOLDER}/{name}.png")
    # what the run's page shows first
    mlflow.set_tag("mlflow.note.content", f"```\n{comparison!r}"[:MOST_WORDS] + "\n```")
    mlflow.log_dict({"notes": list(comparison.notes), "left_out": dict(comparison.failed)}, f"{FOLDER}/notes.json")


MOST_FEATURES: Final = 12  # shown
WIDTH: Final = 7.0  # inches


def figures_of(comparison: Comparison) -> Mapping[str, Figure]:
    """Return the figures by name; those that would be empty are left out."""
    figures = {}
    if len(comparison.survival):
        figures["survival"] = survival_figure(comparison.survival_matrix())
    if len(comparison.burden):
        figures["burden"] = burden_figure(_of_the_first(comparison.burden))
    if len(comparison.advice) and comparison.advice["share"].notna().any():
        figures["advice"] = advice_figure(_of_the_first(comparison.advice))
    return figures


def survival_figure(matrix: pd.DataFrame) -> Figure:
    """Return a survival matrix (versions, versions) as a map with its shares written in."""
    size = max(4.0, 1.2 + 0.9 * len(matrix))
    figure = Figure(figsize=(size + 1, size), layout="constrained")
    axes = figure.add_subplot()
    shown = axes.imshow(matrix.to_numpy(np.float64), vmin=0, vmax=1, cmap="RdYlGn")
    axes.set_xticks(range(len(matrix)), matrix.columns, rotation=30, ha="right")
    axes.set_yticks(range(len(matrix)), matrix.index)
    axes.set(xlabel="judged by", ylabel="issued under", title="Share of counterfactuals that survive")
    for row, line in enumerate(matrix.to_numpy(np.float64)):
        for column, share in enumerate(line):
            axes.text(column, row, "" if np.isnan(share) else f"{share:.0%}", ha="center", va="center")
    figure.colorbar(shown, shrink=0.8)
    return figure


def burden_figure(burden: pd.DataFrame) -> Figure:
    """Return one panel per measure: its mean in every group, with intervals, a colour per version."""
    measures, groups = list(dict.fromkeys(burden["measure"])), list(dict.fromkeys(burden["group"]))
    figure = Figure(figsize=(WIDTH, len(measures) * (1.0 + 0.35 * len(groups))), layout="constrained")
    panels = figure.subplots(len(measures), 1, squeeze=False)[:, 0]
    for axes, measure in zip(panels, measures, strict=True):
        lines = burden[burden["measure"] == measure]
        for place, (version, found) in enumerate(lines.groupby("version", sort=False)):
            own = found.set_index("group").reindex(groups)
            mean, low, high = (own[name].to_numpy(np.float64) for name in ("mean", "low", "high"))
            reach = np.nan_to_num(np.maximum([mean - low, high - mean], 0.0))
            heights = np.arange(len(groups)) + 0.12 * place
            axes.errorbar(mean, heights, xerr=reach, fmt="o", markersize=4, capsize=2, label=str(version))
        axes.set_yticks(range(len(groups)), [group or "all rows" for group in groups])
        axes.invert_yaxis()
        axes.set_title(measure.replace("_", " "))
    panels[0].legend(loc="best", fontsize="small")
    return figure


def advice_figure(advice: pd.DataFrame) -> Figure:
    """Return the share of answers that change each feature, a bar per version."""
    most = advice.groupby("feature")["share"].max().sort_values(ascending=False).dropna()
    names = [str(name) for name in most[most > 0].index[:MOST_FEATURES]]
    shares = advice.pivot_table("share", "feature", "version", sort=False, dropna=False).reindex(names)
    figure = Figure(figsize=(WIDTH, 1.2 + 0.2 * len(shares.columns) * max(len(names), 1)), layout="constrained")
    axes = figure.add_subplot()
    bars(axes, shares)
    axes.set(title="Share of the nearest answers that change a feature", xlim=(0, 1))
    axes.legend(fontsize="small")
    return figure


def _of_the_first(table: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of the first explainer of each version."""
    first = table.drop_duplicates("version").set_index("version")["explainer"]
    return table[table["explainer"] == table["version"].map(first)]
