"""Commands that tell what a model or an answer is, and whether it is still what it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from mlflow_cf.artifact.load import verify_folder
from mlflow_cf.artifact.publish.log import load_model
from mlflow_cf.artifact.publish.signature import PARAM
from mlflow_cf.artifact.served import replay_trace
from mlflow_cf.cli.shared import (
    Exit,
    command,
    complete_models,
    friendly_errors,
    json_option,
    leave,
    model_option,
    print_json,
    read_rows,
    wants_json,
)
from mlflow_cf.explainers.registry import options_schema
from mlflow_cf.model.flavors import fetch
from mlflow_cf.policy import Query
from mlflow_cf.records.document import Record
from mlflow_cf.words.description import description

ASKED: Final = {"count": 3, "constraints": {"immutable": ["age"]}}
REQUEST: Final = {"dataframe_records": [{"age": 46, "income": 20500}], "params": {PARAM: ASKED}}
WHERE: Final = (
    f"A request carries it so: {json.dumps(REQUEST)}. MLflow drops params of any other name, and options beside them, "
    "without a word; the reply is then the one for no options."
)


@command(examples=("mlflow-cf describe -m models:/credit@champion",))
@model_option
@json_option
def describe(model_uri: str, *, as_json: bool | None) -> None:
    """Print what an explained model consists of, and whether it could be opened."""
    with friendly_errors():
        facts = load_model(model_uri).describe()
    if wants_json(as_json):
        print_json(facts)
    else:
        click.echo(description(facts))


@command(examples=("mlflow-cf verify -m models:/credit/1",))
@model_option
@json_option
def verify(model_uri: str, *, as_json: bool | None) -> None:
    """Check every file of an explained model, which is neither opened nor run; exit with 1 if one was altered."""
    with friendly_errors(artifact=Exit.FAILS):
        checked = verify_folder(fetch(model_uri))
    facts = {"files": checked.files, "bytes": checked.bytes, "rows": checked.rows}
    if wants_json(as_json):
        told = {"schema_version": checked.schema_version, "sha256": checked.sha256, "versions": dict(checked.versions)}
        print_json({**facts, **told})
        return
    written = ", ".join(f"{name} {version}" for name, version in checked.versions.items())
    click.echo(f"files     {checked.files}, {checked.bytes:,} bytes, {checked.rows:,} background rows")
    click.echo(f"written   by {written}; schema version {checked.schema_version}")
    click.echo(f"manifest  sha256 {checked.sha256}")
    click.echo("OK")


@command(examples=("mlflow-cf check record.json -m models:/credit@champion",))
@click.argument("record", type=click.Path(path_type=Path))
@model_option
@click.option(
    "--time-limit",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds for the search that proves again.",
)
@json_option
def check(record: Path, model_uri: str, time_limit: float, *, as_json: bool | None) -> None:
    """Check a record against a model: exit with 1 if something no longer holds, with 3 if a proof is not made again."""
    with friendly_errors():
        found = load_model(model_uri).check(record, time_limit_s=time_limit)
    if wants_json(as_json):
        print_json({"ok": found.ok, "checks": [one.to_dict() for one in found]})
    else:
        click.echo(str(found))
    leave(Exit.FAILS if found.broken else Exit.UNDECIDED if found.unproved else Exit.DONE)


@command(examples=("mlflow-cf schema --record",))
@click.option("--record", is_flag=True, help="Print that of records instead.")
def schema(*, record: bool) -> None:
    """Print the JSON schema of the request param `counterfactual`, or of records."""
    if record:
        print_json(Record.model_json_schema())
        return
    published = Query.model_json_schema()
    published["$defs"]["NamedExplainer"]["allOf"] = options_schema()
    published["description"] = f"{published['description']}\n\n{WHERE}"
    published["examples"] = [ASKED]
    print_json(published)


@command(examples=("mlflow-cf replay tr-5f3c2b",))
@click.argument("trace_id")
@click.option(
    "-m", "--model-uri", shell_complete=complete_models, help="Another model than the one that the trace names."
)
@click.option(
    "-r",
    "--rows",
    type=click.Path(path_type=Path),
    help="The row, perhaps among others, where the trace holds its digest alone: .csv, .json or .parquet.",
)
@json_option
def replay(trace_id: str, model_uri: str | None, rows: Path | None, *, as_json: bool | None) -> None:
    """Compute the explanation of a trace again; exit with 1 if it differs from what was answered."""
    with friendly_errors():
        table = None if rows is None else read_rows(rows, "--rows", [] if model_uri is None else [model_uri])
        found = replay_trace(trace_id, model_uri=model_uri, rows=table)
    if wants_json(as_json):
        print_json(found.to_dict())
    else:
        click.echo("\n".join([*found.notes, *map(str, found.differences), found.verdict]))
    leave(Exit.FAILS if found.verdict == "different" else Exit.DONE)
