"""Any MLflow model through its generic ``python_function`` interface: labels, scores or values, whatever it returns."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mlflow_cf.errors import InputError
from mlflow_cf.features import ColumnName
from mlflow_cf.model import OpenModel, ScoreKind
from mlflow_cf_flavors.answers import (
    LABELS_ONLY,
    Floats,
    LargestScore,
    OwnAnswers,
    learned_labels,
    margins,
    plain_labels,
    shares,
)

if TYPE_CHECKING:
    from mlflow.pyfunc import PyFuncModel

MLFLOW_FLAVOR: Final = "python_function"

Answer = Any  # array, list, Series or table


def accepts(model: object) -> bool:
    """Return whether `model` is a model loaded by ``mlflow.pyfunc.load_model``."""
    pyfunc = sys.modules.get("mlflow.pyfunc")
    return pyfunc is not None and isinstance(model, pyfunc.PyFuncModel)


def load(path: Path) -> object:
    """Load the MLflow model folder through MLflow's generic loader."""
    import mlflow.pyfunc

    return mlflow.pyfunc.load_model(str(path), suppress_warnings=True)


def requirements(model: object) -> list[str]:
    """Return no requirement: the files a pyfunc was loaded from bring their own."""
    del model
    return []


def save(
    model: object, path: Path, *, signature: object, pip_requirements: list[str], allow_functions: bool = False
) -> None:
    """Refuse: a loaded pyfunc no longer holds the files it came from."""
    del model, path, signature, pip_requirements, allow_functions
    raise InputError("model", "a loaded pyfunc cannot be written again", "pass the URI or folder it was loaded from")


def open(model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open a loaded pyfunc.

    `output` says what its answers are: ``label``, ``score`` (one column: probability of the second class; several: one
    per class) or ``value``; None takes whole numbers, strings and booleans as labels. Labels are learned from `rows`.
    """
    if output not in (None, "label", "score", "value"):
        raise InputError("output", f"{output!r} is not known", "use 'label', 'score' or 'value'")
    ask = _ask(model)
    columns = tuple(ask.kinds)
    if output == "value":
        return OpenModel(MLFLOW_FLAVOR, (), OwnAnswers(_numbers_of, ask, np.float64), columns=columns)
    if rows is None or not len(rows):
        raise InputError("data", "rows are needed to learn what this model answers", "pass rows of the training table")
    if output == "score":
        return _open_scores(ask, rows)
    answers = _single_column(ask(rows))
    if output is None:
        _check_labels(answers)
    decide = OwnAnswers(_single_column, ask)
    return OpenModel(MLFLOW_FLAVOR, learned_labels(answers), decide, columns=columns, notes=(LABELS_ONLY,))


_ONE_PER_CLASS: Final = "if they are scores, one per class, pass output='score'"
_MARGIN: Final = "some scores are not between 0 and 1, so they are no probabilities: the threshold is 0"


@dataclass(frozen=True)
class _Ask:
    """Rows -> the pyfunc's raw answer.

    `kinds` maps the columns its signature names to MLflow's types; only these are handed over (MLflow warns about
    others at every call), whole numbers as floats where it declares them so (MLflow would refuse them). Empty: no such
    signature, the table goes in as it is.
    """

    model: PyFuncModel
    kinds: Mapping[ColumnName, object]

    def __call__(self, rows: pd.DataFrame) -> Answer:
        return self.model.predict(self._conform(rows) if self.kinds else rows)

    def _conform(self, rows: pd.DataFrame) -> pd.DataFrame:
        from mlflow.types import DataType

        table = rows.loc[:, [name for name in self.kinds if name in rows.columns]]
        dtypes = {DataType.double: "float64", DataType.float: "float32"}
        floats = {
            name: dtypes[kind]
            for name, kind in self.kinds.items()
            if kind in dtypes and name in table.columns and table.dtypes[name].kind in "iu"
        }
        return table.astype(floats) if floats else table


def _ask(model: object) -> _Ask:
    from mlflow.pyfunc import PyFuncModel

    if not isinstance(model, PyFuncModel):
        raise InputError(
            "model", f"{type(model).__name__} is not a loaded pyfunc", "load it with mlflow.pyfunc.load_model"
        )
    metadata: Any = model.metadata
    schema = metadata.get_input_schema()
    if schema is None or schema.is_tensor_spec() or not schema.has_input_names():
        return _Ask(model, {})
    return _Ask(model, dict(schema.input_types_dict()))


@dataclass(frozen=True)
class _Scores:
    """Rows -> one column of scores per class, (n, k) float64."""

    ask: _Ask
    margin: bool

    def __call__(self, rows: pd.DataFrame) -> Floats:
        scores = _score_columns(self.ask(rows))
        if scores.shape[1] > 1:
            return scores
        return (margins if self.margin else shares)(scores[:, 0])


def _open_scores(ask: _Ask, rows: pd.DataFrame) -> OpenModel:
    answer = ask(rows)
    columns = _score_columns(answer)
    margin = bool((columns < 0).any() or (columns > 1).any())
    many = columns.shape[1] > 1
    named = many and isinstance(answer, pd.DataFrame)
    classes = plain_labels(answer.columns) if named else tuple(range(max(2, columns.shape[1])))
    scores = _Scores(ask, margin)
    kind: ScoreKind = "margin" if margin else "probability"
    notes = (_MARGIN,) if margin and not many else ()
    decide = LargestScore(scores, classes, second=True)
    return OpenModel(MLFLOW_FLAVOR, classes, decide, scores, kind, tuple(ask.kinds), notes, decide.both)


def _score_columns(answer: Answer) -> Floats:
    table = answer if isinstance(answer, pd.DataFrame) else np.asarray(answer)
    scores = _numbers(np.asarray(table))
    return scores.reshape(-1, 1) if scores.ndim == 1 else scores


def _single_column(answer: Answer) -> NDArray[np.generic]:
    """Return an answer of any shape MLflow allows (array, list, Series, table of one column) as one array (n,)."""
    if isinstance(answer, pd.DataFrame):
        if answer.shape[1] != 1:
            raise InputError("model", f"answers {answer.shape[1]} columns", _ONE_PER_CLASS)
        answer = answer.iloc[:, 0]
    array = pd.Series(list(answer)).to_numpy() if isinstance(answer, list) else np.asarray(answer)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError("model", f"answers shape {array.shape}", _ONE_PER_CLASS)
    return array


def _check_labels(answers: NDArray[np.generic]) -> None:
    kind = answers.dtype.kind
    if kind == "f" or (kind == "O" and any(isinstance(answer, float) for answer in answers)):
        fix = "say what they are: output='score' (probability of the second class), output='value' or output='label'"
        raise InputError("output", "the model answers real numbers", fix)


def _numbers_of(answer: Answer) -> Floats:
    return _numbers(_single_column(answer))


def _numbers(answers: NDArray[np.generic]) -> Floats:
    try:
        return np.asarray(answers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            "output", "the model does not answer numbers", "leave output out or use output='label'"
        ) from error
