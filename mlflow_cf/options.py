"""The options with which a model is wrapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mlflow_cf.constraints import Constraints, ConstraintSource, Values
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
from mlflow_cf.policy.variety import LEAST_DIFFERENCE, Diversity
from mlflow_cf.validation import validated

TargetSource = Target | Mapping[str, Any] | Label | None
PlausibleSource = Plausible | Mapping[str, Any] | str | None
DistanceSource = Distance | tuple[float, float, float] | Mapping[str, Any]


@dataclass(frozen=True)
class WrapOptions:
    """How to explain a model: the keyword arguments that `wrap`, `save_model` and `log_model` share.

    Attributes:
        target: the wanted outcome; None infers it where two labels are 0 and 1.
        constraints: what every counterfactual must respect.
        explainer: a name, a dict of name and options, or an object.
        features: feature -> facts that win over what the data suggest: kind, levels, step, low, high.
        distance: weights of l0, l1 and l-infinity, or a `Distance`.
        values: which values may be proposed: observed, grid or continuous.
        seed: seed of requests that name none.
        limits: most a request may ask for.
        certify: always prove that answers are the nearest; the model must be one that can be opened.
        privacy: what requests may see of the background: `Privacy`, or a dict of sample (private, summary or shown),
            explainers and k_anonymous.
        seal: what requests cannot change at all: ``"target"``, or nothing.
        trace: make each served explanation an MLflow trace; ``"digests"``: with digests of its rows in their place.
        robust_to: other models under which answers must meet the same target.
        plausible: how much answers must look like the background.
        margin: by how much the probability of the wanted label must exceed the target's, or one half.
        diversity: which of several answers come first; min_difference: by how much they differ.
        why_not: how much is found out about rows without counterfactual: ``"quick"``, ``"full"`` or False.
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

    @cached_property
    def versions(self) -> tuple[Version, ...]:
        """The other models with their names."""
        return read_versions(self.robust_to)

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
                "limits": Limits.read(self.limits),
                "seed": self.seed,
                "certify": self.certify,
                "privacy": Privacy.read(self.privacy),
                "seal": self.seal if isinstance(self.seal, str) else tuple(self.seal),
                "trace": ("rows" if self.trace else "off") if isinstance(self.trace, bool) else self.trace,
                "robust_to": tuple(RobustTo(name=one.name, required=one.required) for one in self.versions),
                "plausible": Plausible.read(self.plausible),
                "margin": self.margin,
                "diversity": self.diversity,
                "min_difference": self.min_difference,
                "why_not": self.why_not,
            },
            "",
        )
