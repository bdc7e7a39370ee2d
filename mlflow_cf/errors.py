"""Errors a user can act on: where it is wrong, what is wrong, the nearest fix."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from traceback import extract_tb
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, INVALID_STATE


class CounterfactualError(MlflowException):
    """Base of every error of this package; MLflow's server turns it into a reply without a stack trace."""


class InputError(CounterfactualError, ValueError):
    """Something the caller passed cannot be used.

    The message reads ``path: fact; fix``, for example
    ``constraints.ranges.agee: not a feature; did you mean 'age'?``. Over HTTP it is a 400.
    """

    def __init__(self, path: str, fact: str, fix: str = "") -> None:
        self.path, self.fact, self.fix = path, fact, fix
        super().__init__(_sentence(path, fact, fix), error_code=INVALID_PARAMETER_VALUE)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.path, self.fact, self.fix)


class InputErrors(InputError):
    """Several input errors at once, one per line, so that a caller can mend them in one go."""

    def __init__(self, errors: Iterable[InputError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__(first.path, first.fact, first.fix)
        self.message = "\n".join(error.message for error in self.errors)
        self.args = (self.message,)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.errors,)


class ArtifactError(CounterfactualError):
    """A saved explainer is incomplete, altered or from an unknown version."""

    def __init__(self, path: str, fact: str, fix: str = "") -> None:
        self.path, self.fact, self.fix = path, fact, fix
        super().__init__(_sentence(path, fact, fix), error_code=INVALID_STATE)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.path, self.fact, self.fix)


def did_you_mean(word: object, known: Iterable[object], noun: str = "known") -> str:
    """Return the nearest of `known` as a question, or the list of them when nothing is near.

    What differs in its type alone is told with both types: ``it is the number 1, not the text '1'``.
    """
    known = list(known)
    for other in known:
        if str(other) == str(word) and type(other) is not type(word):
            return f"it is the {_type(other)} {other!r}, not the {_type(word)} {word!r}"
    names = {str(name): name for name in known}
    near = get_close_matches(str(word), names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {names[near[0]]!r}?"
    shown = ", ".join(repr(name) for name in known[:12]) + (", ..." if len(known) > 12 else "")
    return f"{noun}: {shown}" if known else ""


def frames(error: BaseException) -> str:
    """Return where an error was raised, innermost last, without its message: that may quote values."""
    return " > ".join(f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in extract_tb(error.__traceback__))


def _type(value: object) -> str:
    if isinstance(value, bool):
        return "truth value"
    return "text" if isinstance(value, str) else "number"


def _sentence(path: str, fact: str, fix: str) -> str:
    text = f"{path}: {fact}; {fix}" if fix else f"{path}: {fact}"
    return text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair could not be sent as a reply
