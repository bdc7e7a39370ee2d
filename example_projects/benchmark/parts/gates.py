"""What GeCo promises about speed and distance, as ratios within one run, so that the machine does not matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

GECO, SAMPLING, PIPELINE = "geco", "geco sampling", "geco pipeline"
DICE = "dice "  # how the names of dice-ml's methods start
RIVAL = f"{DICE}random"
NICE = "nice"
RIVALS = (DICE, NICE)  # what names of others' methods start with
PUBLIC = ("adult", "credit")  # what the times are promised for

# CPU of dice-ml / CPU of GeCo's search, at least.
OVER_DICE: Mapping[tuple[str, str], float] = {
    **{("adult", model): 50 for model in ("tree", "xgboost", "histgb")},
    **{("credit", model): 30 for model in ("tree", "xgboost", "histgb")},
    **{(data, "forest"): 15 for data in PUBLIC},
    **{(data, "mlp"): 10 for data in PUBLIC},
}
# CPU of a rival / CPU of GeCo, both for a whole call with one row, at least.
CALLED: Mapping[str, float] = {"of_nice": 3, "of_dice": 12}
CALLED_MODELS = ("xgboost", "forest", "mlp")
# CPU of GeCo's search without the structure of the model / with it, at least.
OVER_PIPELINE: Mapping[str, float] = {**dict.fromkeys(("tree", "xgboost", "histgb", "forest"), 10), "mlp": 5}
# CPU milliseconds of GeCo's search for one row, at most.
SEARCH_MS: Mapping[str, float] = {**dict.fromkeys(("tree", "xgboost", "histgb"), 3), "forest": 8, "mlp": 8}
OWN_MS: Mapping[str, float] = {"xgboost": 3}  # CPU of a reply with one row besides the model's own calls, at most
WIDE_MS = 100.0  # CPU of one row of the wide data sets with 100 trees
WIDE, FORESTS = ("many_levels", "many_numbers"), ("xgboost", "histgb", "forest")
LONGEST_TAIL = 4.0  # 95 % / median
AS_NEAR = 0.99  # share of the rows
SAME = 1e-9  # distances that differ by less are equal: two formulas add up in another order


@dataclass(frozen=True)
class Gate:
    """One promise: what is measured, the number found, and the one it must reach or (`most`) not exceed."""

    what: str
    found: float
    wanted: float
    most: bool = False

    @property
    def kept(self) -> bool:
        """Whether the promise was kept."""
        return self.found <= self.wanted if self.most else self.found >= self.wanted

    def __str__(self) -> str:
        sign = "<=" if self.most else ">="
        return f"  {'kept  ' if self.kept else 'MISSED'} {self.what}: {self.found:.4g} ({sign} {self.wanted:.4g})"


def gates(
    data: str, model: str, lines: Mapping[str, pd.DataFrame], measured: Mapping[str, Mapping[str, float]]
) -> list[Gate]:
    """Return the promises about one pair of data set and model; those about a method that did not run are left out.

    Args:
        data, model: their names.
        lines: method -> a line per row.
        measured: method -> its figures, times in milliseconds.
    """
    own = measured[GECO]
    found = [
        Gate("valid", own.get("validity", 0.0), 1.0),
        Gate("lawful", own.get("lawful", 0.0), 1.0),
        Gate("search CPU, 95 % / median", own["search_tail"], LONGEST_TAIL, most=True),
    ]
    if data in PUBLIC and model in SEARCH_MS:
        found.append(Gate("search CPU ms", own["search_ms"], SEARCH_MS[model], most=True))
    if data in WIDE and model in FORESTS:
        found.append(Gate("CPU ms", own["cpu_ms"], WIDE_MS, most=True))
    if "of_dice_search" in own and (data, model) in OVER_DICE:
        found.append(Gate(f"CPU, dice-ml / search of {GECO}", own["of_dice_search"], OVER_DICE[data, model]))
    found += _whole_calls(model, own) if data in PUBLIC else []
    if PIPELINE in measured and model in OVER_PIPELINE:
        ratio = measured[PIPELINE]["search_ms"] / own["search_ms"]
        found.append(Gate(f"search CPU, {PIPELINE} / {GECO}", ratio, OVER_PIPELINE[model]))
    if SAMPLING in lines:
        mean, other = _means(lines[GECO], lines[SAMPLING])
        found.append(Gate(f"mean distance, {GECO} / {SAMPLING}", mean / other, 1.0 + SAME, most=True))
    if RIVAL in lines:
        found.append(Gate(f"at least as near as {RIVAL}", as_near(lines[GECO], lines[RIVAL]), AS_NEAR))
    return found


def _whole_calls(model: str, own: Mapping[str, float]) -> list[Gate]:
    """Return what is promised about whole calls with one row: beside others, and besides the model's own calls."""
    found = []
    if model in CALLED_MODELS:
        told = [(ratio, least) for ratio, least in CALLED.items() if ratio in own]
        found = [Gate(f"CPU of one row, {key.removeprefix('of_')} / {GECO}", own[key], least) for key, least in told]
    if model in OWN_MS and "own_ms" in own:
        found.append(Gate("CPU ms of a reply besides the model's calls", own["own_ms"], OWN_MS[model], most=True))
    return found


def as_near(one: pd.DataFrame, other: pd.DataFrame) -> float:
    """Return the share of the rows where the other's answer is not nearer; a wrong answer is none."""
    theirs = other["distance"].where(other["valid"] & other["lawful"]).fillna(np.inf)
    return float((one["distance"].fillna(np.inf) <= theirs + SAME).mean())


def _means(one: pd.DataFrame, other: pd.DataFrame) -> tuple[float, float]:
    """Return both mean distances over the rows that both answered; equal where there are none."""
    both = one["answered"] & other["answered"]
    if not both.any():
        return 1.0, 1.0
    return float(one.loc[both, "distance"].mean()), float(other.loc[both, "distance"].mean())


def told(promised: Sequence[tuple[str, Gate]]) -> str:
    """Return how many promises were kept, and those that were not."""
    missed = [f"{gate} ({name})" for name, gate in promised if not gate.kept]
    kept = f"{len(promised) - len(missed)} of {len(promised)} promises about speed and distance were kept."
    return "\n".join(["", kept, *missed])
