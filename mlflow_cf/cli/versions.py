"""Commands about models that live: gates for new versions, and what was served from window to window."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from mlflow_cf.cli.shared import (
    HTML,
    Exit,
    check_ending,
    command,
    friendly_errors,
    groups_option,
    json_option,
    leave,
    print_json,
    wants_json,
)
from mlflow_cf.errors import CounterfactualError
from mlflow_cf.gating.gate import gate
from mlflow_cf.gating.rules import GateRules, read_rules, rules_for
from mlflow_cf.monitoring.monitor import monitor


@command(
    "gate",
    examples=(
        "mlflow-cf gate credit 7 --rules gate.yaml",
        "mlflow-cf gate --listen --rules gate.yaml",
    ),
)
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
@json_option
def gate_version(
    name: str | None, version: str | None, rules_path: Path, *, again: bool, as_json: bool | None, **where: Any
) -> None:
    """Move the alias to a version of a registered model if it reaches every threshold beside the champion.

    Exits with 1 if it was refused, and with 3 if nothing could be decided; the alias has not moved then.
    """
    listen = where.pop("listen")
    if listen == (name is not None) or (name is None) != (version is None):
        raise click.UsageError("name a model and a version, or --listen")
    with friendly_errors():
        rules = read_rules(rules_path)
        if listen:
            _listen(rules, **where)
            return
        wanted = rules_for(str(name), rules)
    try:
        verdict = gate(str(name), str(version), wanted, again=again)
    except CounterfactualError as error:
        click.echo(f"Error: {error.message}", err=True)
        leave(Exit.UNDECIDED)
    if wants_json(as_json):
        print_json(asdict(verdict))
    else:
        click.echo(str(verdict))
    leave(Exit.DONE if verdict.passed else Exit.FAILS)


def _listen(rules: dict[str, GateRules], host: str, port: int, secret_variable: str) -> None:
    """Serve webhooks until the process is stopped."""
    import uvicorn  # noqa: PLC0415  for this command alone

    from mlflow_cf.gating.listener import Gatekeeper, listener  # noqa: PLC0415  the same

    app = listener(Gatekeeper(rules), os.environ.get(secret_variable, ""))
    click.echo(f"gates {', '.join(rules)} at http://{host}:{port}/")
    uvicorn.run(app, host=host, port=port, log_level="warning")


@command(
    "monitor",
    examples=(
        "mlflow-cf monitor credit-audit --newest 1",
        "mlflow-cf monitor answers.parquet -c time=ts -g sex --reference 2026-01-01/2026-02-01",
    ),
)
@click.argument("source", nargs=-1, required=True)
@click.option("--reference", help="What windows are compared with: '2026-01-01/2026-02-01', or another source.")
@click.option("--window", default="7d", show_default=True, help="How long windows are: '7d', '12h'.")
@click.option("-m", "--model", help="Id m-... or models:/ URI of one of several models; 'all': all together.")
@groups_option
@click.option("-c", "--column", "columns", multiple=True, help="What a table calls ours: 'time=ts'; again for each.")
@click.option("--block", default="request", show_default=True, help="What stays together in tests: request, hour, day.")
@click.option("--newest", type=int, help="Test so many of the latest whole windows; all without.")
@click.option("--alpha", default=0.05, show_default=True, help="The rate of false alarms.")
@click.option("--until", help="The moment that answers are known to; now, or the last line of a table, without.")
@click.option("--seed", default=0, show_default=True, help="Of the permutations.")
@click.option("-o", "--output-path", type=click.Path(path_type=Path), help="Write the page here, too: an HTML file.")
@click.option("--log/--no-log", "log_run", default=True, show_default=True, help="Log to a run of MLflow.")
@json_option
def monitor_served(source: tuple[str, ...], output_path: Path | None, *, as_json: bool | None, **options: Any) -> None:
    """Follow served explanations from window to window; exit with 1 where they drift, with 3 where none is tested.

    SOURCE is an experiment with traces, or several, by name or id; or an inference table: .parquet files, or folders.
    """
    if output_path is not None:
        check_ending(output_path, HTML)
    groups, columns = options.pop("groups") or None, _pairs(options.pop("columns"))
    with _undecided(), friendly_errors():
        asked = source[0] if len(source) == 1 else list(source)
        found = monitor(asked, groups=groups, columns=columns, **options)
        if output_path is not None:
            found.to_html(output_path)
        if wants_json(as_json):
            print_json(found.to_dict())
        else:
            click.echo(f"{found}\nrun {found.run_id}" if found.run_id else str(found))
    leave(Exit.FAILS if found.drifted else Exit.DONE if found.tested else Exit.UNDECIDED)


@contextmanager
def _undecided() -> Iterator[None]:
    """Exit with 3 where something fails that nobody expects: Python's own exit code 1 would mean drift."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  a raw error of a store or a file, too
        click.ClickException(f"{type(error).__name__}: {error}").show()
        leave(Exit.UNDECIDED)


def _pairs(written: tuple[str, ...]) -> dict[str, str] | None:
    """Return the names of columns that were written as ``ours=theirs``."""
    for one in written:
        if "=" not in one:
            raise click.BadParameter(f"{one!r} is no pair such as time=ts", param_hint="--column")
    return dict(one.split("=", 1) for one in written) or None
