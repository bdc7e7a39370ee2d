"""The command ``mlflow-cf``: explain, evaluate and report, compare versions, check models, replay answers, suggest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import click
import pandas as pd
from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR as PROGRESS
from mlflow.models.evaluation.validation import ModelValidationFailedException

from mlflow_cf.artifact.load import verify_folder
from mlflow_cf.artifact.publish.log import load_model
from mlflow_cf.artifact.publish.signature import PARAM
from mlflow_cf.artifact.served import origin_of, replay_trace
from mlflow_cf.artifact.warm import kept_in, warm_all
from mlflow_cf.errors import CounterfactualError, did_you_mean
from mlflow_cf.evaluation.compare.comparison import read_thresholds
from mlflow_cf.evaluation.compare.versions_compared import compare
from mlflow_cf.evaluation.measure.evaluate import evaluate
from mlflow_cf.evaluation.reported import report
from mlflow_cf.explainers.registry import options_schema
from mlflow_cf.files.explain import Asked, explain_files
from mlflow_cf.files.rows import READERS, RowFiles
from mlflow_cf.gating.gate import gate
from mlflow_cf.gating.rules import GateRules, read_rules, rules_for
from mlflow_cf.model.flavors import fetch
from mlflow_cf.monitoring.monitor import monitor
from mlflow_cf.parquet import parquet_files
from mlflow_cf.policy import Query
from mlflow_cf.records.document import Record
from mlflow_cf.request.admission import Admission
from mlflow_cf.suggest import suggest_constraints
from mlflow_cf.ui.command import ui
from mlflow_cf.version import VERSION
from mlflow_cf.words.description import description
from mlflow_cf.words.result import Status

ASKED: Final = {"count": 3, "constraints": {"immutable": ["age"]}}
REQUEST: Final = {"dataframe_records": [{"age": 46, "income": 20500}], "params": {PARAM: ASKED}}
WHERE: Final = (
    f"A request carries it so: {json.dumps(REQUEST)}. MLflow drops params of any other name, and options beside them, "
    "without a word; the reply is then the one for no options."
)
_model = click.option("-m", "--model-uri", required=True, help="URI or folder, e.g. models:/credit@champion.")


@click.group()
@click.version_option(VERSION, prog_name="mlflow-cf")
@click.pass_context
def main(context: click.Context) -> None:
    """Counterfactual explanations for MLflow models."""
    if not PROGRESS.defined:  # MLflow's bars of downloads would stand between the answers
        PROGRESS.set(False)
        context.call_on_close(PROGRESS.unset)


@main.command()
@_model
@click.option(
    "-i",
    "--input-path",
    required=True,
    type=click.Path(path_type=Path),
    help="Rows: .csv, .json or .parquet, or a folder of .parquet files.",
)
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
@click.option("--json", "as_json", is_flag=True, help="Print the records of a reply instead of sentences.")
def explain(
    model_uri: str, input_path: Path, query: str, output_path: Path | None, *, as_json: bool, **which: Any
) -> None:
    """Explain the rows of a file."""
    only, key, places = which["only"], which["key"], Admission(which["jobs"])
    in_parts = input_path.is_dir() or (input_path.suffix == output_path.suffix == ".parquet" if output_path else False)
    with _friendly_errors():
        if output_path is not None and output_path.suffix not in (".csv", ".parquet"):
            raise click.BadParameter(f"{output_path.name} is none of .csv, .parquet", param_hint="--output-path")
        if key is not None and not in_parts:
            raise click.BadParameter("goes with rows and table as .parquet", param_hint="--key")
        asked = _read_query(query)
        if in_parts:
            click.echo(_explain_in_parts(model_uri, input_path, output_path, Asked(asked, only, key), places))
            return
        rows = _read_rows(input_path)
        explained = replace(load_model(model_uri), admission=places)
        explained.warm_up()  # the clock of the request shall not pay for what is compiled on first use
        answers = explained.request(rows.reset_index(drop=True), {PARAM: asked})
    kept = [number for number, status in enumerate(answers.statuses) if not only or status in only]
    if output_path is not None:
        table = answers.to_table(kept)
        write = table.to_csv if output_path.suffix == ".csv" else table.to_parquet
        write(output_path, index=False)
    elif as_json:
        click.echo(json.dumps([answers[number].to_dict() for number in kept], allow_nan=False, indent=1))
        return
    for number in kept if output_path is None else ():
        _print_answer(number, answers[number].to_dict())
    click.echo(answers.summary)


def _explain_in_parts(
    model_uri: str, input_path: Path, output_path: Path | None, asked: Asked, places: Admission
) -> str:
    """Explain the rows of parquet files into another one, and return how many there are of each status."""
    if output_path is None or output_path.suffix != ".parquet":
        raise click.BadParameter("a folder of rows needs a .parquet file for the table", param_hint="--output-path")
    parquet_files(input_path)
    folder = fetch(model_uri)
    explained = replace(load_model(folder), admission=places)
    rows = RowFiles.of(input_path, explained.space, asked.key)
    explained.warm_up()
    try:
        return explain_files(explained, origin_of(folder).manifest_sha256, rows, output_path, asked)
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on with what is finished", err=True)
        sys.exit(130)


def _print_answer(number: int, record: dict[str, Any]) -> None:
    reason = f" ({record['reason']})" if record["reason"] else ""
    click.echo(f"row {number}: prediction {record['prediction']}, {record['status']}{reason}")
    for found in record["counterfactuals"]:
        sentence, *steps = found["text"].split("\n")
        click.echo("\n    ".join([f"  {sentence}{_proof(found)}", *steps]))


@main.command("evaluate")
@_model
@click.option("-r", "--rows", required=True, type=click.Path(path_type=Path), help="Rows: .csv, .json or .parquet.")
@click.option("--labels", help="Column of the rows with the true targets.")
@click.option("-e", "--explainer", "explainers", multiple=True, help="An explainer of a bake-off; again for each.")
@click.option("-g", "--group", "groups", multiple=True, help="A column by which figures are split; again for each.")
@click.option("--count", default=1, show_default=True, help="Counterfactuals per row.")
@click.option("--seed", type=int, help="Another seed than the model's own.")
@click.option("--certify", is_flag=True, help="Prove that nothing is nearer.")
@click.option("--risk", is_flag=True, help="Measure what answers give away; the rows must not be training rows.")
@click.option("--metric", "metrics", multiple=True, help="Log this one too, as in 'cf/coverage/sex.*'; again for more.")
@click.option("--json", "as_json", is_flag=True, help="Print all metrics as JSON.")
def evaluate_rows(model_uri: str, rows: Path, **options: Any) -> None:
    """Explain the rows of a file, measure the answers, and log everything to a run of MLflow."""
    as_json, explainers, groups = (options.pop(name) for name in ("as_json", "explainers", "groups"))
    with _friendly_errors():
        table = _read_rows(rows, "--rows")
        found = evaluate(model_uri, table, explainers=explainers or None, groups=groups or None, **options)
    click.echo(
        json.dumps(dict(found.metrics), allow_nan=False, indent=1) if as_json else f"{found}\nrun {found.run_id}"
    )


@main.command("report")
@_model
@click.option(
    "-i", "--input-path", required=True, type=click.Path(path_type=Path), help="Rows: .csv, .json or .parquet."
)
@click.option("-o", "--output-path", required=True, type=click.Path(path_type=Path), help="The HTML file to write.")
@click.option("-e", "--explainer", "explainers", multiple=True, help="An explainer to compare; again for each.")
@click.option("-g", "--group", "groups", multiple=True, help="A column by which figures are split; again for each.")
@click.option("--count", default=1, show_default=True, help="Counterfactuals per row.")
@click.option("--seed", type=int, help="Another seed than the model's own.")
@click.option("--certify", is_flag=True, help="Prove that nothing is nearer.")
def report_rows(model_uri: str, input_path: Path, output_path: Path, **options: Any) -> None:
    """Explain the rows of a file, and write what came of it as one HTML file.

    Example: mlflow-cf report -m models:/credit/1 -i rows.csv -o report.html -g sex
    """
    explainers, groups = (options.pop(name) or None for name in ("explainers", "groups"))
    with _friendly_errors():
        table = _read_rows(input_path)
        written = report(model_uri, table, output_path, explainers=explainers, groups=groups, **options)
    click.echo(f"{written}, {written.stat().st_size:,} bytes")


@main.command("compare")
@click.argument("models", nargs=-1, required=True)
@click.option("-r", "--rows", required=True, type=click.Path(path_type=Path), help="Rows: .csv, .json or .parquet.")
@click.option("--versions", help="Numbers or aliases of a registered model's versions, as in 3,champion; all without.")
@click.option("--labels", help="Column of the rows with the true targets.")
@click.option("-e", "--explainer", "explainers", multiple=True, help="An explainer to compare; again for each.")
@click.option("-g", "--group", "groups", multiple=True, help="A column by which figures are split; again for each.")
@click.option("--count", default=1, show_default=True, help="Counterfactuals per row.")
@click.option("-t", "--threshold", multiple=True, help="What the newest version must reach: 'cf/survival>=0.8'.")
def compare_versions(models: tuple[str, ...], rows: Path, threshold: tuple[str, ...], **options: Any) -> None:
    """Compare the versions of a registered model, or several URIs; exit with 1 where the newest misses a threshold."""
    versions, explainers, groups = (options.pop(name) or None for name in ("versions", "explainers", "groups"))
    named = None if versions is None else versions.split(",")
    with _friendly_errors():
        gate, table = read_thresholds(threshold), _read_rows(rows, "--rows")
        sources = models[0] if len(models) == 1 else list(models)
        found = compare(sources, table, versions=named, explainers=explainers, groups=groups, **options)
        click.echo(f"{found}\nrun {found.run_id}")
        found.validate(gate)
    if gate:
        click.echo(f"{found.newest} passes")


@main.command("gate")
@click.argument("name", required=False)
@click.argument("version", required=False)
@click.option("--rules", "rules_path", required=True, type=click.Path(path_type=Path), help="YAML: rules by model.")
@click.option("--again", is_flag=True, help="Compare even if there is a verdict on this version.")
@click.option("--listen", is_flag=True, help="Serve MLflow's webhooks instead, and gate every new version.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=5005, show_default=True, help="Where to listen.")
@click.option(
    "--secret-variable",
    default="MLFLOW_CF_GATE_SECRET",
    show_default=True,
    help="Environment variable with the secret that the webhook was created with.",
)
def gate_version(name: str | None, version: str | None, rules_path: Path, *, again: bool, **where: Any) -> None:
    """Move the alias to a version of a registered model if it reaches every threshold beside the champion.

    Exits with 1 if it was refused, and with 3 if nothing could be decided; the alias has not moved then.

    Example: mlflow-cf gate credit 7 --rules gate.yaml
    """
    listen = where.pop("listen")
    if listen == (name is not None) or (name is None) != (version is None):
        raise click.UsageError("name a model and a version, or --listen")
    with _friendly_errors():
        rules = read_rules(rules_path)
        if listen:
            _listen(rules, **where)
            return
        wanted = rules_for(str(name), rules)
    try:
        verdict = gate(str(name), str(version), wanted, again=again)
    except CounterfactualError as error:
        click.echo(f"Error: {error.message}", err=True)
        sys.exit(3)
    click.echo(str(verdict))
    sys.exit(0 if verdict.passed else 1)


def _listen(rules: dict[str, GateRules], host: str, port: int, secret_variable: str) -> None:
    """Serve webhooks until the process is stopped."""
    import uvicorn  # noqa: PLC0415  for this command alone

    from mlflow_cf.gating.listener import Gatekeeper, listener  # noqa: PLC0415  the same

    app = listener(Gatekeeper(rules), os.environ.get(secret_variable, ""))
    click.echo(f"gates {', '.join(rules)} at http://{host}:{port}/")
    uvicorn.run(app, host=host, port=port, log_level="warning")


@main.command("monitor")
@click.argument("source", nargs=-1, required=True)
@click.option("--reference", help="What windows are compared with: '2026-01-01/2026-02-01', or another source.")
@click.option("--window", default="7d", show_default=True, help="How long windows are: '7d', '12h'.")
@click.option("-m", "--model", help="Id m-... or models:/ URI of one of several models; 'all': all together.")
@click.option("-g", "--group", "groups", multiple=True, help="A column by which figures are split; again for each.")
@click.option("-c", "--column", "columns", multiple=True, help="What a table calls ours: 'time=ts'; again for each.")
@click.option("--block", default="request", show_default=True, help="What stays together in tests: request, hour, day.")
@click.option("--newest", type=int, help="Test so many of the latest whole windows; all without.")
@click.option("--alpha", default=0.05, show_default=True, help="The rate of false alarms.")
@click.option("--until", help="The moment that answers are known to; now, or the last line of a table, without.")
@click.option("--seed", default=0, show_default=True, help="Of the permutations.")
@click.option("-o", "--output-path", type=click.Path(path_type=Path), help="Write the page here, too: an HTML file.")
@click.option("--log/--no-log", "log_run", default=True, show_default=True, help="Log to a run of MLflow.")
@click.option("--json", "as_json", is_flag=True, help="Print what drifts, and the windows, as JSON.")
def monitor_served(source: tuple[str, ...], output_path: Path | None, *, as_json: bool, **options: Any) -> None:
    r"""Follow served explanations from window to window; exit with 1 where they drift.

    It exits with 2 where something is wrong, and with 3 where no window could be tested.

    SOURCE is an experiment with traces, or several, by name or id; or an inference table: a .parquet file, or a folder.

    \b
    Examples:
      mlflow-cf monitor credit-audit --newest 1
      mlflow-cf monitor answers.parquet -c time=ts -g sex --reference 2026-01-01/2026-02-01
    """
    groups, columns = options.pop("groups") or None, _pairs(options.pop("columns"))
    with _friendly_errors(code=2):
        asked = source[0] if len(source) == 1 else list(source)
        found = monitor(asked, groups=groups, columns=columns, **options)
        if output_path is not None:
            found.to_html(output_path)
    told = f"{found}\nrun {found.run_id}" if found.run_id else str(found)
    click.echo(json.dumps(found.to_dict(), allow_nan=False, indent=1) if as_json else told)
    sys.exit(1 if found.drifted else 0 if found.tested else 3)


def _pairs(written: tuple[str, ...]) -> dict[str, str] | None:
    """Return the names of columns that were written as ``ours=theirs``."""
    for one in written:
        if "=" not in one:
            raise click.BadParameter(f"{one!r} is no pair such as time=ts", param_hint="--column")
    return dict(one.split("=", 1) for one in written) or None


@main.command()
@_model
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
def describe(model_uri: str, *, as_json: bool) -> None:
    """Print what an explained model consists of, and whether it could be opened."""
    with _friendly_errors():
        facts = load_model(model_uri).describe()
    click.echo(json.dumps(facts, allow_nan=False, indent=1) if as_json else description(facts))


@main.command()
@_model
def verify(model_uri: str) -> None:
    """Check every file of an explained model; the model inside is neither opened nor run."""
    with _friendly_errors():
        checked = verify_folder(fetch(model_uri))
    written = ", ".join(f"{name} {version}" for name, version in checked.versions.items())
    click.echo(f"files     {checked.files}, {checked.bytes:,} bytes, {checked.rows:,} background rows")
    click.echo(f"written   by {written}; schema version {checked.schema_version}")
    click.echo(f"manifest  sha256 {checked.sha256}")
    click.echo("OK")


@main.command()
@click.argument("record", type=click.Path(path_type=Path))
@_model
@click.option("--time-limit", default=30.0, show_default=True, help="Seconds for the search that proves again.")
@click.option("--json", "as_json", is_flag=True, help="Print the checks as JSON.")
def check(record: Path, model_uri: str, time_limit: float, *, as_json: bool) -> None:
    """Check a record against a model: exit with 1 if something no longer holds, with 3 if a proof is not made again."""
    with _friendly_errors():
        found = load_model(model_uri).check(record, time_limit_s=time_limit)
    told = {"ok": found.ok, "checks": [one.to_dict() for one in found]}
    click.echo(json.dumps(told, allow_nan=False, indent=1) if as_json else str(found))
    sys.exit(1 if found.broken else 3 if found.unproved else 0)


@main.command()
@click.option("--record", is_flag=True, help="Print that of records instead.")
def schema(*, record: bool) -> None:
    """Print the JSON schema of the request param `counterfactual`, or of records."""
    if record:
        click.echo(json.dumps(Record.model_json_schema(), indent=1))
        return
    published = Query.model_json_schema()
    published["$defs"]["NamedExplainer"]["allOf"] = options_schema()
    published["description"] = f"{published['description']}\n\n{WHERE}"
    published["examples"] = [ASKED]
    click.echo(json.dumps(published, indent=1))


@main.command()
@click.argument("trace_id")
@click.option("-m", "--model-uri", help="Another model to compute it with than the one that the trace names.")
@click.option(
    "-r",
    "--rows",
    type=click.Path(path_type=Path),
    help="The row, perhaps among others, where the trace holds its digest alone: .csv, .json or .parquet.",
)
@click.option("--json", "as_json", is_flag=True, help="Print verdict, differences and notes as JSON.")
def replay(trace_id: str, model_uri: str | None, rows: Path | None, *, as_json: bool) -> None:
    """Compute the explanation of a trace again; exit with 1 if it differs from what was answered."""
    with _friendly_errors():
        table = None if rows is None else _read_rows(rows, "--rows")
        found = replay_trace(trace_id, model_uri=model_uri, rows=table)
    lines = [*found.notes, *map(str, found.differences), found.verdict]
    click.echo(json.dumps(found.to_dict(), allow_nan=False, indent=1) if as_json else "\n".join(lines))
    sys.exit(int(found.verdict == "different"))


@main.command()
@click.option(
    "-i", "--input-path", required=True, type=click.Path(path_type=Path), help="Training rows: .csv, .json or .parquet."
)
@click.option("-o", "--output-path", type=click.Path(path_type=Path), help="Write .yaml here; else it is printed.")
@click.option("--labels", help="Column with the training target: for notes about what gives it away.")
@click.option("--seed", default=0, show_default=True, help="Draws the rows of a large table.")
def suggest(input_path: Path, output_path: Path | None, labels: str | None, seed: int) -> None:
    """Suggest constraints that training rows show, to be reviewed.

    Example: mlflow-cf suggest -i train.csv -o constraints.yaml --labels approved
    """
    with _friendly_errors():
        if output_path is not None and output_path.suffix not in (".yaml", ".yml"):
            raise click.BadParameter(f"{output_path.name} is none of .yaml, .yml", param_hint="--output-path")
        rows = _read_rows(input_path)
        if labels is not None and labels not in rows:
            raise click.BadParameter(did_you_mean(labels, rows.columns, "columns"), param_hint="--labels")
        target = None if labels is None else rows.pop(labels)
        found = suggest_constraints(rows, target, seed=seed)
    if output_path is None:
        click.echo(found.to_yaml(), nl=False)
        return
    output_path.write_text(found.to_yaml(), encoding="utf-8")
    click.echo(found.summary)


@main.command()
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path), help="Folder to keep them in.")
def warm(cache: Path | None) -> None:
    """Compile all kernels ahead, so that no server has to; for the build of an image."""
    if cache is not None:
        # in another process: numba takes its folder from the environment, when it is imported
        again = [sys.executable, "-c", "from mlflow_cf.cli import main; main(['warm'])"]
        cache = cache.resolve()
        done = subprocess.run(again, env={**os.environ, "NUMBA_CACHE_DIR": str(cache)}, check=False)  # noqa: S603  our own
        if done.returncode:
            sys.exit(done.returncode)
        click.echo(f"a server finds them with NUMBA_CACHE_DIR={cache} in its environment")
        return
    if kept_in() is None:
        raise click.ClickException("nothing can be kept: no folder can be written to; name one with --cache")
    for name, seconds in warm_all():
        click.echo(f"{name}: {seconds:.1f} s")
    click.echo(f"kept in {kept_in()} and beside it")


main.add_command(ui)


def _proof(found: dict[str, Any]) -> str:
    """Return what is proved of a counterfactual of a reply."""
    match found["proof"]:
        case "optimal":
            return " (proved: nothing is nearer)"
        case "bounded":
            return f" (at distance {found['distance']:.4g}; proved: nothing is nearer than {found['bound']:.4g})"
    return ""


@contextmanager
def _friendly_errors(code: int = 1) -> Iterator[None]:
    """Print our errors as one message and exit with this code; a stack trace helps nobody at a terminal."""
    try:
        yield
    except (CounterfactualError, ModelValidationFailedException) as error:
        click.ClickException(error.message).show()
        sys.exit(code)


def _read_rows(path: Path, hint: str = "--input-path") -> pd.DataFrame:
    if not path.is_file():
        raise click.BadParameter(f"there is no file {str(path)!r}", param_hint=hint)
    if path.suffix not in READERS:
        raise click.BadParameter(f"{path.name} is none of {', '.join(READERS)}", param_hint=hint)
    return READERS[path.suffix](path)


def _read_query(text: str) -> dict[str, Any]:
    try:
        query = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--query") from None
    if not isinstance(query, dict):
        raise click.BadParameter("not a JSON object", param_hint="--query")
    return query
