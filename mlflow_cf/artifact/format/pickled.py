"""Python functions of a policy in an artifact: one pickle, written only if the owner allows it.

Unpickling runs code, so it is done last: the file's digest has been checked, the policy names every function in it, and
MLflow's own switches allow it. Where an artifact is only read, stand-ins take the place of the functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, NoReturn

from mlflow_cf.artifact.format.manifest import FOLDER
from mlflow_cf.artifact.format.plain import reading
from mlflow_cf.constraints import Constraints
from mlflow_cf.constraints.actions import PythonFunction, fill, functions_in, named_functions
from mlflow_cf.errors import InputError
from mlflow_cf.model import switches

FUNCTIONS: Final = f"{FOLDER}/functions.pkl"
MOST_BYTES: Final = 64 * 1024**2


@dataclass(frozen=True)
class StandIn:
    """A function that stayed in its file."""

    __qualname__: str

    def __call__(self, *_: object) -> NoReturn:
        """Refuse."""
        raise RuntimeError(f"{self.__qualname__} was not loaded")


def functions_of(constraints: Constraints) -> dict[str, PythonFunction]:
    """Return the functions of constraints by their paths."""
    return functions_in(constraints.actions, constraints.relationships)


def requirements_of(functions: Mapping[str, PythonFunction]) -> list[str]:
    """Return what restores functions; what they import themselves only their author knows."""
    return [f"cloudpickle=={version('cloudpickle')}"] if functions else []


def to_bytes(functions: Mapping[str, PythonFunction]) -> bytes:
    """Return functions by their paths as one pickle.

    Raises:
        InputError: one that cannot be pickled, or all of them are too large.
    """
    import cloudpickle  # noqa: PLC0415  by those alone who store functions

    for path, function in functions.items():
        try:
            cloudpickle.dumps(function)
        except Exception as error:
            fact = f"this function cannot be pickled ({type(error).__name__}: {error})"
            raise InputError(f"constraints.{path}", fact, "open files, locks and connections inside of it") from error
    raw: bytes = cloudpickle.dumps(dict(functions))
    if len(raw) > MOST_BYTES:
        fact = f"functions that refer to {len(raw):,} bytes, at most {MOST_BYTES:,} can be stored"
        raise InputError("constraints", fact, "let them refer to less")
    return raw


def without_functions(policy: Any) -> Any:
    """Return a policy as plain values, with a stand-in for every function that it names."""
    constraints = policy.get("constraints") or {}
    fill(constraints, {path: StandIn(name) for path, name in named_functions(constraints).items()})
    return policy


def with_functions(constraints: Constraints, raw: bytes) -> Constraints:
    """Return constraints with the functions of a pickle in place of their stand-ins. This runs what is in it.

    Raises:
        ArtifactError: MLflow forbids pickles, or these are not the functions that the constraints name.
    """
    switches.check(FUNCTIONS, "is a pickle with the policy's Python functions", *switches.PICKLES)
    import cloudpickle  # noqa: PLC0415  by those alone who store functions

    with reading(FUNCTIONS):
        functions = cloudpickle.loads(raw)
        if not isinstance(functions, dict) or not all(map(callable, functions.values())):
            raise TypeError
        plain = constraints.to_dict()
        fill(plain, functions)
        return Constraints.read(plain)
