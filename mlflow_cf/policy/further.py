"""Further requirements on answers: that they hold under other models, and that they look like the background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from mlflow_cf.errors import InputError
from mlflow_cf.validation import Number, validated

Margin = Annotated[Number, Field(ge=0, lt=0.5)]
Quantile = Annotated[Number, Field(ge=0, le=0.5)]
Threshold = Annotated[Number, Field(ge=1, le=100)]
# Of another model; it is a folder of the artifact, so that it cannot lead out of it.
VersionName = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Method = Literal["isolation_forest", "lof"]
MOST_VERSIONS = 16
# What may be asked of a call in Python, and of a request: names of models in the artifact, or all of them.
VersionsAsked = bool | tuple[str, ...]
AnyVersions = Sequence[object] | bool | None


class RobustTo(BaseModel):
    """Another model under which answers must meet the same target (robustness).

    Attributes:
        name: by which requests and reasons name the model.
        required: whether every answer must hold under it, or only where a request asks for that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: VersionName
    required: StrictBool = True


class Plausible(BaseModel):
    """How plausible answers must be: how much they look like the background.

    Attributes:
        method: ``isolation_forest``, which can be a part of proofs, or ``lof``, which is only checked.
        quantile: an answer must be at least as normal as all but this share of the background rows.
        threshold: the largest local outlier factor of an answer, instead of a quantile; scikit-learn's is 1.5. None: by
            the quantile.
        required: whether every answer must be, or only where a request asks for that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Method = "isolation_forest"
    quantile: Quantile = 0.05
    threshold: Threshold | None = None
    required: StrictBool = True

    @classmethod
    def read(cls, source: Plausible | Mapping[str, Any] | str | None) -> Plausible | None:
        """Return the requirement from an object, a dict or the method's name; None stays None.

        Raises:
            InputError: an unknown key, a value out of bounds, or neither dict nor name.
        """
        if source is None or isinstance(source, Plausible):
            return source
        if not isinstance(source, str | Mapping):
            raise InputError("plausible", f"{source!r:.60} is no plausibility", "write 'isolation_forest' or 'lof'")
        data = {"method": source} if isinstance(source, str) else dict(source)
        read = validated(cls, data, "plausible")
        if read.threshold is not None:
            if read.method != "lof":
                raise InputError("plausible.threshold", "only a local outlier factor has one", "use method 'lof'")
            if "quantile" in data:
                raise InputError("plausible", "has a quantile and a threshold", "give one of them")
        return read


class Plausibly(BaseModel):
    """The plausibility that a request asks of answers, at least that of the policy.

    Attributes:
        quantile: instead of the policy's, a larger one, which is stricter.
        threshold: instead of the policy's, a smaller one, which is stricter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantile: Quantile | None = None
    threshold: Threshold | None = None

    def tightened(self, policy: Plausible) -> Plausible:
        """Return the requirement on a request's answers, under a policy.

        Raises:
            InputError: it is less strict than the policy, or by the other method.
        """
        asked = self.quantile if policy.threshold is None else self.threshold
        other = self.threshold if policy.threshold is None else self.quantile
        name, mine = ("quantile", policy.quantile) if policy.threshold is None else ("threshold", policy.threshold)
        if other is not None:
            unknown = "threshold" if name == "quantile" else "quantile"
            fact = f"the policy asks for a {name}"
            raise InputError(f"plausible.{unknown}", fact, f"ask for plausible.{name}, or leave it out")
        if asked is None:
            return policy
        less = asked < mine if name == "quantile" else asked > mine
        if policy.required and less:
            fact = f"{asked} is {'less' if name == 'quantile' else 'more'} than the policy's {mine}"
            fix = f"ask for {'more' if name == 'quantile' else 'less'}, or leave it out"
            raise InputError(f"plausible.{name}", fact, fix)
        return policy.model_copy(update={name: asked})


PlausiblyAsked = bool | Plausibly
