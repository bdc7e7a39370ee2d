"""The wanted outcome: a label, a label other than now, or an interval of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.judge import Label, OpenModel
from mlflow_cf.validation import input_errors

Finite = StrictInt | Annotated[StrictFloat, Field(allow_inf_nan=False)]


class Target(BaseModel):
    """What a counterfactual must be predicted as.

    Attributes:
        label: the wanted label; `min_probability` (inclusive) comes on top of the model's own decision for it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: StrictBool | StrictStr | Finite
    min_probability: Annotated[Finite, Field(ge=0, le=1)] | None = None

    @classmethod
    def read(cls, source: Target | Mapping[str, Any] | Label | None, model: OpenModel) -> Target:
        """Return a target the model knows.

        Args:
            source: a target, its dict, a bare label, or None to infer the favourable label (1 or True of two classes).
            model: whose labels count.

        Raises:
            InputError: nothing to infer from, a label the model does not know, or a probability it cannot give.
        """
        if source is None:
            target = cls(label=_favourable(model))
        elif isinstance(source, Target):
            target = source
        else:
            data = dict(source) if isinstance(source, Mapping) else {"label": _plain(source)}
            try:
                target = cls.model_validate(data)
            except ValidationError as error:
                raise input_errors(error, "target", cls, data) from None
        target.check(model)
        return target

    def check(self, model: OpenModel) -> None:
        """Refuse a target `model` cannot meet."""
        if not model.classes:
            raise InputError("target", "the model predicts numbers, not labels", "explain a classifier")
        if self._column(model) is None:
            raise InputError(
                "target.label",
                f"the model does not know {self.label!r}",
                did_you_mean(self.label, model.classes, "labels"),
            )
        if self.min_probability is not None and model.score_kind != "probability":
            raise InputError("target.min_probability", "the model gives no probabilities", "leave it out")

    def column(self, model: OpenModel) -> int:
        """Return the position of the wanted label among the model's classes."""
        column = self._column(model)
        if column is None:
            raise InputError("target.label", f"the model does not know {self.label!r}", "")
        return column

    def _column(self, model: OpenModel) -> int | None:
        same = (c == self.label and isinstance(c, str) == isinstance(self.label, str) for c in model.classes)
        return next((position for position, found in enumerate(same) if found), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the target as plain JSON values."""
        return self.model_dump(mode="json", exclude_none=True)


def _favourable(model: OpenModel) -> Label:
    if len(model.classes) == 2 and set(model.classes) == {0, 1}:
        return model.classes[model.classes.index(1)]
    labels = ", ".join(map(repr, model.classes))
    raise InputError("target", f"the favourable label cannot be inferred from {labels}", "name it, e.g. target='good'")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
