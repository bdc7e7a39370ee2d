"""What commands share: exit codes, options, the choice between words and JSON, and errors told in a line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    import pandas as pd


class Exit(IntEnum):
    """Exit codes of all commands."""

    DONE = 0
    FAILS = 1
    WRONG = 2
    UNDECIDED = 3
    INTERRUPTED = 130


HTML: Final = (".html", ".htm")
EXITS: Final = {
    Exit.DONE: "done; what was checked holds",
    Exit.FAILS: "what was checked fails: a threshold, a gate, drift, a record, an artifact, an answer that differs",
    Exit.WRONG: "a mistake in what was asked, or something that cannot be read",
    Exit.UNDECIDED: "nothing could be decided: a proof that is not made again, no window to test, no verdict",
    Exit.INTERRUPTED: "interrupted; finished parts of .parquet tables are kept, and what was measured is logged",
}
BARS: Final = "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"
MOST_NAMED: Final = 50  # registered models that a shell offers
QUICK: Final = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "2", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}  # of a key press


class Command(click.Command):
    """A command whose help ends with examples.

    Attributes:
        examples: lines as they are typed.
    """

    def __init__(self, name: str | None, *, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(name, **options)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  click's
        """Write the examples, each on a line of its own."""
        with formatter.section("Examples" if len(self.examples) > 1 else "Example"):
            for line in self.examples:
                formatter.write(f"{' ' * formatter.current_indent}{line}\n")


def command(name: str | None = None, *, examples: Sequence[str]) -> Callable[[Callable[..., Any]], click.Command]:
    """Return what makes a function a command whose help ends with examples."""
    return click.command(name, cls=Command, examples=examples)


def quiet_downloads(context: click.Context) -> None:
    """Let MLflow draw no bars of downloads between the answers, unless its user has asked for them."""
    if BARS not in os.environ:
        os.environ[BARS] = "false"
        context.call_on_close(lambda: os.environ.pop(BARS, None))


def complete_models(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return URIs of registered models and their aliases that begin so; none if the registry does not answer soon."""
    del context, param
    quick = {name: value for name, value in QUICK.items() if name not in os.environ}
    os.environ.update(quick)
    try:
        from mlflow import MlflowClient  # noqa: PLC0415  seconds that only this needs

        found = MlflowClient().search_registered_models(max_results=MOST_NAMED)
    except Exception:  # noqa: BLE001  a shell that completes nothing is better than one that prints an error
        return []
    finally:
        for name in quick:
            os.environ.pop(name, None)
    names = [f"models:/{model.name}{end}" for model in found for end in ("/", *(f"@{one}" for one in model.aliases))]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_explainers(context: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of explainers that begin so."""
    del context, param
    from mlflow_cf.explainers import EXPLAINERS  # noqa: PLC0415  a second that only this needs

    return [CompletionItem(name) for name in EXPLAINERS if name.startswith(incomplete)]


model_option = click.option(
    "-m",
    "--model-uri",
    required=True,
    shell_complete=complete_models,
    help="URI or folder, e.g. models:/credit@champion.",
)
json_option = click.option(
    "--json/--text", "as_json", default=None, help="JSON, or words for people; words are for terminals without either."
)
explainers_option = click.option(
    "-e",
    "--explainer",
    "explainers",
    multiple=True,
    shell_complete=complete_explainers,
    help="An explainer to compare; again for each.",
)
groups_option = click.option(
    "-g", "--group", "groups", multiple=True, help="A column by which figures are split; again for each."
)
count_option = click.option("--count", default=1, show_default=True, help="Counterfactuals per row.")
seed_option = click.option("--seed", type=int, help="Another seed than the model's own.")
certify_option = click.option("--certify", is_flag=True, help="Prove that nothing is nearer.")


def rows_option(*names: str, told: str = "Rows: .csv, .json or .parquet.") -> Callable[[Any], Any]:
    """Return the option for a file of rows."""
    return click.option(*names, required=True, type=click.Path(path_type=Path), help=told)


def wants_json(as_json: bool | None) -> bool:  # noqa: FBT001  the value of a flag
    """Return whether to print JSON: what was asked for, else whether nobody reads it on a terminal."""
    return not sys.stdout.isatty() if as_json is None else as_json


def print_json(found: object) -> None:
    """Print strict JSON."""
    click.echo(json.dumps(found, allow_nan=False, indent=1, ensure_ascii=False))


def leave(code: Exit) -> NoReturn:
    """End the command with an exit code."""
    sys.exit(int(code))


@contextmanager
def friendly_errors(artifact: Exit = Exit.WRONG) -> Iterator[None]:
    """Print our errors as one message and exit with 2; a stack trace helps nobody at a terminal.

    A threshold that is missed exits with 1, and an `artifact` that is none or was altered as the command says.
    """
    from mlflow.models.evaluation.validation import ModelValidationFailedException  # noqa: PLC0415  seconds

    from mlflow_cf.errors import ArtifactError, CounterfactualError  # noqa: PLC0415  the same

    try:
        yield
    except ModelValidationFailedException as error:
        click.ClickException(error.message).show()
        leave(Exit.FAILS)
    except CounterfactualError as error:
        click.ClickException(error.message).show()
        leave(artifact if isinstance(error, ArtifactError) else Exit.WRONG)


def check_ending(path: Path, endings: Sequence[str]) -> None:
    """Refuse an output whose name ends in another way."""
    if path.suffix not in endings:
        raise click.BadParameter(f"{path.name} is none of {', '.join(endings)}", param_hint="--output-path")


def read_rows(path: Path, hint: str = "--input-path", models: Iterable[str] = ()) -> pd.DataFrame:
    """Return the rows of a file; what one of these models takes as text stays as it is written.

    Raises:
        BadParameter: there is none; `hint` names the option.
        InputError: it is of another kind, or cannot be read.
    """
    from mlflow_cf.files.tables import read_table, text_columns  # noqa: PLC0415  seconds

    if not path.is_file():
        raise click.BadParameter(f"there is no file {str(path)!r}", param_hint=hint)
    return read_table(path, hint, frozenset().union(*map(text_columns, models)))
