"""Commands for the machine that others run on: kernels compiled ahead, shells that complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from mlflow_cf.cli.shared import Exit, command, leave

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "mlflow-cf"


@command(
    examples=(
        "mlflow-cf warm",
        "mlflow-cf warm --cache /opt/kernels",
    )
)
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
    from mlflow_cf.artifact.warm import kept_in, warm_all  # noqa: PLC0415  imports numba, see above

    if kept_in() is None:
        click.ClickException("nothing can be kept: no folder can be written to; name one with --cache").show()
        leave(Exit.WRONG)
    for name, seconds in warm_all():
        click.echo(f"{name}: {seconds:.1f} s")
    click.echo(f"kept in {kept_in()} and beside it")


@command(
    examples=(
        'eval "$(mlflow-cf completion bash)"',
        "mlflow-cf completion fish > ~/.config/fish/completions/mlflow-cf.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes a shell complete commands, options, models of the registry and explainers."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"{shell} is not known")
    variable = f"_{PROGRAM}_COMPLETE".replace("-", "_").upper()
    click.echo(kind(context.find_root().command, {}, PROGRAM, variable).source())
