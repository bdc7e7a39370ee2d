"""Try an artifact in a new process that knows installed packages and the artifact alone, as a server does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from mlflow.models import Model

from mlflow_cf.artifact.load import load_folder
from mlflow_cf.artifact.publish.signature import PARAM
from mlflow_cf.errors import InputError
from mlflow_cf.model.own_code import listed, own_modules

TRY_IT: Final = "from mlflow_cf.artifact.clean import answer; answer()"
ANSWER: Final = "answer.json"
PACKAGES: Final = ("mlflow_cf", "mlflow_cf_flavors")
MOST_SHOWN: Final = 400  # characters of an error


def prove_elsewhere(folder: Path, expected: Sequence[Any], scratch: Path) -> None:
    """Let a new process in the folder `scratch` answer the input example of the artifact in `folder` as `expected`.

    Raises:
        InputError: it lacks a module, fails, or predicts otherwise.
    """
    roots = {str(Path(spec.origin).parents[1]) for name in PACKAGES if (spec := find_spec(name)) and spec.origin}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sorted(roots))}
    # -P: where it runs is no place to import from
    done = subprocess.run(  # noqa: S603  our own
        [sys.executable, "-P", "-c", TRY_IT, str(folder)],
        cwd=scratch,
        env=environment,
        capture_output=True,
        check=False,
    )
    file = scratch / ANSWER
    said = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"failed": f"exit {done.returncode}"}
    if "missing" in said:
        raise _missing(str(said["missing"]))
    if "failed" in said:
        fact = f"cannot be loaded in a clean process ({said['failed']})"
        raise InputError("model", fact, "see what it finds here and not there: modules, files, environment variables")
    if said["predictions"] != json.loads(json.dumps(list(expected))):
        fix = "let it depend on nothing but its files"
        raise InputError("model", "predicts the input example otherwise in a clean process", fix)


def answer() -> None:
    """Be that process: write what the artifact predicts for its input example, or what went wrong, into a file."""
    folder = Path(sys.argv[1])
    try:
        meta: Any = Model.load(str(folder))
        rows = meta.load_input_example(str(folder))
        predicted = load_folder(folder).predict(rows, {PARAM: {"explain": "none"}})
        said: dict[str, Any] = {"predictions": list(predicted["prediction"])}
    except Exception as error:  # noqa: BLE001  whatever it is, it is told
        missing = next((each.name for each in _chain(error) if isinstance(each, ModuleNotFoundError)), None)
        failed = f"{type(error).__name__}: {error}"[:MOST_SHOWN]
        said = {"missing": missing} if missing else {"failed": failed}
    Path(ANSWER).write_text(json.dumps(said), encoding="utf-8")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _missing(module: str) -> InputError:
    own = own_modules([module])
    fact = f"the model needs the module {module!r}, which a clean process cannot import"
    elsewhere = "or validate='here' if servers have it all the same"
    if own:
        fix = f"pass {listed(own.values())}, so that the artifact brings it along, {elsewhere}"
        return InputError("code_paths", fact, fix)
    fix = f"name the package that has it, or pass its code as code_paths=[..], {elsewhere}"
    return InputError("pip_requirements", fact, fix)
