"""Errors a user can act on: where it is wrong, what is wrong, the nearest fix."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from traceback import extract_tb
from typing import Any, ClassVar, Final

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE, INVALID_STATE

MOST_TOLD: Final = 24  # errors at once
MESSAGE: Final = 2_000  # characters of a message
PATH, FACT, FIX = 400, 1_000, 560  # of its parts
MOST_COMPARED: Final = 200  # names among which the nearest is looked for: each pair takes some ten microseconds
LONGEST_COMPARED: Final = 64  # characters of each


class CounterfactualError(MlflowException):
    """Base of every error of this package; MLflow's server turns it into a reply without a stack trace.

    Attributes:
        CODE: MLflow's code of such errors.
    """

    CODE: ClassVar[int]

    def __init__(self, path: str, fact: str, fix: str = "") -> None:
        self.path, self.fact, self.fix = path, fact, fix
        path, fact, fix = _cut(path, PATH), _cut(fact, FACT), _cut(fix, FIX)
        super().__init__(f"{path}: {fact}; {fix}" if fix else f"{path}: {fact}", error_code=self.CODE)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.path, self.fact, self.fix)


class InputError(CounterfactualError, ValueError):
    """Something the caller passed cannot be used.

    The message reads ``path: fact; fix``, for example
    ``constraints.ranges.agee: not a feature; did you mean 'age'?``. Over HTTP it is a 400.
    """

    CODE = INVALID_PARAMETER_VALUE


class InputErrors(InputError):
    """Several input errors at once, one per line, so that a caller can mend them in one go.

    No more than 24 are kept, and no more are made of `errors` than that; the message has as many as fit in 2,000
    characters, and how many more there are.

    Attributes:
        errors: the first ones.
        unlisted: whether there are more than these.
    """

    def __init__(self, errors: Iterable[InputError], unlisted: bool = False) -> None:  # noqa: FBT001, FBT002  unpickled by position
        found = list(islice(errors, MOST_TOLD + 1))
        self.errors, self.unlisted = tuple(found[:MOST_TOLD]), unlisted or len(found) > MOST_TOLD
        first = self.errors[0]
        super().__init__(first.path, first.fact, first.fix)
        self.message = _lines([error.message for error in self.errors], self.unlisted)
        self.args = (self.message,)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), (self.errors, self.unlisted)


def joined(errors: Iterable[InputError]) -> InputError:
    """Return one error or more as one; an iterator is not followed further than needed."""
    several = InputErrors(errors)
    return several if len(several.errors) > 1 else several.errors[0]


def raise_all(errors: Iterable[InputError]) -> None:
    """Raise what is wrong as one error; nothing where nothing is."""
    left = iter(errors)
    for first in left:
        raise joined(chain([first], left))


class ArtifactError(CounterfactualError):
    """A saved explainer is incomplete, altered or from an unknown version."""

    CODE = INVALID_STATE


def did_you_mean(word: object, known: Iterable[object], noun: str = "known") -> str:
    """Return the nearest of `known` as a question, or the list of them when nothing is near.

    What differs in its type alone is told with both types: ``it is the number 1, not the text '1'``.
    """
    known, text = list(islice(known, MOST_COMPARED + 1)), str(word)
    for other in known:
        if str(other) == text and type(other) is not type(word):
            return f"it is the {_type(other)} {other!r}, not the {_type(word)} {word!r}"
    names = {str(name)[:LONGEST_COMPARED]: name for name in known[:MOST_COMPARED]}
    near = get_close_matches(text[:LONGEST_COMPARED], names, n=1, cutoff=0.6)
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


def _cut(text: str, most: int) -> str:
    text = text[: most + 1].encode("utf-8", "backslashreplace").decode()  # half a surrogate pair could not be sent
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _lines(messages: list[str], unlisted: bool) -> str:  # noqa: FBT001  of one caller
    """Return whole messages as lines as far as they fit, and how many do not."""
    room = MESSAGE - len("and over 24 more")
    kept = 1
    while kept < len(messages) and sum(map(len, messages[: kept + 1])) + kept < room:
        kept += 1
    left = len(messages) - kept
    more = f"and over {left} more" if unlisted and left else "and more" if unlisted else f"and {left} more"
    return "\n".join([*messages[:kept], *([more] if left or unlisted else [])])
