"""Monitoring in MLflow: metrics with a step per window, tables, pictures and a page."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import mlflow
import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric

from mlflow_cf.evaluation.logged import NOTE, in_run
from mlflow_cf.monitoring.result import Monitoring

FOLDER: Final = "monitoring"
PREFIX: Final = "cf/monitoring"
AT_ONCE: Final = 900  # metrics; MLflow takes 1,000
MOST_FEATURES: Final = 10  # that have a metric of their own: the most advised ones
TABLES: Final = ("spans", "windows", "features", "outcomes", "drift")
_ODD: Final = re.compile(r"[^\w\-. /]")


def log(found: Monitoring, params: Mapping[str, str]) -> Monitoring:
    """Log everything to the active run, or to one that is opened for it; return the result with its id.

    A run that is opened has a note with what was found. Metrics have the number of the window as step, 0 for the
    reference, and the end of the window as time.
    """
    client, own = MlflowClient(), mlflow.active_run() is None
    with in_run("counterfactual monitoring") as run_id:
        metrics = list(_metrics(found))
        for start in range(0, len(metrics), AT_ONCE):
            client.log_batch(run_id, metrics=metrics[start : start + AT_ONCE])
        known = mlflow.get_run(run_id).data
        new = {f"cf.monitoring.{name}": value for name, value in {**params, "alpha": str(found.alpha)}.items()}
        mlflow.log_params({name: value[:500] for name, value in new.items() if name not in known.params})
        mlflow.set_tag("cf.monitoring.drifted", str(found.drifted).lower())
        if own:
            mlflow.set_tag(NOTE, "\n".join([found.headline, "", *(f"* {note}" for note in found.notes)]))
        for name in TABLES:
            mlflow.log_text(getattr(found, name).to_csv(index=False), f"{FOLDER}/{name}.csv")
        overview = found.overview().reset_index().astype(object)
        mlflow.log_table(overview.where(overview.notna(), None), f"{FOLDER}/overview.json")
        for name, figure in found.figures().items():
            mlflow.log_figure(figure, f"{FOLDER}/{name}.png")
        report = f"{FOLDER}/report.html"
        with tempfile.TemporaryDirectory(prefix="mlflow-cf-") as folder:
            found.to_html(Path(folder) / "report.html")
            mlflow.log_artifact(str(Path(folder) / "report.html"), FOLDER)
    return replace(found, run_id=run_id, report=report)


def _metrics(found: Monitoring) -> Iterator[Metric]:
    """Yield the main figures of every window, and how much of it drifts."""
    step = {name: at for at, name in enumerate(found.spans["window"])}
    ends = {
        name: int(end.timestamp() * 1_000) for name, end in zip(found.spans["window"], found.spans["end"], strict=True)
    }

    def metric(window: str, name: str, value: float) -> Iterator[Metric]:
        if np.isfinite(value):
            yield Metric(f"{PREFIX}/{_ODD.sub('_', name)}"[:250], float(value), ends[window], step[window])

    for window, line in found.overview().drop(columns="drifted").iterrows():
        for name, value in line.items():
            yield from metric(str(window), str(name), value)
    advised = found.features.groupby("feature")["share"].mean().nlargest(MOST_FEATURES).index
    for own in found.features[found.features["feature"].isin(advised)].to_dict("records"):
        yield from metric(own["window"], f"advised/{own['feature']}", own["share"])
    for own in found.windows[found.windows["group"] != ""].to_dict("records"):
        yield from metric(own["window"], f"{own['measure']}/{own['group']}", own["value"])
    tested = found.drift.groupby("window", sort=False)
    for window, table in tested:
        yield from metric(str(window), "drifted", float(table["drifted"].sum()))
        yield from metric(str(window), "least_p", float(table["p"].min()))
        yield from metric(str(window), "largest_psi", float(table["psi"].max()))
