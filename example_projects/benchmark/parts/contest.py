"""Every explainer, dice-ml and NICE side by side: one model and data set, the same rows and constraints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from cases.data_sets import Case
from parts import own_share
from parts.certificates import EXACT, Certificates, contradicted
from parts.gates import DICE, GECO, NICE, PIPELINE, RIVALS, SAMPLING, Gate, gates
from parts.measures import DEFAULT, aligned, answers, broken_promises, figures
from parts.own_share import OwnShare
from rivals.rival_dice import Dice, untold
from rivals.rival_nice import INSTALLED, LEFT_OUT, Nice
from rivals.turns import Asked, Method, Ours, explainers, take_turns, teller

from mlflow_cf import ExplainedModel
from mlflow_cf.explainers import GeCo
from mlflow_cf.model.parity import Opened

Figures = Mapping[str, float]

CLOSED = Opened(None, "left closed, to compare")
COLUMNS: Mapping[str, tuple[str, str]] = {
    "coverage": ("answered", "{:.0%}"),
    "validity": ("valid", "{:.0%}"),
    "lawful": ("lawful", "{:.0%}"),
    "breaks": ("breaks", "{:.2f}"),
    "distance": ("distance", "{:.4f}"),
    "changed": ("changed", "{:.2f}"),
    "cpu_ms": ("CPU ms", "{:,.1f}"),
    "cpu_tail": ("95 % / median", "{:.1f}"),
    "wall_ms": ("wall ms", "{:,.1f}"),
    "search_ms": ("search CPU ms", "{:,.1f}"),
    "search_tail": ("95 % / median", "{:.1f}"),
    "batch_ms": ("in one call", "{:,.1f}"),
    "own_ms": ("own ms of a reply", "{:,.1f}"),
    "model_calls": ("model calls", "{:.0f}"),
    "of_dice_search": ("dice / search", "{:,.1f}"),
    "of_dice_batch": ("dice / in one call", "{:,.1f}"),
    "of_dice": ("dice / CPU", "{:,.1f}"),
    "of_nice": ("nice / CPU", "{:,.1f}"),
}


@dataclass(frozen=True, eq=False)
class Pair:
    """One model on one data set, explained by every method.

    Attributes:
        model: its name.
        case: data set, fitted model and rows.
        explained: the model, wrapped.
        lines: method -> a line per row, see `answers`.
        measured: method -> its figures.
        certificates: what proofs cost, and how near GeCo is to the optimum.
        gates: what was promised about the figures.
        broken: promises about every single answer that were not kept, in words.
    """

    model: str
    case: Case
    explained: ExplainedModel
    lines: Mapping[str, pd.DataFrame]
    measured: Mapping[str, Figures]
    certificates: Certificates
    gates: Sequence[Gate]
    broken: Sequence[str]

    @property
    def name(self) -> str:
        """Data set and model."""
        return f"{self.case.name} / {self.model}"


def run(case: Case, model: str, seed: int, dice: Sequence[str]) -> Pair:
    """Let all methods explain the rows of `case` in turns, and print what came out.

    Args:
        case: the fitted model called `model`, and the rows.
        model: its name.
        seed: of every explainer.
        dice: dice-ml's methods to ask.
    """
    name = f"{case.name} / {model}"
    explained = case.wrapped(seed)
    print(f"\n=== {name}: accuracy {case.accuracy:.1%}, {explained.opened.note}", flush=True)
    own = ours(explained)
    methods: dict[str, Method] = {**own, **{f"{DICE}{method}": Dice.build(case, method, seed) for method in dice}}
    if INSTALLED:
        methods[NICE] = Nice.build(case)
    asked = take_turns(methods, case.rejected, teller(name, len(case.rejected)))
    batch = {method: in_one_call(own[method], case.rejected) for method in own if method != PIPELINE}
    pair = judged(model, case, explained, asked, batch, own_share.measure(explained, case.rejected))
    told = [f"dice-ml was not told of: {', '.join(untold(case))}"] if dice and untold(case) else []
    told.append("nice takes no constraints and was told of none" if INSTALLED else LEFT_OUT)
    print("\n".join(["", table(pair.measured), *told, *map(str, pair.gates), *pair.broken]), flush=True)
    return pair


def ours(explained: ExplainedModel) -> dict[str, Ours]:
    """Return our methods: every explainer, and GeCo by sampling alone, and without the structure of the model."""
    methods = {
        GECO: Ours(explained, GeCo()),
        SAMPLING: Ours(explained, GeCo(sweep=False)),
        PIPELINE: Ours(replace(explained, opened=CLOSED), GeCo()),
    }
    return methods | {name: Ours(explained, one) for name, one in explainers().items() if name != GECO}


def in_one_call(method: Ours, rows: pd.DataFrame) -> float:
    """Return the CPU seconds per row that all rows (m, d) cost when they are explained in one call."""
    start = time.process_time()
    method.explained.explain(rows, explainer=method.explainer)
    return (time.process_time() - start) / len(rows)


def judged(
    model: str,
    case: Case,
    explained: ExplainedModel,
    asked: Mapping[str, Sequence[Asked]],
    batch: Mapping[str, float],
    share: OwnShare,
) -> Pair:
    """Return what every method replied with its figures, the gates, and what is wrong with our answers."""
    lines = {method: answers(case, replies, DEFAULT) for method, replies in asked.items()}
    measured = {method: _in_ms(figures(lines[method], replies)) for method, replies in asked.items()}
    measured[GECO] |= vars(share)
    for method, seconds in batch.items():
        measured[method]["batch_ms"] = 1_000 * seconds
    rival = next((measured[method]["cpu_ms"] for method in measured if method.startswith(DICE)), np.nan)
    for values in measured.values():
        if np.isfinite(rival):
            spent = {"of_dice": "cpu_ms", "of_dice_search": "search_ms", "of_dice_batch": "batch_ms"}
            values |= {ratio: rival / values[own] for ratio, own in spent.items() if own in values}
        if NICE in measured:
            values["of_nice"] = measured[NICE]["cpu_ms"] / values["cpu_ms"]
    own = [method for method in lines if not method.startswith(RIVALS)]
    wrong = [line for method in own for line in broken_promises(method, lines[method])]
    wrong += missed(lines) + contradicted(lines)
    certificates = Certificates.measure(lines[GECO], lines[EXACT])
    promised = [*gates(case.name, model, lines, measured), *certificates.gates(case.name, model)]
    return Pair(model, case, explained, lines, measured, certificates, promised, wrong)


def missed(lines: Mapping[str, pd.DataFrame]) -> list[str]:
    """Return every row for which GeCo found nothing although another method did, in words."""
    texts = []
    for method, told in lines.items():
        good = told["valid"] & told["lawful"] & told["known"]
        rows = np.flatnonzero(good & ~lines[GECO]["answered"])
        texts += [f"BROKEN: {GECO} found nothing for row {at}, but {method} did" for at in rows]
    return texts


def table(measured: Mapping[str, Figures]) -> str:
    """Return an aligned table: a line per method."""
    lines = [["", *(head for head, _ in COLUMNS.values())]]
    lines += [
        [method, *(form.format(values[key]) if key in values else "-" for key, (_, form) in COLUMNS.items())]
        for method, values in measured.items()
    ]
    return aligned(lines)


def _in_ms(values: Mapping[str, float]) -> dict[str, float]:
    """Return the figures with times in milliseconds, and the tails of CPU times as multiples of their medians."""
    named = {key: value for key, value in values.items() if not key.startswith(("cpu", "wall", "search"))}
    named |= {"cpu_ms": 1_000 * values["cpu_p50"], "wall_ms": 1_000 * values["wall_p50"]}
    named["cpu_tail"] = values["cpu_p95"] / values["cpu_p50"]
    if "search_p50" in values:
        named |= {"search_ms": 1_000 * values["search_p50"], "search_tail": values["search_p95"] / values["search_p50"]}
    return named
