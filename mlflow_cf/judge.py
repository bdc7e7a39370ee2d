"""The logged model as the rest of the package sees it: its own decision, and how favourable a row is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Label = int | str | bool | float
Decide = Callable[[pd.DataFrame], NDArray[np.generic]]
ScoreRows = Callable[[pd.DataFrame], NDArray[np.float64]]
ScoreKind = Literal["probability", "margin", "none"]


@dataclass(frozen=True)
class OpenModel:
    """What a flavor delivers when it opens a logged model. Every callable is thread-safe.

    Attributes:
        flavor: name of the flavor that opened it, e.g. ``sklearn``.
        classes: the labels the model can answer, in the order of the score columns; empty for regression.
        decide: rows (n, d) as a table in the model's own raw columns -> (n,) labels (regression: values);
            the logged model's own decision.
        score: the same rows -> (n, len(classes)) float64, one column per class; None if the model has labels only.
        score_kind: ``probability`` (columns sum to 1), ``margin`` (any real number, larger is likelier) or ``none``.
        columns: the raw input columns in the model's order if it knows them, else empty.
        notes: facts for `describe()`, such as why a step could not be opened.
    """

    flavor: str
    classes: tuple[Label, ...]
    decide: Decide
    score: ScoreRows | None = None
    score_kind: ScoreKind = "none"
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def regression(self) -> bool:
        """Whether the model predicts a number instead of a label."""
        return not self.classes
