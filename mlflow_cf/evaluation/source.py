"""The model that is evaluated, and the logged model it is known as."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.pyfunc import PyFuncModel

from mlflow_cf.artifact.load import load_folder
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.model.flavors import check_is_model, fetch


class SparkFrame(Protocol):
    """A data frame of Spark, as far as it shows here."""

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        ...

    def mapInArrow(self, func: Any, schema: Any) -> Any:  # noqa: N802  Spark's name
        """Let workers make other rows of its rows."""
        ...


ModelSource = str | Path | PyFuncModel | ExplainedModel


@dataclass(frozen=True, eq=False)
class Source:
    """An explained model and where it comes from.

    Attributes:
        explained: the model, ready to answer.
        model_id: id of its LoggedModel in the store that is in use; None if there is none.
        folder: its files; None for a model that is in memory alone.
        title: what people call it; "": nothing is known.
    """

    explained: ExplainedModel
    model_id: str | None = None
    folder: Path | None = None
    title: str = ""


def source_of(model: ModelSource) -> Source:
    """Return a model from an address, a loaded pyfunc, or as it is.

    Raises:
        InputError: there is nothing at that address, or it is no explained model.
        ArtifactError: an explained model that cannot be read.
    """
    if isinstance(model, ExplainedModel):
        return Source(model)
    if isinstance(model, PyFuncModel):
        try:
            raw = model.get_raw_model()
        except NotImplementedError:
            raw = None
        if not isinstance(raw, ExplainedModel):
            raise InputError("model", "this pyfunc is no explained model", "log it with mlflow_cf.log_model")
        known = known_id(model.metadata.model_id)
        return Source(raw, known, title=_name_of(known))
    if not isinstance(model, str | Path):
        fix = "pass a URI, a folder, a loaded pyfunc or what mlflow_cf.wrap returns"
        raise InputError("model", f"a {type(model).__name__} is no explained model", fix)
    folder = fetch(model)
    check_is_model(folder)
    explained = load_folder(folder)
    explained.warm_up()
    known = known_id(Model.load(str(folder)).model_id)
    written = str(model)
    return Source(explained, known, folder, written if ":/" in written else _name_of(known) or Path(written).name)


def known_id(model_id: str | None) -> str | None:
    """Return the id of a logged model if the store in use knows it: a copied folder names one of another store."""
    if model_id is None:
        return None
    try:
        return str(mlflow.get_logged_model(model_id).model_id)
    except MlflowException:
        return None


def _name_of(model_id: str | None) -> str:
    return "" if model_id is None else str(mlflow.get_logged_model(model_id).name)
