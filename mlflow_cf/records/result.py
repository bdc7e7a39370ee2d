"""What came of checking a record, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, overload

import pandas as pd

Holds = Literal["ok", "no longer holds", "could not be re-proved"]
OK: Final[Holds] = "ok"
BROKEN: Final[Holds] = "no longer holds"
OPEN: Final[Holds] = "could not be re-proved"


@dataclass(frozen=True)
class Check:
    """One thing that a record claims.

    Attributes:
        what: the claim; verdict: whether it holds; reason: why not, or how it was found out.
    """

    what: str
    verdict: Holds
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.verdict:<22}  {self.what}{f': {self.reason}' if self.reason else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"what": self.what, "verdict": self.verdict, "reason": self.reason}


@dataclass(frozen=True)
class Checks(Sequence[Check]):
    """All checks of a record, in order."""

    items: tuple[Check, ...]

    @overload
    def __getitem__(self, at: int) -> Check: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[Check, ...]: ...

    def __getitem__(self, at: int | slice) -> Check | tuple[Check, ...]:
        return self.items[at]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.items)

    @property
    def broken(self) -> tuple[Check, ...]:
        """What no longer holds."""
        return tuple(check for check in self.items if check.verdict == BROKEN)

    @property
    def unproved(self) -> tuple[Check, ...]:
        """What could not be re-proved."""
        return tuple(check for check in self.items if check.verdict == OPEN)

    @property
    def ok(self) -> bool:
        """Whether everything holds, proofs too."""
        return all(check.verdict == OK for check in self.items)

    @property
    def summary(self) -> str:
        """How much holds: ``12 ok, 1 no longer holds``."""
        counts = {OK: len(self) - len(self.broken) - len(self.unproved), BROKEN: len(self.broken)}
        counts[OPEN] = len(self.unproved)
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.items), self.summary])

    def to_frame(self) -> pd.DataFrame:
        """Return one row per check: what, verdict and reason."""
        return pd.DataFrame([check.to_dict() for check in self.items], columns=["what", "verdict", "reason"])

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        from mlflow_cf import cards  # noqa: PLC0415  templates that no server needs

        return cards.page(cards.told(self.summary), cards.table(self.to_frame()))
