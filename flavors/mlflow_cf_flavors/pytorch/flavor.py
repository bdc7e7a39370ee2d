"""PyTorch's networks: modules, and the exported graphs that MLflow logs of them.

A network does not say what its answers mean. Where it ends in a sigmoid of one number or in a softmax they are
probabilities, and where they are whole numbers they are labels. All else is said by `output`.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final, NoReturn

import numpy as np
import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.pyfunc import PyFuncModel
from mlflow.types import Schema, TensorSpec

from mlflow_cf.errors import InputError
from mlflow_cf.features import ColumnName, FeatureSpace
from mlflow_cf.model import OpenModel, ScoreKind, switches
from mlflow_cf.quiet import quietly
from mlflow_cf.structures import Layers, Link, NotOpenedError
from mlflow_cf.words.statements import say
from mlflow_cf_flavors.answers import (
    LABELS_ONLY,
    Answers,
    Floats,
    LargestScore,
    OwnAnswers,
    Rows,
    check_answers,
    check_columns,
    learned_labels,
    margins,
    shares,
)
from mlflow_cf_flavors.layers import Affine, Curved, Layer
from mlflow_cf_flavors.pytorch.chain import Chain, Kept, compile_chain, read
from mlflow_cf_flavors.pytorch.recording import Module, record
from mlflow_cf_flavors.sklearn.calls import Named, OneThread, whole

MLFLOW_FLAVOR: Final = "pytorch"

FEW: Final = 50  # rows that are asked together, and the first of them alone
_PRECISIONS: Final = ("float32", "float64", "float16", "bfloat16")  # MLflow hands over the first one
_LOG: Final = "log it with mlflow.pytorch.log_model(model, name='model') and pass the model_uri of what it returns"
_LOGITS: Final = "its scores are logits: {rule}; a network that ends in {end} has probabilities"


@dataclass(frozen=True, eq=False)
class LoggedNetwork:
    """A network with the columns that its signature names, in order; none if it names none."""

    module: Module
    columns: tuple[ColumnName, ...] = ()


def accepts(model: object) -> bool:
    """Return whether `model` is a module of PyTorch, or MLflow has loaded one."""
    if isinstance(model, PyFuncModel):
        return MLFLOW_FLAVOR in model.metadata.flavors
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def load(path: Path) -> object:
    """Load the network of an MLflow model folder through MLflow's own loader; a pickle only where that is allowed.

    Raises:
        ArtifactError: one of MLflow's switches forbids to unpickle.
    """
    import mlflow.pytorch

    meta = Model.load(str(path))
    pickled = (path / str(meta.flavors[MLFLOW_FLAVOR]["model_data"]) / "model.pth").is_file()
    if pickled:
        switches.check("model", "is a pickle of a PyTorch module", *switches.PICKLES)
    module = mlflow.pytorch.load_model(str(path), **({"weights_only": False} if pickled else {}))
    return LoggedNetwork(module, _columns(meta.get_input_schema()))


def requirements(model: object) -> list[str]:
    """Return pinned requirements that restore `model`."""
    del model
    return [f"{package}=={version(package).partition('+')[0]}" for package in ("torch", "numpy", "pandas")]


def save(
    model: object, path: Path, *, signature: object, pip_requirements: list[str], allow_functions: bool = False
) -> None:
    """Write a network as an MLflow model folder that holds its exported graph, without any pickle.

    Raises:
        InputError: PyTorch cannot export it.
    """
    import mlflow.pytorch

    del allow_functions  # a graph holds none
    inputs = signature.inputs if isinstance(signature, ModelSignature) else None
    rows = np.zeros((2, len(inputs.inputs) if inputs is not None else 1), dtype=np.float32)
    tensors = ModelSignature(Schema([TensorSpec(rows.dtype, (-1, rows.shape[1]))]))
    try:
        mlflow.pytorch.save_model(
            _private(model),
            str(path),
            signature=tensors,
            input_example=rows,
            pip_requirements=pip_requirements,
            serialization_format="pt2",
        )
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        fact = f"PyTorch cannot export {type(model).__name__} ({type(error).__name__}: {reason})"
        fix = "log it with mlflow.pytorch.log_model(model, name='model', serialization_format='pickle')"
        raise InputError("model", fact, f"{fix} and pass the model_uri of what it returns") from error


def open(model: object, *, output: str | None = None, rows: pd.DataFrame | None = None) -> OpenModel:
    """Open a network that takes one tensor (n, features) and answers one, (n,) or (n, k).

    Its columns are those its signature names, or all of `rows` in their order. `output` says what it answers, where it
    does not say so itself: ``score`` (one column: likelier above 0, or above 0.5 behind a sigmoid; several: the
    largest), ``value`` or ``label``.

    Raises:
        InputError: what its answers mean is not known, or they are nothing of the kind.
    """
    if output not in (None, "label", "score", "value"):
        raise InputError("output", f"{output!r} is not known", "use 'label', 'score' or 'value'")
    given = _network(model)
    if rows is None or not len(rows):
        fact = "rows are needed to learn what this network answers"
        raise InputError("data", fact, "pass rows of the training table")
    check_columns(given.columns, rows)
    rows = rows.loc[:, list(given.columns)] if given.columns else rows
    ask = _ask(given, rows)
    gap = np.flatnonzero(rows.isna().any(axis=1))[:1]
    for some in (rows.iloc[:FEW], rows.iloc[gap]):
        check_answers(OpenModel(MLFLOW_FLAVOR, (), ask), some, _wrong_rows(rows))
    answers = ask(rows.iloc[:FEW])
    _check_steady(ask, rows, answers)
    chain = _chain(given.module, len(given.columns) or rows.shape[1], ask.dtype)
    opened = _opened(_Answering(ask, chain, answers, rows), output)
    return replace(opened, columns=given.columns, tolerance=1e-6 if ask.dtype == "float64" else 1e-5)


@dataclass(frozen=True, eq=False)
class _Ask:
    """Rows -> the network's raw answers, (n, k), of its own type.

    Attributes:
        call: a tensor -> the answer; select: rows -> its columns.
        dtype: in which precision it takes numbers.
    """

    call: OneThread
    select: Rows
    dtype: str

    def __call__(self, rows: pd.DataFrame) -> Answers:
        import torch

        numbers = self.select(rows).to_numpy(dtype=self.kept, na_value=np.nan, copy=True)
        with torch.no_grad():
            answer = self.call(torch.from_numpy(numbers).to(getattr(torch, self.dtype)))
        answer = answer.detach().cpu()
        found: Answers = (answer.double() if answer.is_floating_point() else answer).numpy()
        if len(rows) and (not found.size or found.size % len(rows)):
            raise ValueError(f"answers of shape {found.shape} for {len(rows)} rows")
        found = found.reshape(len(rows), -1)
        if not np.isfinite(found).all():
            raise ValueError("answers that are not finite, such as those for missing values")
        return found

    @property
    def kept(self) -> Kept:
        """What holds its numbers on their way to it."""
        return np.float64 if self.dtype == "float64" else np.float32


@dataclass(frozen=True, eq=False)
class _Answering:
    """What is known of a network's answers.

    Attributes:
        ask: rows -> raw answers; chain: its layers; answers: those for `rows`, some rows.
    """

    ask: _Ask
    chain: Chain
    answers: Answers
    rows: pd.DataFrame

    @property
    def width(self) -> int:
        """How many numbers it answers for a row."""
        return int(self.answers.shape[1])

    @property
    def end(self) -> str:
        """What its answers are made by, if they are probabilities by that; else ""."""
        ending = self.chain.ending
        fits = self.width == 1 if ending == "sigmoid" else ending in ("softmax", "log_softmax") and self.width > 1
        return ending if fits else ""


@dataclass(frozen=True)
class _Scores:
    """Rows -> one column per class, (n, k) float64.

    Attributes:
        ask: rows -> raw answers; end: what these are made by.
        margin: whether a single answer is a margin.
    """

    ask: _Ask
    end: str
    margin: bool

    def __call__(self, rows: pd.DataFrame) -> Floats:
        answers = np.asarray(self.ask(rows), dtype=np.float64)
        if self.end == "log_softmax":
            return np.asarray(np.exp(answers))
        if answers.shape[1] > 1:
            return answers
        return (margins if self.margin else shares)(answers[:, 0])


def _opened(known: _Answering, output: str | None) -> OpenModel:
    """Return the model of a network by what it answers, which `output` may have to say."""
    whole_numbers = known.answers.dtype.kind in "iub"
    if output == "value":
        return _open_values(known)
    if output == "label" or (output is None and whole_numbers):
        return _open_labels(known)
    if output is None and not known.end:
        _refuse_ambiguous(known)
    return _open_scores(known)


def _refuse_ambiguous(known: _Answering) -> NoReturn:
    """Refuse answers that may mean several things, and say which."""
    after = f"behind its last function, {known.chain.ending}" if known.chain.ending else "whose origin it does not show"
    if known.width == 1:
        fix = "pass output='value' if it is one, or output='score' if it is a logit: label 1 above 0"
        raise InputError("output", f"the network answers one number, {after}", fix)
    fix = "pass output='score' if they are scores, one per label: the largest decides; or wrap one model per output"
    raise InputError("output", f"the network answers {known.width} numbers, {after}", fix)


def _open_values(known: _Answering) -> OpenModel:
    if known.width > 1:
        raise InputError("model", f"answers {known.width} values per row", "wrap one model per output")
    ends = {"sigmoid": (Curved("logistic"),)}  # a value from 0 to 1
    inside = partial(_compile, known, ends.get(known.chain.ending, ()), "identity")
    decide = OwnAnswers(known.ask, whole, np.float64)
    return OpenModel(MLFLOW_FLAVOR, (), decide, compile=inside)


def _open_labels(known: _Answering) -> OpenModel:
    if known.width > 1:
        fix = "pass output='score' if they are scores, one per label"
        raise InputError("model", f"answers {known.width} numbers per row", fix)
    labels = learned_labels(known.ask(known.rows)[:, 0])
    return OpenModel(MLFLOW_FLAVOR, labels, OwnAnswers(known.ask, whole), notes=(LABELS_ONLY,))


def _open_scores(known: _Answering) -> OpenModel:
    """Open what scores labels 0, 1, ...; of one answer label 1 is the likelier one above the threshold."""
    end, single = known.end, known.width == 1
    inside = bool(((known.answers >= 0) & (known.answers <= 1)).all())
    hidden = not known.chain.ending and inside  # nobody sees where they come from: read as any pyfunc's answers are
    margin = not (end or hidden)
    scores, classes = _Scores(known.ask, end, margin), tuple(range(max(2, known.width)))
    kind: ScoreKind = "margin" if margin else "probability"
    later: tuple[Layer, ...] = (Affine(np.array([[-1.0, 1.0]]), np.zeros(2)),) if single and margin else ()
    link: Link = "identity" if margin else "sigmoid" if single else "softmax"
    rule = "label 1 above 0" if single else "the largest decides"
    note = _LOGITS.format(rule=rule, end="Sigmoid" if single else "Softmax")
    decide = LargestScore(scores, classes)
    compile_ = partial(_compile, known, later, link)
    notes = (note,) if margin else ()
    return OpenModel(MLFLOW_FLAVOR, classes, decide, scores, kind, (), notes, decide.both, compile=compile_)


def _compile(
    known: _Answering, later: tuple[Layer, ...], link: Link, space: FeatureSpace, rows: pd.DataFrame
) -> Layers:
    del rows  # a network has the same columns for all rows
    if link == "identity" and known.width > 1 and known.chain.ending == "sigmoid":
        raise NotOpenedError(say("independent_scores"))
    return compile_chain(known.chain, later, link, known.ask.kept, space)


def _chain(module: Module, features: int, dtype: str) -> Chain:
    """Return the layers of a network, or why they are not known."""
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        return Chain((), "", unknown=say("no_calls", kind="TorchScript"))
    try:
        with quietly():  # of what the network does; nobody asked it yet
            return read(record(module, features, getattr(torch, dtype)))
    except Exception as error:  # noqa: BLE001  any network, any error: it is still asked itself
        kind = f"{type(module).__name__}: {type(error).__name__}"
        return Chain((), "", unknown=say("no_calls", kind=kind))


def _ask(given: LoggedNetwork, rows: pd.DataFrame) -> _Ask:
    """Return how to ask a network: in single precision as MLflow does, or in its own if it refuses that."""
    select: Rows = Named(tuple(map(str, given.columns))) if given.columns else whole
    own = {str(tensor.dtype).removeprefix("torch.") for tensor in given.module.parameters()}
    asks = [_Ask(OneThread(given.module), select, dtype) for dtype in _PRECISIONS]
    for ask in asks:
        if ask.dtype == "float32" or ask.dtype in own:
            try:
                ask(rows.iloc[:2])
            except RuntimeError:  # PyTorch's of numbers of another precision
                continue
            except Exception:  # noqa: BLE001  the rows are checked, and refused with a reason, by whoever opens the model
                break
            return ask
    return asks[0]


def _check_steady(ask: _Ask, rows: pd.DataFrame, answers: Answers) -> None:
    """Refuse a network that answers the first row otherwise when it is asked alone, but for rounding."""
    alone = ask(rows.iloc[:1])
    if answers.shape[1] != alone.shape[1] or not np.allclose(answers[:1], alone, rtol=1e-3, atol=1e-5):
        fix = "switch it to evaluation mode (model.eval()) before it is exported or logged"
        raise InputError("model", "answers a row in another way when it is asked alone", fix)


def _network(model: object) -> LoggedNetwork:
    """Return a network of ours in evaluation mode, which what happens to the one that was given does not change."""
    if isinstance(model, LoggedNetwork):
        return replace(model, module=_evaluating(model.module))
    if isinstance(model, PyFuncModel):
        return LoggedNetwork(_private(model.get_raw_model()), _columns(model.metadata.get_input_schema()))
    return LoggedNetwork(_private(model))


def _private(module: Module) -> Module:
    """Return a copy on the processor in evaluation mode; an exported graph as it is, which has no modes."""
    import torch

    if isinstance(module, torch.fx.GraphModule):
        return module
    try:
        private = copy.deepcopy(module)
    except Exception as error:
        raise InputError("model", f"{type(module).__name__} cannot be copied ({type(error).__name__})", _LOG) from error
    elsewhere = any(tensor.device.type != "cpu" for tensor in private.parameters())
    return _evaluating(private.to("cpu") if elsewhere else private)


def _evaluating(module: Module) -> Module:
    import torch

    return module if isinstance(module, torch.fx.GraphModule) else module.eval()


def _columns(schema: Schema | None) -> tuple[ColumnName, ...]:
    """Return the columns that a signature names."""
    if schema is None or schema.is_tensor_spec() or not schema.has_input_names():
        return ()
    return tuple(schema.input_names())


def _wrong_rows(rows: pd.DataFrame) -> str:
    """Return how to right a table with text or gaps in it; empty if there are none."""
    text = [str(name) for name, dtype in rows.dtypes.items() if dtype.kind not in "biuf" and str(dtype) != "category"]
    if text:
        return f"a network takes numbers alone: encode {text} before, or leave them out"
    gaps = [str(name) for name in rows.columns[rows.isna().any()]]
    return f"fill what is missing in {gaps} before, or in the network by torch.nan_to_num" if gaps else ""
