"""dice-ml on the same model, rows and constraints, as far as it can be told of them."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dice_ml
import numpy as np
import pandas as pd
from data_sets import FAVOURABLE, Case
from pandas.errors import Pandas4Warning
from raiutils.exceptions import UserConfigValidationException
from turns import Reply

METHODS = ("random", "genetic", "kdtree")
OUTCOME = "outcome"
TOLD = {"immutable", "increasing"}


@dataclass(frozen=True, eq=False)
class Dice:
    """One of dice-ml's methods with its own settings.

    It is told which features may vary, and per row the range of those that may only grow. It has no rules, no groups,
    and draws any number between a feature's bounds, not only values that the background has.

    Attributes:
        explainer: of dice-ml.
        vary: the features that may change.
        growing: those that may only grow, and their largest value in the background.
        options: of every call.
    """

    explainer: Any
    vary: list[str]
    growing: dict[str, float]
    options: dict[str, Any]

    @classmethod
    def build(cls, case: Case, method: str, seed: int) -> Dice:
        """Prepare one of METHODS for the model of `case`."""
        background = case.background.assign(**{OUTCOME: case.labels})
        numbers = list(case.background.select_dtypes("number"))
        with _quiet():
            data = dice_ml.Data(dataframe=background, continuous_features=numbers, outcome_name=OUTCOME)
            explainer = dice_ml.Dice(data, dice_ml.Model(model=case.model, backend="sklearn"), method=method)
        fixed = case.constraints.get("immutable", ())
        vary = [name for name in map(str, case.background) if name not in fixed]
        growing = {name: case.background[name].max() for name in case.constraints.get("increasing", ()) if name in vary}
        return cls(explainer, vary, growing, {"random_seed": seed} if method == "random" else {})

    def __call__(self, row: pd.DataFrame) -> Reply:
        """Explain one row (1, d); what dice-ml refuses or fails to find has no counterfactual."""
        own = {name: row[name].iloc[0] for name in self.growing}
        ranges = {name: [own[name], max(own[name], most)] for name, most in self.growing.items()}
        try:
            with _quiet():
                found = self.explainer.generate_counterfactuals(
                    row,
                    total_CFs=1,
                    desired_class=FAVOURABLE,
                    features_to_vary=self.vary,
                    permitted_range=ranges or None,
                    **self.options,
                )
        except (UserConfigValidationException, ValueError) as error:
            return Reply(None, str(error))
        answer = found.cf_examples_list[0].final_cfs_df_sparse
        return Reply({name: _plain(answer[name].iloc[0]) for name in map(str, row)})


def untold(case: Case) -> list[str]:
    """Return the constraints of `case` that dice-ml cannot be told of."""
    return sorted(key for key in set(case.constraints) - TOLD if case.constraints[key])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what dice-ml prints, its progress bars, and pandas' warnings about its way of calling pandas."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.filterwarnings("ignore", category=Pandas4Warning, module=r"dice_ml\.")
        yield


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
