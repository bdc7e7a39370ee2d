"""The command ``mlflow-cf``. Commands are imported when they are called: help and completion need none of the rest."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from mlflow_cf.cli.shared import EXITS, Exit, leave, quiet_downloads
from mlflow_cf.version import VERSION


class Lazy(NamedTuple):
    """A command that is not imported yet.

    Attributes:
        place: its module, and its name in there.
        told: what it does, in a line.
    """

    place: str
    told: str


COMMANDS: Final = {
    "explain": Lazy("mlflow_cf.cli.explaining:explain", "Explain the rows of a file."),
    "evaluate": Lazy("mlflow_cf.cli.measuring:evaluate_rows", "Measure the answers to the rows of a file."),
    "report": Lazy("mlflow_cf.cli.measuring:report_rows", "Write what came of the rows of a file as an HTML page."),
    "compare": Lazy("mlflow_cf.cli.measuring:compare_versions", "Compare versions of a registered model."),
    "gate": Lazy("mlflow_cf.cli.versions:gate_version", "Let a version go live if it reaches its thresholds."),
    "monitor": Lazy("mlflow_cf.cli.versions:monitor_served", "Follow served answers from window to window."),
    "describe": Lazy("mlflow_cf.cli.checking:describe", "Tell what an explained model consists of."),
    "verify": Lazy("mlflow_cf.cli.checking:verify", "Check every file of an explained model."),
    "check": Lazy("mlflow_cf.cli.checking:check", "Check a record of an answer against a model."),
    "replay": Lazy("mlflow_cf.cli.checking:replay", "Compute a traced answer again."),
    "schema": Lazy("mlflow_cf.cli.checking:schema", "Print the JSON schema of a request's options."),
    "ui": Lazy("mlflow_cf.cli.page:ui", "Try rows and wishes on a local page."),
    "suggest": Lazy("mlflow_cf.cli.explaining:suggest", "Suggest constraints that training rows show."),
    "warm": Lazy("mlflow_cf.cli.machine:warm", "Compile all kernels ahead."),
    "completion": Lazy("mlflow_cf.cli.machine:completion", "Print what makes a shell complete commands."),
}


class Commands(click.Group):
    """All commands, in the order in which they are needed."""

    def invoke(self, ctx: click.Context) -> Any:
        """Import and run a command; an interruption of either has an exit code of its own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            click.echo(str(error) or "interrupted", err=True)
            leave(Exit.INTERRUPTED)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        """Return their names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  the same
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].place.partition(":")
        found: click.Command = getattr(import_module(module), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  the same
        """Write what each of them does, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.told) for name, lazy in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  the same
        """Write the exit codes, and a first example."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), told) for code, told in EXITS.items()])
        with formatter.section("Example"):
            formatter.write_text("mlflow-cf explain -m models:/credit@champion -i rows.csv")


@click.group(cls=Commands)
@click.version_option(VERSION, prog_name="mlflow-cf")
@click.pass_context
def main(context: click.Context) -> None:
    """Counterfactual explanations for MLflow models.

    On a terminal commands print what people read; into a pipe or a file they print JSON. --json and --text decide it.
    """
    quiet_downloads(context)
