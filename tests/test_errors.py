"""Errors: their message, their parts, and that they travel between processes."""

import pickle

import pytest

from mlflow_cf.errors import ArtifactError, InputError, InputErrors, did_you_mean


def test_message() -> None:
    error = InputError("constraints.ranges.agee", "not a feature", "did you mean 'age'?")
    assert str(error) == "constraints.ranges.agee: not a feature; did you mean 'age'?"
    assert str(InputError("rows", "there are none")) == "rows: there are none"
    assert (error.path, error.fact, error.fix) == ("constraints.ranges.agee", "not a feature", "did you mean 'age'?")
    assert isinstance(error, ValueError)
    assert error.get_http_status_code() == 400


def test_several_are_one_line_each() -> None:
    errors = InputErrors([InputError("a", "b"), InputError("c", "d", "e")])
    assert str(errors) == errors.message == "a: b\nc: d; e"
    assert (errors.path, errors.fact) == ("a", "b")


@pytest.mark.parametrize(
    "error",
    [
        InputError("a", "b", "c"),
        InputErrors([InputError("a", "b"), InputError("c", "d", "e")]),
        ArtifactError("x", "y"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_travels_between_processes(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  our own bytes, as a process pool would send them
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.path == error.path


@pytest.mark.parametrize(
    ("word", "known", "expected"),
    [
        ("agee", ["age", "income"], "did you mean 'age'?"),
        (7, [1, 2], "labels: 1, 2"),
        ("1", [0, 1], "it is the number 1, not the text '1'"),
        (1, ["0", "1"], "it is the text '1', not the number 1"),
        ("True", [False, True], "it is the truth value True, not the text 'True'"),
        ("zzz", [], ""),
        ("zzz", range(20), "labels: " + ", ".join(map(str, range(12))) + ", ..."),
    ],
)
def test_nearest_known_word(word: object, known: list[object], expected: str) -> None:
    assert did_you_mean(word, known, "labels") == expected
