"""Build the folder of an explained model and prove that it answers as the model it was made from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import mlflow.pyfunc
import numpy as np
import pandas as pd
import yaml
from mlflow.models import Model, ModelSignature
from numpy.typing import ArrayLike

from mlflow_cf.artifact import sources as code
from mlflow_cf.artifact.clean import prove_elsewhere
from mlflow_cf.artifact.format import files, manifest, pickled
from mlflow_cf.artifact.format.mlmodel import MANIFEST_KEY, MLMODEL, fields_sha256
from mlflow_cf.artifact.publish import inner, versions
from mlflow_cf.artifact.publish import requirements as pip
from mlflow_cf.artifact.publish.signature import PARAM, example_rows, inner_signature, signature_of
from mlflow_cf.artifact.sources import CodePaths
from mlflow_cf.backgrounds import Background, taken
from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import InputError, raise_all
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import Table
from mlflow_cf.model.flavors import INNER, OWN_FLAVOR, open_folder, open_native
from mlflow_cf.options import WrapOptions
from mlflow_cf.problem.binding import same
from mlflow_cf.version import VERSION
from mlflow_cf.wrapping import OtherModels, assemble, drawn_models, warned

EXAMPLE_ROWS: Final = 3
EXAMPLE_PARAMS: Final = {PARAM: {"count": 1}}
LOADER: Final = "mlflow_cf"  # the module whose _load_pyfunc MLflow calls
Validate = Literal["here", "process"]


@dataclass(frozen=True, eq=False)
class Built:
    """A finished artifact that nobody has yet.

    Attributes:
        folder: its files.
        explained: the same model in memory.
    """

    folder: Path
    explained: ExplainedModel


@dataclass(frozen=True)
class Packaging:
    """What MLflow's side of an artifact shall look like: more keyword arguments of `save_model` and `log_model`.

    Attributes:
        output: what a model without known outputs returns: ``"label"``, ``"score"`` or ``"value"``.
        signature: another signature than the one made from data; its param is always ours.
        input_example: rows, or (rows, params); None: the first rows of data.
        pip_requirements: requirements of the model, instead of the ones it brings; mlflow-cf is always added. The paths
            of wheels, such as that of mlflow-cf itself where no index has it, stand beside them: the artifact brings
            these along.
        metadata: entries for MLmodel.
        allow_functions: whether Python functions, as the model or as parts of actions and relationships, may be saved:
            as pickles, which run code when they are loaded. Those of a module are stored by name.
        code_paths: files of modules and folders of packages of your own that the model needs, as in MLflow's own
            flavors: the artifact brings them along, and its manifest seals them.
        validate: where the finished artifact is tried: ``"here"``, or also in a new ``"process"``, which knows nothing
            but installed packages and the artifact; None: there too, if the model needs code of your own.
    """

    output: str | None = None
    signature: ModelSignature | None = None
    input_example: Any = None
    pip_requirements: str | Sequence[str] | None = None
    metadata: Mapping[str, Any] | None = None
    allow_functions: bool = False
    code_paths: CodePaths | None = None
    validate: Validate | None = None

    @property
    def writing(self) -> dict[str, Any]:
        """How native models may be written."""
        return {"allow_functions": self.allow_functions, "code_paths": self.code_paths or ()}

    def check(self) -> None:
        """Refuse what nothing can be built with.

        Raises:
            InputError: metadata that are not plain, no requirements, no list of code paths, an unknown way to validate.
        """
        _plain_metadata(self.metadata)
        pip.check(self.pip_requirements)
        code.check(self.code_paths)
        if self.validate not in (None, "here", "process"):
            raise InputError("validate", f"{self.validate!r} is unknown", "pass 'here', 'process' or nothing")


def build(
    model: object,
    source_data: Table | Background,
    labels: ArrayLike | None,
    options: WrapOptions,
    packaging: Packaging,
    scratch: Path,
) -> Built:
    """Build the MLflow model folder in the empty folder `scratch`; return it once it is proved.

    Raises:
        InputError: anything that does not fit.
    """
    packaging.check()
    data, labels, counted = taken(source_data, labels)
    constraints = Constraints.read(options.constraints)
    functions = pickled.functions_of(constraints)
    if not packaging.allow_functions:
        fact = "is a Python function, which can only be stored as pickle"
        fix = "pass allow_functions=True, or write it as PLAF text"
        raise_all(InputError(f"constraints.{path}", fact, fix) for path in functions)
    options = replace(options, constraints=constraints)
    staged, model_folder, downloads = scratch / "staged", scratch / "inner", scratch / "downloads"
    downloads.mkdir()
    source = inner.address(model)
    if source is None:
        opened = open_native(model, output=packaging.output, rows=data)
    else:
        lineage = inner.copy(source, model_folder, downloads)
        opened = open_folder(model_folder, output=packaging.output, rows=data)
    packed = versions.pack(options.versions, scratch, data, packaging.output)
    drawn, options = drawn_models(model, opened, data, labels, options)
    others = OtherModels({one.version.name: one.model for one in packed}, drawn)
    explained = warned(assemble(opened, data, labels, options, others, counted))
    if not explained.policy.privacy.keeps_rows:
        _check_rowless(explained, data, packaging.input_example)
        for folder in [*([] if source is None else [model_folder]), *(one.folder for one in packed if one.lineage)]:
            inner.drop_example(folder)
    if source is None:
        writing = {"background": explained.background, **packaging.writing}
        lineage = inner.write(opened.remote or model, model_folder, inner_signature(explained.space, opened), **writing)
    code.add(packaging.code_paths or (), model_folder)
    where = _beside(explained, packed, packaging)
    further = pickled.requirements_of(functions)
    needed = pip.requirements([model_folder, *(one.folder for one in packed)], packaging.pip_requirements, further)
    meta = _write_pyfunc(staged, explained, packaging, needed)
    model_folder.rename(staged / INNER)
    if packed:
        (scratch / versions.FOLDER).rename(staged / versions.FOLDER)
    add_flavor(meta, staged, explained, {**lineage, **where}, packaging.output)
    _prove_everywhere(staged, explained, packaging.validate, scratch)
    return Built(staged, explained)


def _beside(explained: ExplainedModel, packed: Sequence[versions.Packed], packaging: Packaging) -> dict[str, Any]:
    """Write the versions that lie beside the model; return where."""
    beside = {
        one.version.name: one.written(explained.space, explained.background, **packaging.writing) for one in packed
    }
    return {versions.FOLDER: beside} if beside else {}


def _write_pyfunc(folder: Path, explained: ExplainedModel, packaging: Packaging, needed: pip.PipRequirements) -> Model:
    """Let MLflow write its own part: MLmodel, the environment files and the input example."""
    meta = Model(signature=signature_of(explained.space, explained.model, packaging.signature))
    mlflow.pyfunc.save_model(
        str(folder),
        loader_module=LOADER,
        mlflow_model=meta,
        input_example=_example(explained, packaging.input_example),
        pip_requirements=needed.lines,
        metadata=_plain_metadata(packaging.metadata),
    )
    for wheel in needed.wheels:
        (folder / pip.WHEELS).mkdir(exist_ok=True)
        shutil.copy(wheel, folder / pip.WHEELS)
    return meta


def add_flavor(
    meta: Model, folder: Path, explained: ExplainedModel, lineage: Mapping[str, Any], output: str | None
) -> None:
    """Write our own part, and seal everything: MLmodel names the manifest, which has a digest of its other fields."""
    conf = {
        "schema_version": manifest.SCHEMA_VERSION,
        "mlflow_cf_version": VERSION,
        "explainer": explained.explainer.name,
        **lineage,
    }
    meta.add_flavor(OWN_FLAVOR, **conf)
    # As they will be read, not as they stand in memory.
    fields = yaml.safe_load(meta.to_yaml())
    conf[MANIFEST_KEY] = files.write(folder, explained, output, fields_sha256(fields))
    meta.add_flavor(OWN_FLAVOR, **conf)
    meta.model_size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    meta.save(str(folder / MLMODEL))


def _example(explained: ExplainedModel, given: Any) -> tuple[pd.DataFrame, dict[str, Any]]:
    rows, params = given if isinstance(given, tuple) and len(given) == 2 else (given, EXAMPLE_PARAMS)
    rows = explained.background.head(EXAMPLE_ROWS) if rows is None else rows
    if not isinstance(rows, pd.DataFrame | np.ndarray) or not isinstance(params, Mapping) or not len(rows):
        raise InputError("input_example", "is neither rows nor (rows, params)", "pass a table, such as data.head(3)")
    rows = explained.space.read(rows).reset_index(drop=True)
    return example_rows(explained.space, rows), dict(params)


def _check_rowless(explained: ExplainedModel, data: Table, given: Any) -> None:
    """Refuse an input example with a row of data; what is no table is refused later."""
    rows = given[0] if isinstance(given, tuple) and given else given
    if not isinstance(rows, pd.DataFrame | np.ndarray):
        return
    space = explained.space
    shown, kept_out = (space.encode_rows(space.read(table))[0] for table in (rows, data))
    if any(same(kept_out, row).all(axis=1).any() for row in shown):
        fact = "has a row of data, which privacy.sample 'summary' keeps out of the artifact"
        raise InputError("input_example", fact, "leave it out, or pass rows of your own")


def prove(folder: Path, explained: ExplainedModel) -> list[Any]:
    """Load the folder as a server would; it must decide every background row and answer the example as before.

    Returns:
        The predictions of the input example.

    Raises:
        InputError: the model answers differently once it comes from disk.
    """
    served = mlflow.pyfunc.load_model(str(folder), suppress_warnings=True)
    again: ExplainedModel = served.get_raw_model()
    if not np.array_equal(again.outcome.codes, explained.outcome.codes):
        raise InputError(
            "model", "decides other rows once it is loaded from disk", "log it with MLflow and pass its URI"
        )
    meta: Any = Model.load(str(folder))
    rows, params = meta.load_input_example(str(folder)), meta.load_input_example_params(str(folder))
    plain = {PARAM: {**((params or {}).get(PARAM) or {}), "explain": "none"}}
    reply = served.predict(rows, plain)  # explains nothing, for that could be traced, and nobody has asked yet
    expected = explained.predict(rows, {PARAM: {"explain": "none"}})
    if list(reply["prediction"]) != list(expected["prediction"]):
        raise InputError(
            "model", "predicts the input example otherwise from disk", "log it with MLflow and pass its URI"
        )
    json.dumps(again.predict(rows, params).to_dict("records"), allow_nan=False)
    return list(expected["prediction"])


def _prove_everywhere(staged: Path, explained: ExplainedModel, validate: Validate | None, scratch: Path) -> None:
    """Prove an artifact here, and in a process of its own if that is asked for, or it needs code of the user's."""
    predicted = prove(staged, explained)
    if validate == "process" or (validate is None and code.needed(staged)):
        (scratch / "process").mkdir()
        prove_elsewhere(staged, predicted, scratch / "process")


def _plain_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return entries for MLmodel as JSON gives them back: each on its own, though the user may have shared parts."""
    try:
        plain: dict[str, Any] | None = None if metadata is None else json.loads(json.dumps(dict(metadata)))
    except (TypeError, ValueError, RecursionError) as error:
        fact = f"cannot be written to MLmodel ({type(error).__name__})"
        raise InputError("metadata", fact, "use plain dicts, lists, strings and numbers") from error
    return plain
