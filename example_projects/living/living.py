"""Advice over a year: promised to hold, gated, served, followed, monitored, and held against the next version."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
import numpy as np
import pandas as pd
from applicants import CONSTRAINTS, FIRST_YEAR, REPAID, applicants, later
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mlflow_cf

SURVIVAL = {"holds": 0.8, "confidence": 0.9}
THRESHOLDS = ("cf/coverage >= 0.5", "cf/survival >= 0.8")
MOST_EVALUATIONS = 20_000  # a row: to prove that there is no answer under many models can take many more
TRACED = 40  # applicants whose answers are traced, and what became of them
WEEKS = 8
PATIENCE_S = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Tell the whole story; return 0 if every part of it ended as it should."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=1_500, metavar="N", help="applicants of a year (default: 1,500)")
    parser.add_argument(
        "--asked", type=int, default=100, metavar="N", help="that versions are compared on (default: 100)"
    )
    parser.add_argument("--registered-name", default="living_loans", metavar="NAME", help="default: living_loans")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    chosen = parser.parse_args(arguments)
    if "MLFLOW_RUN_ID" not in os.environ:  # a run that `mlflow run` has started belongs to an experiment already
        mlflow.set_experiment("living")
    with TemporaryDirectory() as folder, mlflow.start_run(run_name="living"):
        asked = applicants(chosen.asked, FIRST_YEAR, chosen.seed + 1)
        asked.drop(columns=REPAID).to_parquet(Path(folder) / "applicants.parquet")
        rules = mlflow_cf.GateRules(
            rows=str(Path(folder) / "applicants.parquet"), thresholds=THRESHOLDS, max_evaluations=MOST_EVALUATIONS
        )
        first = _log(chosen, FIRST_YEAR, "The first year")
        opened = _gate(chosen, first, rules)
        _serve_and_follow(chosen, asked)
        drifted = _monitor(chosen)
        second = _gate(chosen, _log(chosen, FIRST_YEAR + 1, "The second year"), rules)
        careless = _gate(chosen, _log(chosen, FIRST_YEAR + 1, "A careless version", upside_down=True), rules)
    ended = {"the first version went live": opened, "the drift was found": drifted}
    ended |= {"the second version went live": second, "the careless one did not": not careless}
    print("\n" + "\n".join(f"{'yes' if is_so else 'NO'}: {what}" for what, is_so in ended.items()))
    return 0 if all(ended.values()) else 1


def _fitted(table: pd.DataFrame, *, upside_down: bool) -> Pipeline:
    """Return a fitted model; one that was fitted to turned labels stands for a mistake in a pipeline."""
    columns = make_column_transformer((OneHotEncoder(sparse_output=False), ["sex"]), remainder=StandardScaler())
    labels = 1 - table[REPAID] if upside_down else table[REPAID]
    return make_pipeline(columns, LogisticRegression()).fit(table.drop(columns=REPAID), labels)


def _log(chosen: argparse.Namespace, year: int, title: str, *, upside_down: bool = False) -> str:
    """Fit a year's model, log it with a promise of survival, and return the number of its registered version."""
    table = applicants(chosen.rows, year, chosen.seed)
    info = mlflow_cf.log_model(
        _fitted(table, upside_down=upside_down),
        f"loans_{year}",
        table.drop(columns=REPAID),
        table[REPAID],
        target={"label": 1, "means": "the loan is approved"},
        constraints=CONSTRAINTS,
        survival=SURVIVAL,
        trace=True,
        registered_model_name=chosen.registered_name,
    )
    print(f"\n{title}: version {info.registered_model_version}, fitted to {len(table):,} applicants of {year}")
    return str(info.registered_model_version)


def _gate(chosen: argparse.Namespace, version: str, rules: mlflow_cf.GateRules) -> bool:
    """Gate a version, and return whether it went live."""
    verdict = mlflow_cf.gate(chosen.registered_name, version, rules)
    print(verdict)
    return verdict.moved


def _serve_and_follow(chosen: argparse.Namespace, asked: pd.DataFrame) -> None:
    """Answer refused applicants as a server would, and tell what became of them some weeks later."""
    served = mlflow.pyfunc.load_model(f"models:/{chosen.registered_name}@champion")
    rows = asked.drop(columns=REPAID)
    answered = served.predict(rows.head(TRACED))
    found = answered[answered["status"] == "found"]
    print(f"\n{found['counterfactuals'].iloc[0][0]['text']}")
    traces = _traces(served.metadata.model_id, len(found))
    rng = np.random.default_rng(chosen.seed)
    for trace_id, response in zip(traces["trace_id"], traces["response"], strict=True):
        acts = bool(rng.random() < 0.6)
        later_row = response["counterfactuals"][0]["row"] if acts else None
        mlflow_cf.outcome(trace_id, acted=acts, row=later_row, decision=1 if acts else None)
    told = mlflow_cf.monitor(mlflow.search_traces(model_id=served.metadata.model_id), log_run=False).outcomes
    print(told.to_string(index=False, float_format="{:.2f}".format))


def _traces(model_id: str, least: int) -> pd.DataFrame:
    """Return the traces of a model's answers; they arrive some moments after the replies."""
    until = time.monotonic() + PATIENCE_S
    while True:
        traces = mlflow.search_traces(model_id=model_id)
        if len(traces) >= least or time.monotonic() > until:
            return traces[[status == "found" for status in traces["tags"].map(lambda tags: tags.get("cf.status"))]]
        time.sleep(0.5)


def _monitor(chosen: argparse.Namespace) -> bool:
    """Follow two months of answers, of which the second is harder, and return whether that was noticed."""
    explained = mlflow_cf.load_model(f"models:/{chosen.registered_name}@champion")
    weeks = []
    for week in range(WEEKS):
        rows = applicants(150, FIRST_YEAR, chosen.seed + 10 + week).drop(columns=REPAID)
        rows = rows if week < WEEKS // 2 else later(rows, week)
        start = pd.Timestamp(f"{FIRST_YEAR + 1}-02-02") + pd.Timedelta(weeks=week)
        times = start + pd.to_timedelta(np.linspace(0, 6.9, len(rows)), unit="D")
        weeks.append(explained.request(rows, {}).to_records().assign(time=times, sex=rows["sex"].to_numpy()))
    month = pd.Timestamp(f"{FIRST_YEAR + 1}-03-02").strftime("%Y-%m-%d")
    found = mlflow_cf.monitor(
        pd.concat(weeks, ignore_index=True), reference=f"{FIRST_YEAR + 1}-02-02/{month}", window="14d", groups="sex"
    )
    print(f"\n{found}")
    return found.drifted


if __name__ == "__main__":
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("mlflow_cf.artifact.publish.requirements").setLevel(logging.ERROR)  # no package index is needed
    sys.exit(main())
