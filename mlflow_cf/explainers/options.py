"""Options of explainers: what each of them takes, in Python and by request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from pydantic import Field, StrictInt

from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace
from mlflow_cf.validation import Number


@dataclass(frozen=True)
class Span:
    """The numbers that an option takes.

    Attributes:
        least, most: both included.
        whole: whether only whole numbers count.
        optional: whether it may be None.
    """

    least: float
    most: float
    whole: bool = False
    optional: bool = False

    def check(self, path: str, value: object) -> None:
        """Refuse what is no such number.

        Raises:
            InputError: naming `path`.
        """
        if value is None and self.optional:
            return
        kinds = (int,) if self.whole else (int, float)
        if type(value) not in kinds or not self.least <= value <= self.most:  # type: ignore[operator]
            what = "whole number" if self.whole else "number"
            raise InputError(path, f"{value!r} is no {what} from {self.least:,g} to {self.most:,g}", "")

    @property
    def asked(self) -> Any:
        """The type by which a request is checked."""
        kind: Any = StrictInt if self.whole else Number
        kept: Any = Annotated[kind, Field(ge=self.least, le=self.most)]
        return kept | None if self.optional else kept


Options = Mapping[str, Any]  # name -> a `Span`, or a `Literal` of texts


def check_options(explainer: object, options: Options) -> None:
    """Refuse an explainer whose options are not what they may be.

    Raises:
        InputError: ``explainer.<option>``, with what is wrong and what to use.
    """
    for name, kept in options.items():
        path, value = f"explainer.{name}", getattr(explainer, name)
        if isinstance(kept, Span):
            kept.check(path, value)
        elif isinstance(value, bool) or value not in get_args(kept):
            raise InputError(path, f"{value!r} is unknown", f"use one of {', '.join(map(str, get_args(kept)))}")


def check_names(path: str, names: Iterable[str], space: FeatureSpace) -> None:
    """Refuse names of features that are not there.

    Raises:
        InputError: ``<path>.<name>``, with the nearest name.
    """
    for name in names:
        if name not in space.index:
            raise InputError(f"{path}.{name}", "not a feature", did_you_mean(name, space.names, "features"))


def asked(options: Options, names: Sequence[str] = ()) -> dict[str, Any]:
    """Return what requests may set: all options, or some by name, with the type that each is checked by."""
    kept = options if not names else {name: options[name] for name in names}
    return {name: one.asked if isinstance(one, Span) else one for name, one in kept.items()}
