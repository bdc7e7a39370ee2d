"""What an ONNX graph answers: labels, scores of classes, or values, by the element types of its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.model import Label
from mlflow_cf_flavors.answers import Answers, Floats, margins, shares
from mlflow_cf_flavors.onnx.inputs import Inputs

_NUMBERS: Final = ("tensor(float)", "tensor(double)", "tensor(float16)")
_MAPS: Final = "seq(map("  # one dictionary of labels and scores per row, as ZipMap makes them


@dataclass(frozen=True)
class Outputs:
    """The outputs of a graph by their roles; "" for one that it does not have.

    Attributes:
        label: a label per row; scores: a score per class, or a value.
        mapped: whether scores come as dictionaries.
        width: how many scores a row has; None where the graph leaves that open.
    """

    label: str
    scores: str
    mapped: bool
    width: int | None


def outputs_of(session: Any) -> Outputs:
    """Return the outputs of a session of onnxruntime.

    Raises:
        InputError: there are several labels, or several numbers.
    """
    scores = [one for one in session.get_outputs() if one.type in _NUMBERS or one.type.startswith(_MAPS)]
    labels = [one for one in session.get_outputs() if one not in scores]
    for kind, some in (("labels", labels), ("numbers", scores)):
        if len(some) > 1:
            names = ", ".join(one.name for one in some)
            fix = "export it with one output of labels and one of scores, or with one output"
            raise InputError("model", f"has several outputs of {kind} ({names}): which of them counts is not told", fix)
    mapped = bool(scores) and scores[0].type.startswith(_MAPS)
    width = None if mapped or not scores else _width(scores[0].shape)
    return Outputs(labels[0].name if labels else "", scores[0].name if scores else "", mapped, width)


def _width(shape: Sequence[Any] | None) -> int | None:
    """Return the columns of an output; one of a single axis has one number per row."""
    if not shape:
        return None
    last = shape[-1] if len(shape) > 1 else 1
    return last if isinstance(last, int) else None


@dataclass(frozen=True, eq=False)
class Ask:
    """Rows -> outputs of a graph, each (n, ...).

    Attributes:
        session: of onnxruntime, with one thread; it answers several callers at a time.
        inputs: how it is fed.
        source: what `session_of` opens the same session from, in another process.
    """

    session: Any
    inputs: Inputs
    source: Callable[[], tuple[str | bytes, int | None]]

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (*self.source(), self.inputs)

    def __call__(self, rows: pd.DataFrame, *names: str) -> list[Any]:
        """Return the outputs called `names` for rows (n, d)."""
        feed, many = self.inputs.feed(rows), self.inputs.rows
        if many is None:
            return list(self.session.run(list(names), feed))
        parts = [self._batch(names, feed, start, many) for start in range(0, max(1, len(rows)), many)]
        return [_joined(some, len(rows)) for some in zip(*parts, strict=True)]

    def _batch(self, names: Sequence[str], feed: dict[str, NDArray[Any]], start: int, many: int) -> list[Any]:
        """Return the outputs for so many rows of a `feed`, filled up with some of them."""
        rows = {name: tensor[start : start + many] for name, tensor in feed.items()}
        filled = {name: np.resize(tensor, (many, *tensor.shape[1:])) for name, tensor in rows.items()}
        return list(self.session.run(list(names), filled))


def session_of(source: str | bytes, level: int | None) -> Any:
    """Return a session of one thread; `level`: how much it may rewrite the graph, by the runtime's own number."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, and need not be printed too
    if level in _LEVELS:
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[level])
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


_LEVELS: Final = {0: "ORT_DISABLE_ALL", 1: "ORT_ENABLE_BASIC", 2: "ORT_ENABLE_EXTENDED"}


def _reopened(source: str | bytes, level: int | None, inputs: Inputs) -> Ask:
    return Ask(session_of(source, level), inputs, lambda: (source, level))


def _joined(parts: Sequence[Any], rows: int) -> Any:
    """Return the answers of batches, of which the last one may have more than there are rows."""
    if isinstance(parts[0], list):
        return [one for part in parts for one in part][:rows]
    together = np.concatenate([np.atleast_1d(part) for part in parts])
    return together[:rows]


@dataclass(frozen=True, eq=False)
class Labels:
    """Rows -> labels (n,)."""

    ask: Ask
    output: str

    def __call__(self, rows: pd.DataFrame) -> Answers:
        """Return the labels of `rows` (n, d)."""
        return flat(self.ask(rows, self.output)[0], len(rows))


@dataclass(frozen=True, eq=False)
class Values:
    """Rows -> values (n,) float64."""

    ask: Ask
    output: str

    def __call__(self, rows: pd.DataFrame) -> Floats:
        """Return the values of `rows` (n, d)."""
        return flat(self.ask(rows, self.output)[0], len(rows)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Rows -> scores (n, classes) float64.

    Attributes:
        ask: the graph; outputs: of it.
        classes: the labels, by which dictionaries are read.
        form: see `mlflow_cf_flavors.onnx.values.sums_of`.
    """

    ask: Ask
    outputs: Outputs
    classes: tuple[Label, ...]
    form: str

    def __call__(self, rows: pd.DataFrame) -> Floats:
        """Return the scores of `rows` (n, d)."""
        return self.read(self.ask(rows, self.outputs.scores)[0], len(rows))

    def both(self, rows: pd.DataFrame) -> tuple[Answers, Floats]:
        """Return the labels of `rows` (n, d) and their scores, asked for once."""
        labels, scores = self.ask(rows, self.outputs.label, self.outputs.scores)
        return flat(labels, len(rows)), self.read(scores, len(rows))

    def read(self, answer: Any, rows: int) -> Floats:
        """Return an answer of the graph for so many `rows` as scores (rows, classes)."""
        if self.outputs.mapped:
            scores = np.array([[one[label] for label in self.classes] for one in answer], dtype=np.float64)
            return scores.reshape(rows, len(self.classes))
        scores = np.asarray(answer, dtype=np.float64)
        if self.form in ("share", "margin"):
            return (shares if self.form == "share" else margins)(flat(scores, rows))
        return scores


def flat(answer: Any, rows: int) -> NDArray[Any]:
    """Return one answer per row, (n,); InputError if there are more."""
    array = np.asarray(answer)
    if array.size != rows:
        raise InputError("model", f"answers shape {array.shape} for {rows} rows", "wrap one model per output")
    return array.reshape(rows)


def form_of(scores: Floats, labels: Answers | None, classes: Sequence[Label]) -> str:
    """Return what single scores (n,) are: the probability of the second class, its margin, or "" for neither.

    Where there are labels, their threshold tells; otherwise what lies outside of 0 and 1 is a margin.
    """
    if labels is None:
        return "share" if ((scores >= 0) & (scores <= 1)).all() else "margin"
    second = np.asarray(labels == classes[1])
    if np.array_equal(scores > 0, second):
        return "margin"
    return "share" if np.array_equal(scores >= 0.5, second) or np.array_equal(scores > 0.5, second) else ""
