"""The constraint that a rule comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Source = Literal["policy", "request"]
Key = Literal[
    "immutable",
    "increasing",
    "decreasing",
    "ranges",
    "relative",
    "levels",
    "forbidden",
    "groups",
    "max_changes",
    "rules",
    "causal",
    "actions",
    "relationships",
    "min_probability",
    "margin",
    "robust_to",
    "plausible",
]
# Keys that stand beside the constraints.
_ELSEWHERE: Final = {"min_probability": "target.min_probability"} | {k: k for k in ("margin", "robust_to", "plausible")}


@dataclass(frozen=True)
class Origin:
    """One constraint, in the smallest unit that can be left out.

    Attributes:
        source: whether the policy or the request has it.
        key: the key it stands under; `min_probability` stands in the target.
        name: the feature it is about, if its key goes by feature, or the model of ``robust_to``.
        position: its place in the list of its key (and feature), if that is a list of constraints.
        beside_request: whether a request adds constraints, so that messages tell which ones are the policy's.
    """

    source: Source
    key: Key
    name: str = ""
    position: int | None = None
    beside_request: bool = False

    @property
    def section(self) -> str:
        """The path of its key, such as ``constraints.ranges``."""
        whose = "policy." if self.source == "policy" and self.beside_request else ""
        return f"{whose}{_ELSEWHERE.get(self.key, f'constraints.{self.key}')}"

    @property
    def place(self) -> str:
        """Its name or position below its key, such as ``age`` or ``[0]``."""
        return self.name + ("" if self.position is None else f"[{self.position}]")

    @property
    def path(self) -> str:
        """The path where it was declared, such as ``constraints.ranges.age`` or ``constraints.rules[0]``."""
        return f"{self.section}.{self.place}" if self.name else f"{self.section}{self.place}"
