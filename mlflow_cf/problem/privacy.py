"""What requests may see of the background; the owner of an explained model sees all of it in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from mlflow_cf.validation import input_errors

Sample = Literal["private", "shown"]


class Privacy(BaseModel):
    """How much of the background leaves with replies to requests.

    Attributes:
        sample: ``private``: no message names its values, and no explainer that returns its rows answers a request;
            ``shown``: it is no secret.
        explainers: names that requests may ask for; None: the model's own, ``geco`` and ``exact`` where the sample is
            private, all of them where it is shown.
        k_anonymous: combinations of a group's values are proposed where more than so many background rows share them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sample: Sample = "private"
    explainers: tuple[StrictStr, ...] | None = None
    k_anonymous: Annotated[StrictInt, Field(ge=0)] = 5

    @classmethod
    def read(cls, source: Privacy | Mapping[str, Any] | None) -> Privacy:
        """Return privacy from an object, a dict or None for the defaults.

        Raises:
            InputError: an unknown key or a value of the wrong form.
        """
        if source is None or isinstance(source, Privacy):
            return source or cls()
        try:
            return cls.model_validate(dict(source))
        except ValidationError as error:
            raise input_errors(error, "privacy", cls, source) from None
