"""Serve the registered model with `mlflow models serve` and ask it about three refused applicants."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from progress import Progress, end_on_signals
from server import Reply, ask, serving
from store import use_store


@dataclass(frozen=True)
class Served:
    """The model version to serve, with the rows stored beside it to show what it is asked."""

    uri: str
    version: str
    target: str
    favourable: str
    applicants: pd.DataFrame

    @property
    def outcome(self) -> str:
        """The favourable label in words: a column named `approved` says it better than its label 1."""
        return self.target.replace("_", " ") if self.favourable == "1" else self.favourable


def options() -> argparse.ArgumentParser:
    """Return the command line; empty texts mean the default, so that an MLproject file can pass everything on."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--registered-name", default="credit", metavar="NAME", help="registered model (default: credit)")
    add("--alias", default="champion", metavar="NAME", help="which version of it (default: champion)")
    add("--port", type=int, default=0, metavar="N", help="port of the server (default: any free one)")
    add(
        "--timeout",
        type=float,
        default=90,
        metavar="SECONDS",
        help="how long the server may take to start (default: 90)",
    )
    add(
        "--store", default="", metavar="FOLDER", help="where train kept runs and models (default: MLflow's own setting)"
    )
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Run the entry point `serve_and_ask`."""
    chosen = options().parse_args(arguments)
    progress = Progress()
    use_store(chosen.store)
    served = _look_up(chosen.registered_name, chosen.alias)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(chosen.store or folder) / "server.log"
        with serving(served.uri, chosen.port, log, chosen.timeout, progress) as address:
            progress.step(f"Asking {address}/invocations about {len(served.applicants)} refused applicants")
            replies = ask(address, _body(served.applicants, {"count": 2}))
            for number, reply in enumerate(replies):
                print(f"\nApplicant {number + 1}\n{_described(served.applicants.iloc[number])}")
                _show(served, reply)
            _ask_again(address, served, replies, progress)
        progress.step("Server stopped")
    program = Path(sys.executable).with_name("mlflow")
    print(
        "\nLook at runs, metrics and versions in MLflow's own pages, at http://127.0.0.1:5000 after\n"
        f"  {program} ui --backend-store-uri {mlflow.get_tracking_uri()}"
    )


def _look_up(name: str, alias: str) -> Served:
    """Find the version behind the alias, its target and its input example.

    Raises:
        SystemExit: there is no such version.
    """
    client = MlflowClient()
    try:
        version = client.get_model_version_by_alias(name, alias)
    except MlflowException as error:
        raise SystemExit(
            f"No registered model {name!r} with alias {alias!r}: run train.py first ({error.message})"
        ) from error
    uri = f"models:/{name}@{alias}"
    parameters = client.get_run(version.run_id).data.params
    applicants = Model.load(uri).load_input_example(uri)
    return Served(uri, version.version, parameters["target_column"], parameters["favourable_label"], applicants)


def _body(applicants: pd.DataFrame, wishes: dict[str, Any]) -> dict[str, Any]:
    """Return the request: rows in MLflow's dataframe_split form, all wishes in the one parameter `counterfactual`."""
    rows = applicants.astype(object).where(applicants.notna(), None).to_dict("split", index=False)
    return {"dataframe_split": rows, "params": {"counterfactual": wishes}}


def _ask_again(address: str, served: Served, replies: Reply, progress: Progress) -> None:
    """Ask once more for the first applicant with an answer, who rules out the first change proposed."""
    for number, reply in enumerate(replies):
        if reply["counterfactuals"]:
            feature = reply["counterfactuals"][0]["changes"][0]["feature"]
            body = _body(served.applicants.iloc[[number]], {"count": 2, "constraints": {"immutable": [feature]}})
            print()
            progress.step(f"Asking once more, with params {json.dumps(body['params'])}")
            print(f"\nApplicant {number + 1}, if {feature.replace('_', ' ')} cannot change")
            _show(served, ask(address, body)[0])
            print()
            return


def _described(row: pd.Series) -> str:
    text = ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in row.items())
    return textwrap.fill(text, 110, initial_indent="  ", subsequent_indent="  ")


def _show(served: Served, reply: dict[str, Any]) -> None:
    """Print the decision and what would turn it."""
    chance = (
        "" if reply["probability"] is None else f" (probability of {served.favourable}: {reply['probability']:.2f})"
    )
    print(f"  decision: {served.target} = {reply['prediction']}{chance}")
    for answer in reply["counterfactuals"]:
        changes = answer["text"].partition(": the prediction becomes")[0]
        print(f"  would be {served.outcome} if {changes}")
    if not reply["counterfactuals"]:
        print(f"  no counterfactual ({reply['status']}): {reply['reason']}")


def _plain(value: object) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return f"{value:,.0f}"
    return "not stated" if pd.isna(value) else str(value)


if __name__ == "__main__":
    end_on_signals()
    main()
