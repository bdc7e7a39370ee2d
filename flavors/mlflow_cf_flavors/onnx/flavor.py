"""ONNX: graphs that answer labels, scores of classes, or values; onnxruntime decides, in one thread.

The graph's outputs say what it answers: labels are text, whole numbers or truth values; scores are numbers, or
dictionaries from labels to numbers. Numbers without labels are values where the graph was exported by skl2onnx or
onnxmltools, whose classifiers have labels; of any other graph the caller says with ``output`` what they are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
from mlflow_cf_flavors.onnx.answers import Ask, ClassScores, Labels, Outputs, Values, flat, form_of, outputs_of
from mlflow_cf_flavors.onnx.graph import graph_of
from mlflow_cf_flavors.onnx.inputs import inputs_of
from mlflow_cf_flavors.onnx.structure import compile_onnx

MLFLOW_FLAVOR: Final = "onnx"

TOLERANCE: Final = 1e-5  # sums of float32, added in another order
_LABEL_ALL: Final = ("skl2onnx", "OnnxMLTools")  # exporters whose classifiers always have labels
_SUMS_TO_1: Final = 1e-5
_SAYS: Final = "say what they are: output='value', or output='score' (one per class, or of the second of two)"
_LEVELS: Final = {0: "ORT_DISABLE_ALL", 1: "ORT_ENABLE_BASIC", 2: "ORT_ENABLE_EXTENDED"}  # by MLflow's numbers


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
    ask = Ask(session, inputs)
    if outputs.label:
        check_output(session, output, regression=False)
        opened = _open_labels(model, ask, outputs, rows)
    else:
        opened = _open_numbers(ask, outputs, _meaning(session, output), rows)
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
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised, and need not be printed too
    if isinstance(model, Stored) and model.level in _LEVELS:
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[model.level])
    try:
        source = str(model.file) if isinstance(model, Stored) else model.SerializeToString()
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        message = str(error).splitlines()[0] if str(error) else ""
        fact = f"onnxruntime cannot open it ({type(error).__name__}: {message})"
        raise InputError("model", fact, "export it again, for the installed onnxruntime") from error


def _meaning(session: Any, output: str | None) -> str:
    """Return what numbers without labels are: ``value`` or ``score``."""
    if output == "label":
        raise InputError("output", "the graph answers no labels", "leave it out, or use 'score' or 'value'")
    check_output(session, output if output != "value" else None, regression=False)
    if output is not None:
        return output
    if session.get_modelmeta().producer_name in _LABEL_ALL:
        return "value"
    raise InputError("output", "the graph answers numbers and no labels", _SAYS)


def _open_labels(model: object, ask: Ask, outputs: Outputs, rows: pd.DataFrame | None) -> OpenModel:
    """Open a graph that answers labels, and perhaps scores."""
    decide, some = Labels(ask, outputs.label), _some(rows)
    classes = _classes(model, ask, outputs, some)
    closed = OpenModel(MLFLOW_FLAVOR, classes, decide, notes=(LABELS_ONLY,))
    if not outputs.scores:
        return closed
    form, kind = "scores", "probability"
    if not outputs.mapped:
        found = np.asarray(ask(some, outputs.scores)[0], dtype=np.float64)
        form, kind = _form(found.reshape(len(some), -1), decide(some), classes)
    else:
        table = ClassScores(ask, outputs, classes, form)(some)
        kind = "probability" if _are_shares(table) else "margin"
    if not form:
        return closed
    scores = ClassScores(ask, outputs, classes, form)
    return OpenModel(MLFLOW_FLAVOR, classes, decide, scores, _kind(kind), both=scores.both)


def _kind(word: str) -> ScoreKind:
    return "probability" if word == "probability" else "margin"


def _form(scores: Floats, labels: Any, classes: Sequence[Label]) -> tuple[str, str]:
    """Return the form of scores (n, k) beside labels, and whether they are probabilities or margins."""
    if scores.shape[1] == 1 and len(classes) == 2:
        form = form_of(scores[:, 0], labels, classes)
        return form, "probability" if form == "share" else "margin"
    if scores.shape[1] != len(classes):
        fact = f"answers {scores.shape[1]} scores beside {len(classes)} labels"
        raise InputError("model", fact, "export it with one score for each label")
    return "scores", "probability" if _are_shares(scores) else "margin"


def _are_shares(scores: Floats) -> bool:
    return bool((scores >= 0).all() and np.abs(scores.sum(axis=1) - 1).max(initial=0.0) <= _SUMS_TO_1)


def _classes(model: object, ask: Ask, outputs: Outputs, rows: pd.DataFrame) -> tuple[Label, ...]:
    """Return the labels in the order of the scores: those that the graph names, or that it answers for `rows`.

    Raises:
        InputError: it names none, and answers fewer than it has scores.
    """
    if outputs.mapped:
        return tuple(ask(rows.iloc[:1], outputs.scores)[0][0])
    source: Any = model.file if isinstance(model, Stored) else model
    try:
        named = () if hasattr(model, "run") else graph_of(source, weights=False).labels(outputs.label)
    except NotOpenedError:  # too large to be read: what it answers must do
        named = ()
    labels = flat(ask(rows, outputs.label)[0], len(rows))
    known = learned_labels(labels)
    if named and set(known) <= set(named):
        return named
    if not outputs.scores:
        return known
    width = np.asarray(ask(rows.iloc[:1], outputs.scores)[0]).size
    if width > 1 and labels.dtype.kind in "iu" and set(known) <= set(range(width)):
        return tuple(range(width))
    if len(known) not in (width, width + 1):
        fact = f"answers {len(known)} labels for these rows and {width} scores, and does not say whose they are"
        raise InputError("model", fact, "export it with ZipMap, or pass rows that it gives every label")
    return known


def _some(rows: pd.DataFrame | None) -> pd.DataFrame:
    if rows is None or not len(rows):
        raise InputError("data", "rows are needed to learn what this graph answers", "pass rows of the training table")
    return rows


def _open_numbers(ask: Ask, outputs: Outputs, meaning: str, rows: pd.DataFrame | None) -> OpenModel:
    """Open a graph that answers numbers: values, or scores of classes that are numbered 0, 1, ..."""
    if meaning == "value":
        return OpenModel(MLFLOW_FLAVOR, (), Values(ask, outputs.scores))
    some = _some(rows)
    if outputs.mapped:
        classes: tuple[Label, ...] = tuple(ask(some.iloc[:1], outputs.scores)[0][0])
        form, likely = "scores", _are_shares(ClassScores(ask, outputs, classes, "scores")(some))
    else:
        scores = np.asarray(ask(some, outputs.scores)[0], dtype=np.float64).reshape(len(some), -1)
        classes = tuple(range(max(2, scores.shape[1])))
        form = "scores" if scores.shape[1] > 1 else form_of(scores[:, 0], None, classes)
        likely = form == "share" or (form == "scores" and _are_shares(scores))
    told = ClassScores(ask, outputs, classes, form)
    decide = LargestScore(told, classes, second=form == "share")
    kind: ScoreKind = "probability" if likely else "margin"
    return OpenModel(MLFLOW_FLAVOR, classes, decide, told, kind, both=decide.both)
