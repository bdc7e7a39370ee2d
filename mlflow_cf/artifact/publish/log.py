"""Save, log and load an explained model as an MLflow model.

Everything is built and proved in a temporary folder; MLflow sees it only when it is ready.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlflow.models import ModelSignature
from mlflow.models.model import ModelInfo
from numpy.typing import ArrayLike

from mlflow_cf.artifact import code, sources
from mlflow_cf.artifact.code import CodePaths
from mlflow_cf.artifact.load import load_folder
from mlflow_cf.artifact.publish.build import Packaging, Validate, build
from mlflow_cf.artifact.publish.hand_over import Publication
from mlflow_cf.artifact.publish.requirements import warn_of_pin
from mlflow_cf.constraints import ConstraintSource, Values
from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.features import Table
from mlflow_cf.model.flavors import fetch
from mlflow_cf.options import DistanceSource, PlausibleSource, TargetSource, WrapOptions
from mlflow_cf.policy import Limits, Privacy, Sealable, Trace, WhyNotAsked
from mlflow_cf.policy.variety import LEAST_DIFFERENCE, Diversity


def save_model(
    model: object,
    path: str | Path,
    data: Table,
    labels: ArrayLike | None = None,
    *,
    target: TargetSource = None,
    constraints: ConstraintSource = None,
    explainer: ExplainerSource = "geco",
    features: Mapping[str, Mapping[str, Any]] | None = None,
    distance: DistanceSource = (0.5, 0.5, 0.0),
    values: Values = "observed",
    seed: int = 0,
    limits: Limits | Mapping[str, Any] | None = None,
    certify: bool = False,
    privacy: Privacy | Mapping[str, Any] | None = None,
    seal: Sequence[Sealable] = ("target",),
    trace: bool | Trace = False,
    robust_to: Sequence[object] = (),
    plausible: PlausibleSource = None,
    margin: float = 0.0,
    diversity: Diversity = "sets",
    min_difference: float = LEAST_DIFFERENCE,
    why_not: WhyNotAsked = "quick",
    output: str | None = None,
    signature: ModelSignature | None = None,
    input_example: Any = None,
    pip_requirements: str | Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    allow_functions: bool = False,
    code_paths: CodePaths = (),
    validate: Validate | None = None,
) -> None:
    """Save an explained model as an MLflow model folder.

    Args:
        model: a fitted model or pipeline, an MLflow model URI or folder, a loaded pyfunc, or a function of a table.
        path: folder to write; it must be new or empty.
        data: sample of the training rows in the model's own raw input columns: a table, or an array (n, d). It becomes
            part of the artifact. A column that never varies here is never proposed.
        labels: (n,) training target of these rows, for explainers that use it.
        target: the wanted outcome: a label; ``Target(label=.., min_probability=..)``; ``Target.other()``, any but the
            row's own; ``Target(low=.., high=..)`` of a regression; or a dict of these keys. None: 1, where labels are
            0 and 1.
        constraints: what every counterfactual must respect: `Constraints`, a dict, a YAML or JSON file, or PLAF text.
        explainer: what searches: ``"geco"``, ``"exact"``, ``"ceocl"``, ``"nearest_row"``, ``"random_search"``, or an
            object such as ``GeCo(q=200)``.
        features: column -> facts that win over what the data suggest: kind (real, integer, date, ordinal, category or
            boolean), levels (all of them; of an ordinal the lowest first), step, low, high.
        distance: weights (l0, l1, linf) of the share of changed features, their mean change and the largest one, which
            add up to 1; or `Distance`, which can also scale and weigh features.
        values: which values may be proposed: ``"observed"`` in data, on the ``"grid"`` of a feature's steps, or
            ``"continuous"``: any number from its lowest to its highest.
        seed: seed of requests that name none.
        limits: most a request may ask for: `Limits`, or a dict of count, time_limit_s, rows, query and its other keys.
        certify: always prove that answers are the nearest; the model must be one that can be opened.
        privacy: what requests may see of the background: `Privacy`, or a dict of sample (private, summary or shown),
            explainers and k_anonymous.
        seal: what requests cannot change at all: ``"target"``, or nothing.
        trace: make each served explanation an MLflow trace; ``"digests"``: with digests of its rows in their place.
        robust_to: more models under which answers must meet the same target: fitted ones, MLflow model URIs or folders,
            or dicts of ``model``, ``name`` and ``required`` (False: only where a request asks for it).
        plausible: how much answers must look like data: ``"isolation_forest"``, which can be part of proofs, or
            ``"lof"``, or a dict of ``method``, ``quantile`` (0.05), ``threshold`` of the factor and ``required``.
        margin: by how much the probability of the wanted label must exceed the target's `min_probability`, or 0.5.
        diversity: which of several answers come first: the best of every set of changed features (``"sets"``), or the
            nearest ones (``"near"``).
        min_difference: several answers differ by a level, or in a number by this share of its range.
        why_not: how much is found out about rows without counterfactual: ``"quick"``, ``"full"``, or False for nothing,
            also by request.
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

    Raises:
        InputError: anything that does not fit. Nothing is left behind at `path` then.
    """
    folder = Path(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("path", f"{str(folder)!r} exists and is not an empty folder", "choose a new folder")
    options = WrapOptions(target, constraints, explainer, features, distance, values, seed, limits, certify, privacy,
                          seal, trace, robust_to, plausible, margin, diversity, min_difference, why_not)  # fmt: skip
    how = Packaging(output, signature, input_example, pip_requirements, metadata, allow_functions, code_paths, validate)
    with _built(model, data, labels, options, how) as staged, _removed_on_failure(folder):
        shutil.copytree(staged, folder, dirs_exist_ok=True)


def log_model(
    model: object,
    name: str,
    data: Table,
    labels: ArrayLike | None = None,
    *,
    target: TargetSource = None,
    constraints: ConstraintSource = None,
    explainer: ExplainerSource = "geco",
    features: Mapping[str, Mapping[str, Any]] | None = None,
    distance: DistanceSource = (0.5, 0.5, 0.0),
    values: Values = "observed",
    seed: int = 0,
    limits: Limits | Mapping[str, Any] | None = None,
    certify: bool = False,
    privacy: Privacy | Mapping[str, Any] | None = None,
    seal: Sequence[Sealable] = ("target",),
    trace: bool | Trace = False,
    robust_to: Sequence[object] = (),
    plausible: PlausibleSource = None,
    margin: float = 0.0,
    diversity: Diversity = "sets",
    min_difference: float = LEAST_DIFFERENCE,
    why_not: WhyNotAsked = "quick",
    output: str | None = None,
    registered_model_name: str | None = None,
    signature: ModelSignature | None = None,
    input_example: Any = None,
    pip_requirements: str | Sequence[str] | None = None,
    tags: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    allow_functions: bool = False,
    code_paths: CodePaths = (),
    validate: Validate | None = None,
) -> ModelInfo:
    """Log an explained model to MLflow, in the active run if there is one, and register it if asked to.

    Args:
        model: a fitted model or pipeline, an MLflow model URI or folder, a loaded pyfunc, or a function of a table.
        name: name of the logged model.
        data: sample of the training rows in the model's own raw input columns: a table, or an array (n, d). It becomes
            part of the artifact. A column that never varies here is never proposed.
        labels: (n,) training target of these rows, for explainers that use it.
        target: the wanted outcome: a label; ``Target(label=.., min_probability=..)``; ``Target.other()``, any but the
            row's own; ``Target(low=.., high=..)`` of a regression; or a dict of these keys. None: 1, where labels are
            0 and 1.
        constraints: what every counterfactual must respect: `Constraints`, a dict, a YAML or JSON file, or PLAF text.
        explainer: what searches: ``"geco"``, ``"exact"``, ``"ceocl"``, ``"nearest_row"``, ``"random_search"``, or an
            object such as ``GeCo(q=200)``.
        features: column -> facts that win over what the data suggest: kind (real, integer, date, ordinal, category or
            boolean), levels (all of them; of an ordinal the lowest first), step, low, high.
        distance: weights (l0, l1, linf) of the share of changed features, their mean change and the largest one, which
            add up to 1; or `Distance`, which can also scale and weigh features.
        values: which values may be proposed: ``"observed"`` in data, on the ``"grid"`` of a feature's steps, or
            ``"continuous"``: any number from its lowest to its highest.
        seed: seed of requests that name none.
        limits: most a request may ask for: `Limits`, or a dict of count, time_limit_s, rows, query and its other keys.
        certify: always prove that answers are the nearest; the model must be one that can be opened.
        privacy: what requests may see of the background: `Privacy`, or a dict of sample (private, summary or shown),
            explainers and k_anonymous.
        seal: what requests cannot change at all: ``"target"``, or nothing.
        trace: make each served explanation an MLflow trace; ``"digests"``: with digests of its rows in their place.
        robust_to: more models under which answers must meet the same target: fitted ones, MLflow model URIs or folders,
            or dicts of ``model``, ``name`` and ``required`` (False: only where a request asks for it).
        plausible: how much answers must look like data: ``"isolation_forest"``, which can be part of proofs, or
            ``"lof"``, or a dict of ``method``, ``quantile`` (0.05), ``threshold`` of the factor and ``required``.
        margin: by how much the probability of the wanted label must exceed the target's `min_probability`, or 0.5.
        diversity: which of several answers come first: the best of every set of changed features (``"sets"``), or the
            nearest ones (``"near"``).
        min_difference: several answers differ by a level, or in a number by this share of its range.
        why_not: how much is found out about rows without counterfactual: ``"quick"``, ``"full"``, or False for nothing,
            also by request.
        output: what a model without known outputs returns: ``"label"``, ``"score"`` or ``"value"``.
        registered_model_name: registers a version under this name.
        tags: tags of the logged model and of the registered version.
        signature: another signature than the one made from data; its param is always ours.
        input_example: rows, or (rows, params); None: the first rows of data.
        pip_requirements: requirements of the model, instead of the ones it brings; mlflow-cf is always added.
        metadata: entries for MLmodel.
        allow_functions: whether Python functions, as the model or as parts of actions and relationships, may be saved:
            as pickles, which run code when they are loaded. Those of a module are stored by name.
        code_paths: files of modules and folders of packages of your own that the model needs, as in MLflow's own
            flavors: the artifact brings them along, and its manifest seals them.
        validate: where the finished artifact is tried: ``"here"``, or also in a new ``"process"``, which knows nothing
            but installed packages and the artifact; None: there too, if the model needs code of your own.

    Raises:
        InputError: anything that does not fit. Nothing is logged then.
    """
    options = WrapOptions(target, constraints, explainer, features, distance, values, seed, limits, certify, privacy,
                          seal, trace, robust_to, plausible, margin, diversity, min_difference, why_not)  # fmt: skip
    how = Packaging(output, signature, input_example, pip_requirements, metadata, allow_functions, code_paths, validate)
    publication = Publication.prepared(name, registered_model_name, tags)
    with publication.withdrawn_on_failure(), _built(model, data, labels, options, how) as staged:
        info = publication.publish(staged)
        warn_of_pin(pip_requirements)
        return info


def load_model(model_uri: str | Path) -> ExplainedModel:
    """Load an explained model from an MLflow URI or a folder.

    Raises:
        InputError: there is nothing at that address.
        ArtifactError: it is not an explained model, incomplete, altered, of an unknown version, or forged; or it has
            Python functions, and MLFLOW_ALLOW_MODEL_CODE_EXECUTION or MLFLOW_ALLOW_PICKLE_DESERIALIZATION forbids to
            load them.
    """
    return load_folder(fetch(model_uri))


@contextmanager
def _built(
    model: object, data: Table, labels: ArrayLike | None, options: WrapOptions, packaging: Packaging
) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mlflow-cf-") as scratch, sources.no_bytecode():
        try:
            yield build(model, data, labels, options, packaging, Path(scratch))
        finally:
            code.forget(Path(scratch))


@contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    """Leave `folder` as it was, if it was there: empty."""
    before = folder.exists()
    new = [parent for parent in folder.absolute().parents if not parent.exists()]
    try:
        yield
    except BaseException:
        for left in folder.iterdir() if before else [new[-1] if new else folder]:
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
        raise
