"""Python functions as parts of actions and relationships, over coded states.

A function is called for one state after the other, with dicts of plain values. Where it raises, or returns a value of
the wrong kind, its value is unknown (NaN), and the step impossible (a factor counts as 1). The first failure of every
bound function is logged with its name and the type of the error, but no value of any row. `counted` counts all of them.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from mlflow_cf.constraints.actions import PythonFunction
from mlflow_cf.constraints.expressions import Computed, Side
from mlflow_cf.errors import InputError
from mlflow_cf.features import Feature, FeatureSpace, Floats
from mlflow_cf.features.codec import plain
from mlflow_cf.validation import LARGEST

DAYS: Final = (-719_000.0, 2_932_000.0)  # within the years 1 and 9999: others cannot be written as ISO dates
FAILED: Final = "failed_functions"  # the key in diagnostics of the failures that `counted` counts
STATES: Final = {("x",): "(state)", ("x", "x_cf"): "(before, after)"}
_logger = logging.getLogger(__name__)
_failures: ContextVar[Counter[str] | None] = ContextVar("failures", default=None)


class Place(NamedTuple):
    """The place of a text or function within the constraints.

    Attributes:
        path: of the key that has it; called: its name in messages.
    """

    path: str
    called: str


class FunctionResult(NamedTuple):
    """The kind of values that a function must return.

    Attributes:
        noun: its name in messages; code: an answer -> its code, or None if it is of another kind.
    """

    noun: str
    code: Callable[[Any], float | None]

    @classmethod
    def number(cls, least: float = -LARGEST) -> FunctionResult:
        """Return the kind of numbers that are `least` or more."""

        def code(answer: Any) -> float | None:
            answer = plain(answer)
            number = isinstance(answer, int | float) and not isinstance(answer, bool) and least <= answer <= LARGEST
            return float(answer) if number else None

        return cls("number" if least < 0 else f"number of {least:g} or more", code)

    @classmethod
    def truth(cls) -> FunctionResult:
        """Return the kind of truth values; true is 1, false is 0."""
        return cls("truth value", lambda answer: float(answer) if isinstance(answer := plain(answer), bool) else None)

    @classmethod
    def of(cls, feature: Feature) -> FunctionResult:
        """Return the kind of values that a feature has."""

        def code(answer: Any) -> float | None:
            code = feature.code(answer if isinstance(answer, np.datetime64) else plain(answer))
            return None if code is None or np.isnan(code) else code

        return cls(f"value of {feature.name}", code)


@dataclass(frozen=True, eq=False)
class BoundFunction:
    """A Python function bound to features: it takes coded states and returns codes.

    Attributes:
        function: the user's; sides: the states that it takes.
        space: the features.
        wanted: the kind of values it must return; called: its name in messages.
    """

    function: PythonFunction
    sides: Sequence[Side]
    space: FeatureSpace
    wanted: FunctionResult
    called: str
    _logged: list[str] = field(default_factory=list)

    @property
    def columns(self) -> tuple[int, ...]:
        """All columns, since it may read any of them."""
        return tuple(range(len(self.space)))

    def values(self, Z: Floats, x0: Floats) -> Floats:
        """Return its values (m,) for states Z (m, d) after a step from x0 (d,), or from a state each (m, d)."""
        given = [Z if side == "x_cf" else np.broadcast_to(x0, Z.shape) for side in self.sides]
        values = np.full(len(Z), np.nan)
        least, most = np.array([_code_range(feature) for feature in self.space.features]).T
        valid = [
            np.all(np.isnan(s) | ((s >= least) & (s <= most)), axis=1) for s in given
        ]  # it is not called for others
        sound = np.flatnonzero(np.logical_and.reduce(valid))
        shown = zip(*(_as_dicts(self.space, states[sound]) for states in given), strict=True)
        values[sound] = [self._value(states) for states in shown]
        return values

    def _value(self, states: Sequence[Mapping[str, Any]]) -> float:
        try:
            code = self.wanted.code(self.function(*states))
        except Exception as error:  # noqa: BLE001  it is the user's
            return self._failed(f"raised {type(error).__name__}")
        return self._failed(f"returned no {self.wanted.noun}") if code is None else code

    def _failed(self, how: str) -> float:
        failure = f"{self.called} {how}"
        if (counter := _failures.get()) is not None:
            counter[failure] += 1
        if not self._logged:
            self._logged.append(how)
            _logger.warning("%s", failure)
        return np.nan


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count failures in a `with` block, in this thread: ``the effort of action 'a' raised KeyError`` -> number."""
    counter: Counter[str] = Counter()
    token = _failures.set(counter)
    try:
        yield counter
    finally:
        _failures.reset(token)


def with_failures(diagnostics: Mapping[str, Any], failures: Counter[str]) -> dict[str, Any]:
    """Return diagnostics with the counted failures added."""
    counts = failures + Counter(diagnostics.get(FAILED, {}))
    return {**diagnostics, FAILED: dict(counts)} if counts else {**diagnostics}


def computed(
    function: PythonFunction, sides: tuple[Side, ...], space: FeatureSpace, wanted: FunctionResult, place: Place
) -> Computed:
    """Return the expression that calls a function.

    Raises:
        InputError: it cannot be called with these states.
    """
    try:
        inspect.signature(function).bind(*sides)
    except TypeError:
        fix = f"define it with {STATES[sides]}: dicts by feature"
        raise InputError(place.path, f"cannot be called with {STATES[sides]}", fix) from None
    except ValueError:  # of C, without a signature
        pass
    return Computed(BoundFunction(function, sides, space, wanted, place.called))


def _code_range(feature: Feature) -> tuple[float, float]:
    """Return the least and the largest valid code of a feature."""
    if not feature.numeric:
        return 0.0, len(feature.known) - 1.0
    return DAYS if feature.kind == "date" else (-LARGEST, LARGEST)


def _as_dicts(space: FeatureSpace, states: Floats) -> Iterator[dict[str, Any]]:
    """Yield each of states (m, d) as a dict of plain values; the distinct values of a column are decoded once."""
    columns = []
    for feature, codes in zip(space.features, states.T, strict=True):
        known, places = np.unique(codes, return_inverse=True)
        values = [feature.value(code) for code in known.tolist()]
        columns.append([values[place] for place in places.tolist()])
    return (dict(zip(space.names, row, strict=True)) for row in zip(*columns, strict=True))
