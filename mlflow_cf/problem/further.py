"""What may be asked of answers besides the target: to hold under other models, to look like the background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr

from mlflow_cf.errors import InputError
from mlflow_cf.validation import Number, validated

Margin = Annotated[Number, Field(ge=0, lt=0.5)]
Quantile = Annotated[Number, Field(ge=0, le=0.5)]
# Of another model; it is a folder of the artifact, so that it cannot lead out of it.
VersionName = Annotated[StrictStr, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
Method = Literal["isolation_forest", "lof"]
MOST_VERSIONS = 16
# What may be asked of a call in Python, and of a request: names of models in the artifact, or all of them.
VersionsAsked = bool | tuple[str, ...]
AnyVersions = Sequence[object] | bool | None


class RobustTo(BaseModel):
    """Another model under which answers must meet the same target.

    Attributes:
        name: by which requests and reasons name it.
        required: whether every answer must hold under it, or only where a request asks for that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: VersionName
    required: StrictBool = True


class Plausible(BaseModel):
    """How much an answer must look like the background.

    Attributes:
        method: ``isolation_forest``, which can be a part of proofs, or ``lof``, which is only checked.
        quantile: an answer must be at least as normal as all but this share of the background rows.
        required: whether every answer must be, or only where a request asks for that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Method = "isolation_forest"
    quantile: Quantile = 0.05
    required: StrictBool = True

    @classmethod
    def read(cls, source: Plausible | Mapping[str, Any] | str | None) -> Plausible | None:
        """Return it from an object, a dict or the method's name; None stays None.

        Raises:
            InputError: an unknown key or a value out of bounds.
        """
        if source is None or isinstance(source, Plausible):
            return source
        data = {"method": source} if isinstance(source, str) else dict(source)
        return validated(cls, data, "plausible")


class Plausibly(BaseModel):
    """What a request may ask of the plausibility of answers.

    Attributes:
        quantile: another one than the policy's: a larger one, which asks for more.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    quantile: Quantile | None = None

    def tightened(self, policy: Plausible) -> float:
        """Return the quantile that holds for a request under a policy.

        Raises:
            InputError: it asks for less than the policy.
        """
        if self.quantile is None:
            return float(policy.quantile)
        if policy.required and self.quantile < policy.quantile:
            fact = f"{self.quantile} is less than the policy's {policy.quantile}"
            raise InputError("plausible.quantile", fact, "ask for more, or leave it out")
        return float(self.quantile)


PlausiblyAsked = bool | Plausibly
