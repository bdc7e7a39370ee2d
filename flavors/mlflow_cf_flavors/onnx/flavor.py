"""ONNX: graphs that answer labels, scores of classes, or values; onnxruntime decides, in one thread.

The graph's outputs say what it answers: labels are text, whole numbers or truth values; scores are numbers, or
dictionaries from labels to numbers. Numbers without labels are values where the graph was exported by skl2onnx or
onnxmltools, whose classifiers have labels. They are probabilities where the graph ends in Softmax, or in the Sigmoid
of one number. Of any other graph the caller says with ``output`` what they are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.features import ColumnName
from mlflow_cf.model import Label, OpenModel, ScoreKind
from mlflow_cf.structures import NotOpenedError
from mlflow_cf_flavors.answers import (
    LABELS_ONLY,
    Floats,
    LargestScore,
    check_answers,
    check_columns,
    check_output,
    learned_labels,
)
from mlflow_cf_flavors.onnx.answers import (
    Ask,
    ClassScores,
    Labels,
    Outputs,
    Values,
    flat,
    form_of,
    outputs_of,
    session_of,
)
from mlflow_cf_flavors.onnx.graph import Graph, graph_of
from mlflow_cf_flavors.onnx.inputs import inputs_of
from mlflow_cf_flavors.onnx.structure import compile_onnx

MLFLOW_FLAVOR: Final = "onnx"

TOLERANCE: Final = 1e-5  # sums of float32, added in another order
_LABEL_ALL: Final = ("skl2onnx", "OnnxMLTools")  # exporters whose classifiers always have labels
_SUMS_TO_1: Final = 1e-5
_SAYS: Final = "say what they are: output='value', or output='score' (one per class, or of the second of two)"


@dataclass(frozen=True)
class Stored:
    """A graph in the folder of an MLflow model.

    Attributes:
        file: its file, beside which there may be others with its weights.
        columns: the columns that the model was logged for; empty if its signature names none.
        level: how much onnxruntime may rewrite the graph, by its own number; None: as much as it can.
    """

    file: Path
    columns: tuple[ColumnName, ...] = ()
    level: int | None = None


def accepts(model: object) -> bool:
    """Return whether `model` is a graph in memory, one of `load`, or a session of onnxruntime."""
    onnx, onnxruntime = sys.modules.get("onnx"), sys.modules.get("onnxruntime")
    return (
        isinstance(model, Stored)
        or (onnx is not None and isinstance(model, onnx.ModelProto))
        or (onnxruntime is not None and isinstance(model, onnxruntime.InferenceSession))
    )


def load(path: Path) -> object:
    """Return where the graph of an MLflow model folder is; nothing of it is read yet."""
    from mlflow.models import Model

    logged = Model.load(str(path))
    about = logged.flavors[MLFLOW_FLAVOR]
    schema = logged.get_input_schema()
    named = schema is not None and not schema.is_tensor_spec() and schema.has_input_names()
    options = about.get("onnx_session_options") or {}
    return Stored(path / about["data"], tuple(schema.input_names()) if named else (), options.get(_LEVEL))


_LEVEL: Final = "graph_optimization_level"


def requirements(model: object) -> list[str]:
    """Return pinned requirements that restore `model`."""
    del model
    return [f"{package}=={version(package)}" for package in ("onnx", "onnxruntime", "numpy", "pandas")]


def save(
    model: object, path: Path, *, signature: object, pip_requirements: list[str], allow_functions: bool = False
) -> None:
    """Write a graph in memory as an MLflow model folder, in one file.

    Raises:
        InputError: it is a session of onnxruntime, which does not give its graph back.
    """
    import mlflow.onnx
    import onnx

    del allow_functions  # a graph holds none
    if not isinstance(model, onnx.ModelProto):
        fix = "pass the graph (onnx.load(file)), or log it with mlflow.onnx.log_model and pass the model_uri"
        raise InputError("model", f"a {type(model).__name__} does not give its graph back", fix)
    mlflow.onnx.save_model(
        model,
        str(path),
        signature=signature,
        pip_requirements=pip_requirements,
        onnx_execution_providers=["CPUExecutionProvider"],
        save_as_external_data=False,  # what MLflow calls for otherwise takes the weights out of the user's own graph
    )


def open(model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open a graph; `rows` are some rows it must be able to answer, from which the meaning of scores is learned.

    Raises InputError for what answers no label or number per row, and where it is not told which of the two.
    """
    session = _session(model)
    outputs = outputs_of(session)
    inputs = inputs_of(session, model.columns if isinstance(model, Stored) else (), rows)
    check_columns(inputs.columns, rows)
    ask = Ask(session, inputs, lambda: _source(model))
    graph = _graph(model)
    if outputs.label:
        check_output(session, output, regression=False)
        opened = _open_labels(graph, ask, outputs, _seen(ask, outputs, rows))
    else:
        opened = _open_numbers(graph, ask, outputs, rows, output)
    opened = replace(opened, columns=inputs.columns, tolerance=TOLERANCE)
    if output == "label":
        opened = replace(opened, score=None, score_kind="none", both=None)
    check_answers(opened, rows)
    return _compiled(model, opened, ask, outputs)


def _compiled(model: object, opened: OpenModel, ask: Ask, outputs: Outputs) -> OpenModel:
    """Return a model with what opens its structure, if its graph is at hand."""
    scores = opened.score
    form = scores.form if isinstance(scores, ClassScores) else "value"
    if not outputs.scores or (scores is None and not opened.regression):
        return opened
    if not isinstance(model, Stored) and hasattr(model, "run"):  # a session does not give its graph back
        return replace(opened, notes=(*opened.notes, "is a session of onnxruntime, which does not show its graph"))
    source = model.file if isinstance(model, Stored) else model
    return replace(opened, compile=partial(compile_onnx, source, ask.inputs, outputs.scores, form))


def _session(model: Any) -> Any:
    """Return a session of one thread; that of somebody else as it is.

    Raises:
        InputError: onnxruntime cannot read the graph, or knows none of its operators.
    """
    import onnxruntime

    if isinstance(model, onnxruntime.InferenceSession):
        return model
    try:
        return session_of(*_source(model))
    except Exception as error:
        message = str(error).splitlines()[0] if str(error) else ""
        fact = f"onnxruntime cannot open it ({type(error).__name__}: {message})"
        raise InputError("model", fact, "export it again, for the installed onnxruntime") from error


def _source(model: Any) -> tuple[str | bytes, int | None]:
    """Return what a session can be opened from: a file or its bytes, and how much the graph may be rewritten."""
    return (str(model.file), model.level) if isinstance(model, Stored) else (model.SerializeToString(), None)


def _graph(model: Any) -> Graph | None:
    """Return the graph of a model without what lies beside its file; None if it is not at hand, or too large."""
    if not isinstance(model, Stored) and hasattr(model, "run"):
        return None
    try:
        return graph_of(model.file if isinstance(model, Stored) else model, weights=False)
    except NotOpenedError:
        return None


def _meaning(graph: Graph | None, ask: Ask, outputs: Outputs, output: str | None) -> str:
    """Return what numbers without labels are: ``value`` or ``score``."""
    if output == "label":
        raise InputError("output", "the graph answers no labels", "leave it out, or use 'score' or 'value'")
    check_output(ask.session, output if output != "value" else None, regression=False)
    if output is not None:
        return output
    if ask.session.get_modelmeta().producer_name in _LABEL_ALL:
        return "value"
    if outputs.mapped or _likely(graph, outputs):
        return "score"
    raise InputError("output", "the graph answers numbers and no labels", _SAYS)


@dataclass(frozen=True, eq=False)
class _Seen:
    """What a graph answers for some rows, from which the meaning of its answers is learned.

    Attributes:
        labels: (n,) or None; scores: as they come, an array or a list of dictionaries, or None.
        rows: their number n.
    """

    labels: Any
    scores: Any
    rows: int

    @property
    def numbers(self) -> Floats:
        """Scores (n, k) that are no dictionaries."""
        return np.asarray(self.scores, dtype=np.float64).reshape(self.rows, -1)


def _seen(ask: Ask, outputs: Outputs, rows: pd.DataFrame | None) -> _Seen:
    """Return the answers for `rows`; InputError if there are none, or if they cannot be answered."""
    if rows is None or not len(rows):
        raise InputError("data", "rows are needed to learn what this graph answers", "pass rows of the training table")
    names = [name for name in (outputs.label, outputs.scores) if name]
    try:
        answers = dict(zip(names, ask(rows, *names), strict=True))
    except Exception as error:
        message = str(error).splitlines()[0] if str(error) else ""
        fact = f"the model cannot answer these rows ({type(error).__name__}: {message})"
        raise InputError("data", fact, "pass the table with the columns the graph was exported for") from error
    labels = flat(answers[outputs.label], len(rows)) if outputs.label else None
    return _Seen(labels, answers.get(outputs.scores), len(rows))


def _likely(graph: Graph | None, outputs: Outputs) -> bool:
    """Whether a graph ends in what makes probabilities: a softmax, or a logistic curve of one number."""
    ending = "" if graph is None else graph.ending(outputs.scores)
    return ending == "Softmax" or (ending == "Sigmoid" and outputs.width == 1)


def _open_labels(graph: Graph | None, ask: Ask, outputs: Outputs, seen: _Seen) -> OpenModel:
    """Open a graph that answers labels, and perhaps scores."""
    decide, classes = Labels(ask, outputs.label), _classes(graph, outputs, seen)
    closed = OpenModel(MLFLOW_FLAVOR, classes, decide, notes=(LABELS_ONLY,))
    if not outputs.scores:
        return closed
    form = "scores"
    if not outputs.mapped and seen.numbers.shape[1] == 1 and len(classes) == 2:
        form = form_of(seen.numbers[:, 0], seen.labels, classes)
        if not form:
            return closed
    elif not outputs.mapped and seen.numbers.shape[1] != len(classes):
        fact = f"answers {seen.numbers.shape[1]} scores beside {len(classes)} labels"
        raise InputError("model", fact, "export it with one score for each label")
    scores = ClassScores(ask, outputs, classes, form)
    return OpenModel(MLFLOW_FLAVOR, classes, decide, scores, _kind(scores, seen), both=scores.both)


def _kind(scores: ClassScores, seen: _Seen) -> ScoreKind:
    """Return whether scores are probabilities: none is negative, and those of a row sum to 1."""
    some = scores.read(seen.scores, seen.rows)
    shares = (some >= 0).all() and np.abs(some.sum(axis=1) - 1).max(initial=0.0) <= _SUMS_TO_1
    return "probability" if shares and scores.form != "margin" else "margin"


def _classes(graph: Graph | None, outputs: Outputs, seen: _Seen) -> tuple[Label, ...]:
    """Return the labels in the order of the scores: those that the graph names, or that it answers for the rows seen.

    Raises:
        InputError: it names none, and answers fewer than it has scores.
    """
    if outputs.mapped:
        return tuple(seen.scores[0])
    known = learned_labels(seen.labels)
    named = graph.labels(outputs.label) if graph is not None else ()
    if named and set(known) <= set(named):
        return named
    if not outputs.scores:
        return known
    width = seen.numbers.shape[1]
    if width > 1 and seen.labels.dtype.kind in "iu" and set(known) <= set(range(width)):
        return tuple(range(width))
    if len(known) not in (width, width + 1):
        fact = f"answers {len(known)} labels for these rows and {width} scores, and does not say whose they are"
        raise InputError("model", fact, "export it with ZipMap, or pass rows that it gives every label")
    return known


def _open_numbers(
    graph: Graph | None, ask: Ask, outputs: Outputs, rows: pd.DataFrame | None, output: str | None
) -> OpenModel:
    """Open a graph without labels: values, or scores of classes that are named in them or numbered 0, 1, ..."""
    if _meaning(graph, ask, outputs, output) == "value":
        return OpenModel(MLFLOW_FLAVOR, (), Values(ask, outputs.scores))
    seen = _seen(ask, outputs, rows)
    if outputs.mapped:
        classes, form = tuple(seen.scores[0]), "scores"
    else:
        classes = tuple(range(max(2, seen.numbers.shape[1])))
        form = "scores" if seen.numbers.shape[1] > 1 else form_of(seen.numbers[:, 0], None, classes)
    scores = ClassScores(ask, outputs, classes, form)
    decide = LargestScore(scores, classes, second=form == "share")
    return OpenModel(MLFLOW_FLAVOR, classes, decide, scores, _kind(scores, seen), both=decide.both)
