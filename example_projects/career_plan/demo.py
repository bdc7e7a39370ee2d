"""Careers: train, log, draw plans, serve, and ask two people's question: what should I do first?"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
from pathlib import Path

import mlflow
import pandas as pd
from borrowed import Progress, ask, end_on_signals, serving, use_store
from careers import TARGET, careers
from order import studies_first
from train import fitted, log, log_figures

import mlflow_cf

HERE = Path(__file__).resolve().parent
ASKED = 2  # people who ask the server
PLANS = 5  # of a person, in figures


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--rows", type=int, default=3_000, metavar="N", help="careers to learn from (default: 3,000)")
    add("--people", type=int, default=20, metavar="N", help="people whose plans are drawn (default: 20)")
    add("--generations", type=int, default=50, metavar="N", help="of the genetic search (default: 50)")
    add("--port", type=int, default=0, metavar="N", help="port of the server (default: any free one)")
    add("--seed", type=int, default=0, help="for careers, network and plans (default: 0)")
    add("--store", default="", metavar="FOLDER", help="keep runs and models there (default: MLflow's own setting)")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the whole story."""
    chosen = options().parse_args(arguments)
    progress = Progress()
    use_store(chosen.store, "" if "MLFLOW_RUN_ID" in os.environ else "career_plan")
    table = careers(chosen.rows, chosen.seed)
    with mlflow.start_run():
        pipeline = fitted(table, chosen.seed)
        share = pipeline.score(table.drop(columns=TARGET), table[TARGET])
        progress.step(f"Model: a network that is right about {share:.0%} of {len(table):,} careers")
        uri = log(pipeline, table, chosen.seed).model_uri
        people = careers(40 * chosen.people, chosen.seed + 1).drop(columns=TARGET)
        people = people[pipeline.predict(people) == 0].head(chosen.people)
        _draw_plans(mlflow_cf.load_model(uri), people, chosen.generations, progress)
    _serve(uri, people.head(ASKED), chosen, progress)


def _draw_plans(
    explained: mlflow_cf.ExplainedModel, people: pd.DataFrame, generations: int, progress: Progress
) -> None:
    """Log figures and orders of plans, with relationships (CSCF) and without (SCF)."""
    for explainer, folder in ((mlflow_cf.CSCF, "plans"), (mlflow_cf.SCF, "plans_without_relationships")):
        told = explained.explain(people, count=PLANS, explainer=explainer(generations=generations))
        log_figures(told, folder)
        first, both = studies_first(told)
        mlflow.log_metrics({f"{explainer.name}/studies_first": first, f"{explainer.name}/studies_and_better_job": both})
        progress.step(
            f"{explainer.name}: of {both} plans with studies and a better job, {first} have the studies first; "
            f"figures in {folder}/"
        )


def _serve(uri: str, people: pd.DataFrame, chosen: argparse.Namespace, progress: Progress) -> None:
    """Ask the real server for the cheapest plans."""
    wishes = {"explainer": {"name": "cscf", "options": {"generations": chosen.generations}}, "count": 2}
    body = {
        "dataframe_split": people.astype(object).to_dict("split", index=False),
        "params": {"counterfactual": wishes},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(uri, chosen.port, Path(folder) / "server.log", 90, progress) as address,
    ):
        progress.step(f"Asking {address}/invocations with {body['params']}")
        for (_, person), reply in zip(people.iterrows(), ask(address, body), strict=True):
            print("\n" + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in person.items()))
            print(f"well paid: {reply['prediction']} (probability {reply['probability']:.2f})")
            plans = ["\n  ".join(found["text"].split("\n")[1:]) for found in reply["counterfactuals"]]
            print("  " + "\n or\n  ".join(plans))
            if not reply["counterfactuals"]:
                print(f"  no plan ({reply['status']}): {reply['reason']}")
    progress.step("Server stopped")


if __name__ == "__main__":
    # How the model could do without a package index; the demo's server runs in this very environment.
    logging.getLogger("mlflow_cf.artifact.publish.requirements").setLevel(logging.ERROR)
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    end_on_signals()
    main()
