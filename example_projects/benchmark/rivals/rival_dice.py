"""dice-ml on the same model, rows and constraints, as far as it can be told of them."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dice_ml
import numpy as np
import pandas as pd
from cases.data_sets import FAVOURABLE, Case
from pandas.errors import Pandas4Warning
from raiutils.exceptions import UserConfigValidationException
from rivals.turns import Reply

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
        return self.ask(row, self.vary, self._grown(row))

    def ask(self, row: pd.DataFrame, vary: Sequence[str], ranges: Mapping[str, Sequence[Any]]) -> Reply:
        """Explain one row (1, d) by changes of `vary` alone.

        Args:
            row: to explain.
            vary: the features that may change.
            ranges: number -> [low, high], both included; feature with levels -> the levels that may be proposed.
        """
        try:
            answers = self._asked(row, vary, ranges, 1)
        except (UserConfigValidationException, ValueError) as error:
            return Reply(None, str(error))
        return Reply({name: _plain(answers[name].iloc[0]) for name in map(str, row)})

    def several(self, row: pd.DataFrame, count: int) -> pd.DataFrame | None:
        """Return so many answers (m, d) to one row (1, d), or fewer; None for what it refuses or fails to find."""
        try:
            answers = self._asked(row, self.vary, self._grown(row), count)
        except (UserConfigValidationException, ValueError):
            return None
        return None if answers is None else answers[list(map(str, row))]

    def _grown(self, row: pd.DataFrame) -> dict[str, list[Any]]:
        own = {name: row[name].iloc[0] for name in self.growing}
        return {name: [own[name], max(own[name], most)] for name, most in self.growing.items()}

    def _asked(self, row: pd.DataFrame, vary: Sequence[str], ranges: Mapping[str, Sequence[Any]], count: int) -> Any:
        with _quiet():
            found = self.explainer.generate_counterfactuals(
                row,
                total_CFs=count,
                desired_class=FAVOURABLE,
                features_to_vary=list(vary),
                permitted_range={name: list(told) for name, told in ranges.items()} or None,
                **self.options,
            )
        return found.cf_examples_list[0].final_cfs_df_sparse


def dice_with_limits(dice: Dice, row: pd.DataFrame, limits: Mapping[str, Sequence[Any]]) -> Reply:
    """Explain one row (1, d) within a user's limits: DiCE-UF, as UFCE's paper has it.

    dice-ml takes no limits beyond what its data has, so they are cut to that. It goes back from what it drew towards
    the row, so the row's own value must lie within: limits that leave it out are stretched to it. A feature that is
    left with its own value alone is none to vary.

    Args:
        dice: prepared by `Dice.build`; its own constraints on growing features are not told beside the limits.
        row: to explain.
        limits: the features that the user would change: number -> (low, high), both included; feature with levels ->
            the levels accepted.
    """
    known = dice.explainer.data_interface
    ranges: dict[str, list[Any]] = {}
    for name, told in limits.items():
        own = row[name].iloc[0]
        if name in known.continuous_feature_names:
            column = known.data_df[name]
            ranges[name] = [min(own, max(told[0], column.min())), max(own, min(told[1], column.max()))]
        else:
            ranges[name] = list(dict.fromkeys([own, *told]))
    ranges = {name: told for name, told in ranges.items() if any(value != row[name].iloc[0] for value in told)}
    if not ranges:
        return Reply(None, "the limits leave nothing to vary")
    return dice.ask(row, list(ranges), ranges)


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
