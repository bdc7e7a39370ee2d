"""The options with which a model is wrapped."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from mlflow_cf.constraints import Constraints, ConstraintSource, Values
from mlflow_cf.errors import InputError
from mlflow_cf.explainers import EXPLAINERS
from mlflow_cf.explainers.registry import ExplainerSource
from mlflow_cf.model.judge import Label, OpenModel
from mlflow_cf.model.versions import Version, read_versions
from mlflow_cf.policy import (
    Distance,
    Limits,
    Plausible,
    Policy,
    Privacy,
    RobustTo,
    Sealable,
    Target,
    Trace,
    WhyNotAsked,
)
from mlflow_cf.policy.limits import LEAST_DIFFERENCE, Diversity
from mlflow_cf.policy.reasons import read_wordings
from mlflow_cf.policy.survival import SurvivalSource, SurvivalWanted
from mlflow_cf.validation import Model, validated
from mlflow_cf.words.phrases import Language

TargetSource = Target | Mapping[str, Any] | Label | None
PlausibleSource = Plausible | Mapping[str, Any] | str | None
DistanceSource = Distance | tuple[float, float, float] | Mapping[str, Any]
Call = TypeVar("Call", bound=Callable[..., Any])
_NAMES = "            Names: EXPLAINERS."


def told_by(*kinds: type) -> Callable[[Call], Call]:
    """Return what puts the attributes of classes, as they tell them, where a docstring says ``(see `Kind`)``."""

    def with_their_words(call: Call) -> Call:
        for kind in kinds:
            told = (kind.__doc__ or "").partition("Attributes:\n")[2].rstrip()
            call.__doc__ = (call.__doc__ or "").replace(f"        (see `{kind.__name__}`)", told)
        names = ", ".join(f'``"{name}"``' for name in EXPLAINERS)
        names = textwrap.fill(f"Names: {names}.", 120, initial_indent=" " * 12, subsequent_indent=" " * 12)
        call.__doc__ = (call.__doc__ or "").replace(_NAMES, names)
        return call

    return with_their_words


@dataclass(frozen=True)
class WrapOptions:
    """How to explain a model: the keyword arguments that `wrap`, `save_model` and `log_model` share.

    Attributes:
        target: the wanted outcome: a label such as ``1`` or ``"good"``; ``Target(label=1, min_probability=0.7)``;
            ``Target.other()`` for any label but the row's own; ``Target(low=.., high=..)`` for a regression, with one
            side or both; or a dict of the same keys. None: 1, where the labels are 0 and 1.
        constraints: what every counterfactual must respect: `Constraints`, a dict, a YAML or JSON file, or PLAF text.
        explainer: what searches: a name, a dict of ``name`` and ``options``, or an object such as ``GeCo(q=200)``.
            Names: EXPLAINERS.
        features: facts that win over what the data suggest, by column: ``kind`` (real, integer, date, ordinal, category
            or boolean), ``levels`` (all of them; of an ordinal the lowest first), ``step`` between neighbouring
            numbers, ``low`` and ``high``; and how sentences tell them: ``label``, ``unit``, ``units`` and ``decimals``.
            ``{"grade": {"kind": "ordinal", "levels": ["C", "B", "A"]}, "income": {"unit": "EUR"}}``.
        distance: weights (l0, l1, linf) of the share of changed features, their mean change and the largest one, which
            add up to 1; or `Distance`, which can also scale and weigh features.
        values: which values may be proposed: ``"observed"`` in data; on the ``"grid"`` of a feature's steps from its
            lowest to its highest value; or any number between these (``"continuous"``).
        seed: seed of requests that name none; the same rows, query and seed get the same answer.
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
        language: of sentences: ``"en"`` or ``"de"``.
        reasons: the owner's codes and texts of reasons, by feature: ``{"income": {"code": "C07", "text": "Income
            insufficient for amount of credit requested"}}``.
        protected: features that are to carry no weight: where one does, `reasons` raise an alarm.
        survival: under how many of the models that retraining may give answers must hold: True, or a dict of ``holds``
            (0.95, a share of them) and ``confidence`` (0.9) that it holds under so many; ``models``: ``"bootstrap"``,
            ``"folds"`` or a list of retrained models; ``misses``: how many may refuse it, and ``required``.
    """

    target: TargetSource = None
    constraints: ConstraintSource = None
    explainer: ExplainerSource = "geco"
    features: Mapping[str, Mapping[str, Any]] | None = None
    distance: DistanceSource = (0.5, 0.5, 0.0)
    values: Values = "observed"
    seed: int = 0
    limits: Limits | Mapping[str, Any] | None = None
    certify: bool = False
    privacy: Privacy | Mapping[str, Any] | None = None
    seal: Sequence[Sealable] = ("target",)
    trace: bool | Trace = False
    robust_to: Sequence[object] = ()
    plausible: PlausibleSource = None
    margin: float = 0.0
    diversity: Diversity = "sets"
    min_difference: float = LEAST_DIFFERENCE
    why_not: WhyNotAsked = "quick"
    language: Language = "en"
    reasons: Mapping[str, Any] | None = None
    protected: Sequence[str] = ()
    survival: SurvivalSource = None

    @cached_property
    def versions(self) -> tuple[Version, ...]:
        """The other models with their names."""
        return read_versions(self.robust_to)

    @cached_property
    def surviving(self) -> SurvivalWanted | None:
        """The survival that is wanted, if there is one."""
        return SurvivalWanted.read(self.survival)

    def policy(self, model: OpenModel) -> Policy:
        """Return the policy these options make for `model`.

        Raises:
            InputError: what does not fit, by the names of arguments.
        """
        return validated(
            Policy,
            {
                "target": Target.read(self.target, model),
                "constraints": Constraints.read(self.constraints),
                "distance": Distance.read(self.distance),
                "values": self.values,
                "limits": _read(Limits, self.limits, "limits"),
                "seed": self.seed,
                "certify": self.certify,
                "privacy": _read(Privacy, self.privacy, "privacy"),
                "seal": _listed(self.seal),
                "trace": ("rows" if self.trace else "off") if isinstance(self.trace, bool) else self.trace,
                "robust_to": tuple(RobustTo(name=one.name, required=one.required) for one in self.versions),
                "plausible": Plausible.read(self.plausible),
                "survival": None if (wanted := self.surviving) is None else wanted.policy(wanted.wanted_models),
                "margin": self.margin,
                "diversity": self.diversity,
                "min_difference": self.min_difference,
                "why_not": self.why_not,
                "language": self.language,
                "reasons": read_wordings(self.reasons),
                "protected": _listed(self.protected),
            },
            "",
        )


def _read(kind: type[Model], source: Model | Mapping[str, Any] | None, path: str) -> Model:
    """Return an object of this kind as it is, or made of a dict; of None the one with all defaults.

    Raises:
        InputError: something else, or a dict with something wrong.
    """
    if source is not None and not isinstance(source, kind | Mapping):
        name = kind.__name__
        fix = f"write {{{next(iter(kind.model_fields))!r}: ...}}, or leave it out"
        raise InputError(path, f"{source!r:.60} is neither a dict nor an object of {name}", fix)
    return source if isinstance(source, kind) else validated(kind, dict(source or {}), path)


def _listed(source: object) -> object:
    """Return values as a tuple; a text or a single value stays as it is, to be refused."""
    return tuple(source) if isinstance(source, Iterable) and not isinstance(source, str) else source
