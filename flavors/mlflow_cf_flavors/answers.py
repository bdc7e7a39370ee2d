"""Callables from rows to labels, values or scores, for models of any kind, and the checks that refuse a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.model import Label, OpenModel

Answers = NDArray[Any]
Floats = NDArray[np.float64]
Rows = Callable[[pd.DataFrame], Any]
CLEAR: Final = 1e-6  # least lead of the largest score over the next; relative above 1; below it, rounding may decide
LABELS_ONLY: Final = "answers labels only, so the search cannot tell how near a row is to the target"


@dataclass(frozen=True)
class OwnAnswers:
    """Rows -> the model's own labels or values, shape (n,).

    Attributes:
        predict: what the model takes -> its answers; `select`: rows, or their codes -> what it takes.
        dtype: float64 for values; None: as they come.
    """

    predict: Callable[[Any], Any]
    select: Callable[[Any], Any]
    dtype: type[np.float64] | None = None

    def __call__(self, rows: Any) -> Answers:
        """Return the answers for rows (n, d)."""
        answers = np.asarray(self.predict(self.select(rows)), dtype=self.dtype)
        if answers.ndim == 2 and answers.shape[1] == 1:
            return answers[:, 0]
        if answers.ndim != 1:
            raise InputError("model", f"answers {answers.shape[1:]} values per row", "wrap one model per output")
        return answers


@dataclass(frozen=True)
class LargestScore:
    """Rows -> the label with the largest score, shape (n,).

    Attributes:
        scores: rows, or their codes -> (n, classes), one column for each of `classes`.
        second: of two equal scores the second one decides, as where one half is enough; otherwise the first one.
    """

    scores: Callable[[Any], Floats]
    classes: tuple[Label, ...]
    second: bool = False

    def __call__(self, rows: Any) -> Answers:
        """Return the labels of `rows` (n, d)."""
        return self.both(rows)[0]

    def both(self, rows: Any) -> tuple[Answers, Floats]:
        """Return the labels of `rows` (n, d) and their scores, asked for once."""
        scores = self.scores(rows)
        if self.second and scores.shape[1] == 2:
            best = (scores[:, 1] >= scores[:, 0]).astype(np.intp)
        else:
            best = scores.argmax(axis=1)
        return np.asarray(self.classes)[best], scores


@dataclass(frozen=True)
class ClearScore:
    """Rows -> labels and scores of a model whose label is that of the largest score, except perhaps in ties.

    Attributes:
        decide: rows -> its labels (n,).
        scores: rows -> (n, classes), one column for each of `classes`.
    """

    decide: Callable[[Any], Answers]
    scores: Callable[[Any], Floats]
    classes: tuple[Label, ...]

    def __call__(self, rows: Any) -> tuple[Answers, Floats]:
        """Return labels and scores of `rows` (n, d); the model decides unless all rows have a clear largest score."""
        scores = self.scores(rows)
        if len(self.classes) < 2:
            return self.decide(rows), scores
        one, other = scores.T if len(self.classes) == 2 else np.partition(scores, -2, axis=1)[:, -2:].T
        sizes = np.abs(scores).T
        largest = np.maximum(*sizes) if len(sizes) == 2 else sizes.max(axis=0)  # of two, in a tenth of the time
        if (np.abs(one - other) > CLEAR * np.maximum(1.0, largest)).all():
            return np.asarray(self.classes)[scores.argmax(axis=1)], scores
        return self.decide(rows), scores


@dataclass(frozen=True)
class ValuesAlone:
    """Rows -> the values of a model that has no scores."""

    values: Callable[[Any], Answers]

    def __call__(self, rows: Any) -> tuple[Answers, None]:
        """Return the answers for rows (n, d)."""
        return self.values(rows), None


def as_array(table: pd.DataFrame) -> NDArray[Any] | None:
    """Return a `table` (n, d) as one array if all of its columns are numbers of numpy's own types; else None."""
    plain = all(isinstance(dtype, np.dtype) and dtype.kind in "iuf" for dtype in table.dtypes)
    return table.to_numpy() if plain else None


def shares(likelier: Floats) -> Floats:
    """Return the probability (n,) of the second class as one column per class."""
    return np.column_stack((1.0 - likelier, likelier))


def margins(margin: Floats) -> Floats:
    """Return the margin (n,) of the second class as one column per class: (-margin, margin)."""
    return np.column_stack((-margin, margin))


def plain_labels(labels: Iterable[Any]) -> tuple[Label, ...]:
    """Return the labels of a classifier as plain Python values."""
    return tuple(label.item() if isinstance(label, np.generic) else label for label in labels)


def learned_labels(answers: Answers) -> tuple[Label, ...]:
    """Return the distinct labels among `answers` (n,), in order; InputError if they are none."""
    if pd.isna(answers).any():
        raise InputError("model", "answers missing values for some rows", "answer every row with a label")
    labels = plain_labels(answers)
    if not all(isinstance(label, bool | int | float | str) for label in labels):
        kinds = sorted({type(label).__name__ for label in labels})
        raise InputError("model", f"answers {kinds}, which are no labels", "answer strings, numbers or booleans")
    return tuple(sorted(set(labels), key=lambda label: (type(label).__name__, label)))


def check_classes(model: object, classes: tuple[Label, ...]) -> None:
    """Refuse a classifier that was fitted on a single label."""
    if len(classes) < 2:
        raise InputError(
            "model", f"{type(model).__name__} knows a single label", "fit it on rows of two labels or more"
        )


def check_output(model: object, output: str | None, *, regression: bool) -> None:
    """Refuse an `output` the model does not have."""
    allowed = ("value",) if regression else ("label", "score")
    if output is not None and output not in allowed:
        known = " or ".join(repr(word) for word in allowed)
        raise InputError("output", f"{output!r} does not fit {type(model).__name__}", f"leave it out or use {known}")


def check_columns(names: Iterable[str | int], rows: pd.DataFrame | None) -> None:
    """Refuse `rows` without columns the model was fitted on."""
    lost = [] if rows is None else [name for name in names if name not in rows.columns]
    if lost:
        raise InputError("data", f"lacks the columns {lost} that the model was fitted on", "pass its raw input columns")


def check_answers(opened: OpenModel, rows: pd.DataFrame | None, fix: str = "") -> None:
    """Ask for two answers now, so that a wrong table is a clear error when wrapping; `fix` says how to right it."""
    if rows is None or not len(rows):
        return
    try:
        opened.decide(rows.iloc[:2])
    except InputError:
        raise
    except Exception as error:
        message = str(error).splitlines()[0] if str(error) else ""
        fact = f"the model cannot answer these rows ({type(error).__name__}: {message})"
        raise InputError("data", fact, fix or "pass the table with the columns the model was fitted on") from error
