"""Commands that measure answers: of one model, as a page, and of several versions beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mlflow_cf.cli.shared import (
    HTML,
    certify_option,
    check_ending,
    command,
    count_option,
    explainers_option,
    friendly_errors,
    groups_option,
    json_option,
    model_option,
    print_json,
    read_rows,
    rows_option,
    seed_option,
    wants_json,
)
from mlflow_cf.errors import InputError, did_you_mean, raise_all
from mlflow_cf.evaluation.compare.comparison import Comparison, read_thresholds
from mlflow_cf.evaluation.compare.versions import candidates_of, is_name
from mlflow_cf.evaluation.compare.versions_compared import compare
from mlflow_cf.evaluation.measure.evaluate import evaluate
from mlflow_cf.evaluation.measure.headline import unmatched
from mlflow_cf.evaluation.reported import report
from mlflow_cf.files.output import check_is_not


@command(
    "evaluate",
    examples=(
        "mlflow-cf evaluate -m models:/credit/1 -r rows.csv --labels approved -g sex",
        "mlflow-cf evaluate -m models:/credit/1 -r rows.csv -e geco -e nearest_row --json",
    ),
)
@model_option
@rows_option("-r", "--rows")
@click.option("--labels", help="Column of the rows with the true targets.")
@explainers_option
@groups_option
@count_option
@seed_option
@certify_option
@click.option("--risk", is_flag=True, help="Measure what answers give away; the rows must not be training rows.")
@click.option("--metric", "metrics", multiple=True, help="Log this one too, as in 'cf/coverage/sex.*'; again for more.")
@json_option
def evaluate_rows(model_uri: str, rows: Path, *, as_json: bool | None, **options: Any) -> None:
    """Explain the rows of a file, measure the answers, and log everything to a run of MLflow."""
    explainers, groups = (options.pop(name) or None for name in ("explainers", "groups"))
    with friendly_errors():
        found = evaluate(
            model_uri, read_rows(rows, "--rows", [model_uri]), explainers=explainers, groups=groups, **options
        )
    if wants_json(as_json):
        print_json(dict(found.metrics))
    else:
        click.echo(f"{found}\nrun {found.run_id}")
    with friendly_errors():
        raise_all(
            InputError("--metric", f"no metric is called {name!r}", did_you_mean(name, found.metrics, "metrics"))
            for name in unmatched(found.metrics, options["metrics"])
        )


@command("report", examples=("mlflow-cf report -m models:/credit/1 -i rows.csv -o report.html -g sex",))
@model_option
@rows_option("-i", "--input-path")
@click.option("-o", "--output-path", required=True, type=click.Path(path_type=Path), help="The HTML file to write.")
@explainers_option
@groups_option
@count_option
@seed_option
@certify_option
def report_rows(model_uri: str, input_path: Path, output_path: Path, **options: Any) -> None:
    """Explain the rows of a file, and write what came of it as one HTML file."""
    check_ending(output_path, HTML)
    explainers, groups = (options.pop(name) or None for name in ("explainers", "groups"))
    with friendly_errors():
        check_is_not(output_path, input_path, "--output-path")
        table = read_rows(input_path, models=[model_uri])
        written = report(model_uri, table, output_path, explainers=explainers, groups=groups, **options)
    click.echo(f"{written}, {written.stat().st_size:,} bytes")


@command(
    "compare",
    examples=(
        "mlflow-cf compare credit -r rows.csv -g sex",
        "mlflow-cf compare credit -r rows.csv --versions 3,champion -t 'cf/survival>=0.8'",
    ),
)
@click.argument("models", nargs=-1, required=True)
@rows_option("-r", "--rows")
@click.option("--versions", help="Numbers or aliases of a registered model's versions, as in 3,champion; all without.")
@click.option("--labels", help="Column of the rows with the true targets.")
@explainers_option
@groups_option
@count_option
@click.option("-t", "--threshold", multiple=True, help="What the newest version must reach: 'cf/survival>=0.8'.")
@json_option
def compare_versions(
    models: tuple[str, ...], rows: Path, threshold: tuple[str, ...], *, as_json: bool | None, **options: Any
) -> None:
    """Compare the versions of a registered model, or several URIs; exit with 1 where the newest misses a threshold."""
    versions, explainers, groups = (options.pop(name) or None for name in ("versions", "explainers", "groups"))
    named = None if versions is None else versions.split(",")
    with friendly_errors():
        gate, sources = read_thresholds(threshold), models[0] if len(models) == 1 else list(models)
        table = read_rows(rows, "--rows", _uris(sources, named))
        found = compare(sources, table, versions=named, explainers=explainers, groups=groups, **options)
        in_words = not wants_json(as_json)
        click.echo(f"{found}\nrun {found.run_id}") if in_words else print_json(_facts(found))
        found.validate(gate)
    if gate and in_words:
        click.echo(f"{found.newest} passes")


def _uris(sources: str | list[str], versions: Sequence[str] | None) -> Sequence[str]:
    """Return the URIs of what is compared: versions of a registered model, or what is named itself."""
    if isinstance(sources, str) and is_name(sources):
        return [str(one.source) for one in candidates_of(sources, versions)[0]]
    return [sources] if isinstance(sources, str) else sources


def _facts(found: Comparison) -> dict[str, Any]:
    """Return what a pipeline wants of a comparison; all its tables are in the run."""
    metrics = {version: dict(one) for version, one in found.metrics.items()}
    return {"run_id": found.run_id, "newest": found.newest, "metrics": metrics, "failed": dict(found.failed)}
