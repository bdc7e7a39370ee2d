"""The command that serves the what-if page."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from mlflow_cf.artifact.publish.log import load_model
from mlflow_cf.cli.shared import Exit, command, complete_models, friendly_errors, leave, read_rows

LOOPBACK: Final = "127.0.0.1"


def named(uris: Sequence[str]) -> list[tuple[str, str]]:
    """Return addresses with names to show: the last part of a folder, where that tells them apart; else the address."""
    names = [uri if ":" in uri else Path(uri).resolve().name for uri in uris]
    return list(zip(names if len(set(names)) == len(uris) else uris, uris, strict=True))


@command(examples=("mlflow-cf ui -m models:/credit/1 -m models:/credit/2 --rows applications.csv",))
@click.option(
    "-m",
    "--model-uri",
    "uris",
    multiple=True,
    required=True,
    shell_complete=complete_models,
    help="URI or folder; again for a second one to compare.",
)
@click.option("--port", default=5006, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--rows", type=click.Path(path_type=Path), help="Rows to choose from: .csv, .json or .parquet.")
@click.option("--open/--no-open", "opens", default=True, help="Show the page in the browser.")
def ui(uris: tuple[str, ...], port: int, rows: Path | None, *, opens: bool) -> None:
    """Try rows and wishes on a page of this computer.

    The page listens on 127.0.0.1 alone. Ctrl-C ends it.
    """
    import uvicorn  # noqa: PLC0415  for this command alone

    from mlflow_cf.ui.app import what_if  # noqa: PLC0415  the same

    if len(uris) > 2:
        raise click.BadParameter("at most two models are compared", param_hint="--model-uri")
    with friendly_errors():
        table = None if rows is None else read_rows(rows, "--rows", uris)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
        except OSError as error:
            click.ClickException(f"port {port} cannot be used ({error.strerror}); --port 0 takes any").show()
            leave(Exit.WRONG)
        click.echo("the model is made ready ...")
        with friendly_errors():
            app = what_if([(name, load_model(uri)) for name, uri in named(uris)], table)
        listening.listen()
        address = f"http://{LOOPBACK}:{listening.getsockname()[1]}/"
        click.echo(f"the page is at {address}; Ctrl-C ends it")
        if opens:
            webbrowser.open(address)
        config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            click.echo("ended")
