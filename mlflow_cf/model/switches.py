"""MLflow's switches for code that comes with a model, by the names of all its versions; the strictest counts."""

from __future__ import annotations

import os
from typing import Final

from mlflow import environment_variables

from mlflow_cf.errors import ArtifactError

CODE: Final = "MLFLOW_ALLOW_MODEL_CODE_EXECUTION"  # since 3.18: anything that runs a model's own code
PICKLES: Final = (CODE, "MLFLOW_ALLOW_PICKLE_DESERIALIZATION")  # the second is deprecated since, and will be removed
_ALLOWS: Final = frozenset({"true", "1"})


def check(path: str, fact: str, *names: str) -> None:
    """Refuse the part `path` of an artifact, which runs code, where one of the switches called `names` is off.

    Raises:
        ArtifactError: `path` and `fact`, the switch, and how to allow it.
    """
    off = next((name for name in names if not _allows(name)), None)
    if off is not None:
        fix = "set it to true if you trust whoever could write this artifact"
        raise ArtifactError(path, f"{fact}, and {off} is not true", fix)


def _allows(name: str) -> bool:
    """Return what the environment says, also where this MLflow knows no such switch; else what MLflow takes for it."""
    if name in os.environ:
        return os.environ[name].lower() in _ALLOWS
    known = getattr(environment_variables, name, None)
    return known is None or bool(known.get())
