"""Commands about rows of a file: their explanations, and constraints that they show."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlflow_cf.artifact.publish.log import load_model
from mlflow_cf.artifact.publish.signature import PARAM
from mlflow_cf.artifact.served import origin_of
from mlflow_cf.cli.shared import (
    check_ending,
    command,
    friendly_errors,
    json_option,
    model_option,
    print_json,
    read_rows,
    rows_option,
    wants_json,
)
from mlflow_cf.errors import did_you_mean
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.files.explain import Asked, explain_files
from mlflow_cf.files.output import check_is_not, check_writable, whole
from mlflow_cf.files.parts import finished_parts
from mlflow_cf.files.rows import RowFiles
from mlflow_cf.model.flavors import fetch
from mlflow_cf.parquet import parquet_files
from mlflow_cf.request.admission import Admission
from mlflow_cf.suggest import suggest_constraints
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.result import Status
from mlflow_cf.words.sentences import counted

PIPE_WIDTH: Final = 200  # characters of a table that no terminal bounds
TABLES: Final = (".csv", ".parquet")
OUTPUT: Final = "--output-path"
INTERRUPTED: Final = "interrupted; the same command goes on after the {} that it has finished"


@command(
    examples=(
        "mlflow-cf explain -m models:/credit@champion -i rows.csv",
        'mlflow-cf explain -m models:/credit/1 -i rows.csv -q \'{"count": 3, "certify": true}\' --json',
        "mlflow-cf explain -m models:/credit/1 -i rows.parquet -o answers.parquet --key customer",
    )
)
@model_option
@rows_option("-i", "--input-path", told="Rows: .csv, .json or .parquet, or a folder of .parquet files.")
@click.option("-q", "--query", default="{}", help="Options of the request as JSON, e.g. '{\"count\": 3}'.")
@click.option("--only", multiple=True, type=click.Choice(get_args(Status)), help="Rows of this status; again for more.")
@click.option(
    "-o",
    "--output-path",
    type=click.Path(path_type=Path),
    help="Write a table instead, one line per counterfactual, or per row without one: .csv or .parquet. From .parquet "
    "to .parquet, rows are read and written in parts: there may be any number, and after an interruption the same "
    "command goes on.",
)
@click.option("--key", help="Column of the rows that tells them apart, for the table: from .parquet to .parquet.")
@click.option("--jobs", type=click.IntRange(min=1), help="Most cores to take; without, all that are free.")
@json_option
def explain(
    model_uri: str, input_path: Path, query: str, output_path: Path | None, *, as_json: bool | None, **which: Any
) -> None:
    """Explain the rows of a file: a table on a terminal, records of a reply in a pipe, a file where one is named."""
    only, key, places = which["only"], which["key"], Admission(which["jobs"])
    in_parts = input_path.is_dir() or (input_path.suffix == output_path.suffix == ".parquet" if output_path else False)
    if output_path is not None:
        check_ending(output_path, TABLES)
    if key is not None and not in_parts:
        raise click.BadParameter("goes with rows and table as .parquet", param_hint="--key")
    asked = _read_query(query)
    with friendly_errors():
        if output_path is not None:
            check_is_not(output_path, input_path, OUTPUT)
        if in_parts:
            click.echo(_explain_in_parts(model_uri, input_path, output_path, Asked(asked, only, key), places))
            return
        if output_path is not None:
            check_writable(output_path, OUTPUT)
        rows = read_rows(input_path, models=[model_uri])
        explained = replace(load_model(model_uri), admission=places)
        explained.warm_up()  # the clock of the request shall not pay for what is compiled on first use
        answers = explained.request(rows.reset_index(drop=True), {PARAM: asked})
        kept = [at for at, one in enumerate(answers.statuses) if not only or one in only]
        _hand_over(answers, kept, output_path, as_json)


def _hand_over(answers: Explanations, kept: Sequence[int], output_path: Path | None, as_json: bool | None) -> None:  # noqa: FBT001
    """Write or print the answers that are kept."""
    if output_path is not None:
        table = answers.to_table(kept)
        write = table.to_csv if output_path.suffix == ".csv" else table.to_parquet
        with whole(output_path, OUTPUT) as part:
            write(part, index=False)
        click.echo(answers.summary)
    elif wants_json(as_json):
        print_json([answers[number].to_dict() for number in kept])
    else:
        _print_table([(number, answers[number].to_dict()) for number in kept])
        click.echo(answers.summary)


def _print_table(records: Sequence[tuple[int, dict[str, Any]]]) -> None:
    """Print a line per row, with all of its answers."""
    if not records:
        return
    table = Table("row", "prediction", "status", "what would have to change", box=SIMPLE, pad_edge=False)
    for number, record in records:
        told = Text("\n").join(map(_answer, record["counterfactuals"])) or Text(record["reason"])
        table.add_row(str(number), _prediction(record), record["status"], told)
    terminal = sys.stdout.isatty()
    Console(width=None if terminal else PIPE_WIDTH, no_color=None if terminal else True, highlight=False).print(table)


def _prediction(record: dict[str, Any]) -> str:
    likely = record["probability"]
    return str(record["prediction"]) if likely is None else f"{record['prediction']} ({likely:.2f})"


def _answer(found: dict[str, Any]) -> Text:
    """Return an answer's sentence, what is proved of it, and the steps of its plan."""
    sentence, *steps = found["text"].split("\n")
    return Text("\n    ".join([f"{sentence}{_proof(found)}", *steps]))


def _proof(found: dict[str, Any]) -> str:
    """Return what is proved of a counterfactual of a reply."""
    match found["proof"]:
        case "optimal":
            return " (proved: nothing is nearer)"
        case "bounded":
            return f" (at distance {found['distance']:.4g}; proved: nothing is nearer than {found['bound']:.4g})"
    return ""


def _explain_in_parts(
    model_uri: str, input_path: Path, output_path: Path | None, asked: Asked, places: Admission
) -> str:
    """Explain the rows of parquet files into another one, and return how many there are of each status."""
    if output_path is None or output_path.suffix != ".parquet":
        raise click.BadParameter("--input-path is a folder; name a .parquet file with -o", param_hint=OUTPUT)
    parquet_files(input_path)
    folder = fetch(model_uri)
    explained: ExplainedModel = replace(load_model(folder), admission=places)
    rows = RowFiles.of(input_path, explained.space, asked.key)
    explained.warm_up()
    try:
        return explain_files(explained, origin_of(folder).manifest_sha256, rows, output_path, asked)
    except KeyboardInterrupt:
        finished = finished_parts(output_path)
        raise KeyboardInterrupt(INTERRUPTED.format(counted(finished, "part")) if finished else "") from None


def _read_query(text: str) -> dict[str, Any]:
    try:
        query = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--query") from None
    if not isinstance(query, dict):
        raise click.BadParameter("not a JSON object", param_hint="--query")
    return query


@command(examples=("mlflow-cf suggest -i train.csv -o constraints.yaml --labels approved",))
@rows_option("-i", "--input-path", told="Training rows: .csv, .json or .parquet.")
@click.option("-o", "--output-path", type=click.Path(path_type=Path), help="Write .yaml here; else it is printed.")
@click.option("--labels", help="Column with the training target: for notes about what gives it away.")
@click.option("--seed", default=0, show_default=True, help="Draws the rows of a large table.")
def suggest(input_path: Path, output_path: Path | None, labels: str | None, seed: int) -> None:
    """Suggest constraints that training rows show, as YAML to be reviewed."""
    if output_path is not None:
        check_ending(output_path, (".yaml", ".yml"))
    with friendly_errors():
        if output_path is not None:
            check_writable(output_path, OUTPUT)
        rows = read_rows(input_path)
        if labels is not None and labels not in rows:
            raise click.BadParameter(did_you_mean(labels, rows.columns, "columns"), param_hint="--labels")
        target = None if labels is None else rows.pop(labels)
        found = suggest_constraints(rows, target, seed=seed)
        if output_path is None:
            click.echo(found.to_yaml(), nl=False)
            return
        with whole(output_path, OUTPUT) as part:
            part.write_text(found.to_yaml(), encoding="utf-8")
        click.echo(found.summary)
