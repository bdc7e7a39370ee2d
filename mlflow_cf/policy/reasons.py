"""How owners word the reasons of unfavourable decisions, and what requests ask about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from mlflow_cf.errors import InputError, did_you_mean, raise_all
from mlflow_cf.validation import UserModel, validated

MOST_REASONS: Final = 4  # more are not likely to be helpful (Regulation B, official interpretation of 1002.9(b)(2))
MOST_CHARS: Final = 1_000  # of a text
ReferenceName = Literal["approved", "favourable_median"]


class Wording(UserModel):
    """The owner's words for a feature as a reason.

    Attributes:
        code: by which the owner's systems know the reason.
        text: the sentence of a letter.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: Annotated[StrictStr, Field(max_length=64)] = ""
    text: Annotated[StrictStr, Field(max_length=MOST_CHARS)] = ""


class ReasonOptions(BaseModel):
    """What a request asks of reasons.

    Attributes:
        reference: what the row is compared with: the mean of background rows that are decided as wanted
            (``approved``), or one row made of their medians (``favourable_median``).
        most: principal reasons.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    reference: ReferenceName = "approved"
    most: Annotated[StrictInt, Field(ge=1, le=100)] = MOST_REASONS

    @classmethod
    def read(cls, reference: str | None, most: int) -> ReasonOptions:
        """Return the options of a call; without the name of a reference where the call has one of its own.

        Raises:
            InputError: an unknown name, or no number of reasons.
        """
        named = {} if reference is None else {"reference": reference}
        return validated(cls, {**named, "most": most}, "")


ReasonsAsked = StrictBool | ReasonOptions
ReasonsSource = bool | ReasonOptions | Mapping[str, Any]


def check_features(wordings: Iterable[str], protected: Iterable[str], names: Iterable[str]) -> None:
    """Refuse wordings of, and protection for, features that a model does not have.

    Raises:
        InputError: an unknown name.
    """
    known = list(names)
    named = [*((f"reasons.{name}", name) for name in wordings), *((f"protected.{name}", name) for name in protected)]
    raise_all(
        InputError(path, "not a feature", did_you_mean(name, known, "features"))
        for path, name in named
        if name not in known
    )


def read_wordings(source: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return wordings by feature, where a bare string is a text.

    Raises:
        InputError: it is no mapping.
    """
    if source is None:
        return {}
    if not isinstance(source, Mapping):
        fact = f"a {type(source).__name__} does not name features"
        raise InputError("reasons", fact, "write {'income': {'code': 'C07', 'text': '...'}}")
    return {str(name): {"text": one} if isinstance(one, str) else one for name, one in source.items()}
