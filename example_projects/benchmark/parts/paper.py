"""GeCo and the nearest row on the data of GeCo's paper, beside the paper's figures and the proved optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from cases.data_sets import Case
from numpy.typing import NDArray
from parts import regimes
from parts.measures import accepted, aligned, answers, broken_promises, figures
from parts.published import PUBLISHED, wrapped
from rivals.tree_boxes import Boxes, Nearest
from rivals.turns import Asked, Ours, take_turns, teller

from mlflow_cf.explainers import Explainer, GeCo, NearestRow

L1 = (0.0, 1.0)
EXPLAINERS: Mapping[str, Explainer] = {
    "geco": GeCo(),
    "geco sampling": GeCo(sweep=False),
    "geco as published": PUBLISHED,
    "nearest_row": NearestRow(),
}
LINES: Mapping[str, tuple[str, str]] = {
    "validity": ("valid, asked again", "{:.1%}"),
    "lawful": ("meet the constraints", "{:.1%}"),
    "coverage": ("rows with an answer", "{:.1%}"),
    "changed": ("changed features, mean", "{:.2f}"),
    "distance": ("l1 distance, mean", "{:.5f}"),
    "over_pairs": ("l1 / optimum of <= 2 changes, mean", "{:.3f}"),
    "over_optimum": ("l1 / optimum, mean", "{:.3f}"),
    "at_optimum": ("answers that are optimal", "{:.1%}"),
    "generations": ("generations, mean", "{:.2f}"),
    "candidates": ("explored candidates, mean", "{:,.0f}"),
    "cells_naive": ("cells of whole candidates, mean", "{:,.0f}"),
    "cells_delta": ("cells of the changes alone, mean", "{:,.0f}"),
    "compression": ("compression", "{:.1f}x"),
    "wall_p50": ("seconds per row, median", "{:.4f}"),
    "wall_p95": ("seconds per row, 95 %", "{:.4f}"),
    "cpu_p50": ("CPU seconds per row, median", "{:.4f}"),
    "cpu_p95": ("CPU seconds per row, 95 %", "{:.4f}"),
}

# Schleich et al., VLDB 2021: decision tree with scikit-learn's settings, 5,000 rejected rows, l1, constraints without
# implications, their machine. WIT is the method of NearestRow. "-" stands for what the paper does not tell.
PAPER: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "credit": {
        "GeCo, paper": {
            "coverage": "100.0%",
            "changed": "1.27",
            "generations": "4.22",
            "candidates": "18,100",
            "cells_naive": "62,230",
            "cells_delta": "18,640",
            "compression": "3.3x",
            "wall_p50": "< 0.3",
        },
        "WIT, paper": {"coverage": "100.0%", "changed": "3.97"},
    },
    "adult": {
        "GeCo, paper": {
            "coverage": "100.0%",
            "generations": "4.66",
            "candidates": "15,300",
            "cells_naive": "117,410",
            "cells_delta": "21,880",
            "compression": "5.4x",
            "wall_p50": "< 0.3",
        },
        "WIT, paper": {"coverage": "97.9%"},
    },
}


@dataclass(frozen=True, eq=False)
class Report:
    """One data set: the figures of every explainer and regime, and every promise that was not kept, in words."""

    measured: Mapping[str, Mapping[str, float]]
    regimes: Mapping[str, Mapping[str, float]]
    broken: Sequence[str]


def run(case: Case, seed: int) -> Report:
    """Run all explainers on one data set and print what came out."""
    print(
        f"\n=== {case.name} as in GeCo's paper\n"
        f"{len(case.background):,} background rows, {case.background.shape[1]} features, "
        f"a tree with {case.model[-1].get_n_leaves():,} leaves (accuracy {case.accuracy:.1%}), "
        f"{len(case.rejected)} rejected rows"
    )
    explained = wrapped(case, seed)
    print(f"searches use: {explained.opened.note}")
    methods = {name: Ours(explained, explainer) for name, explainer in EXPLAINERS.items()}
    asked = take_turns(methods, case.rejected, teller(", ".join(methods), len(case.rejected)))
    optima = _optima(case)
    lines = {name: answers(case, replies, L1) for name, replies in asked.items()}
    measured = {name: measure(lines[name], replies, optima) for name, replies in asked.items()}
    print(f"\n{table(case.name, measured)}\n")
    broken = [*_misses(lines, optima), *(line for name in lines for line in broken_promises(name, lines[name]))]
    print("\n".join([_summary(lines, optima), *broken]))
    return Report(measured, _regimes(case, seed), broken)


def measure(lines: pd.DataFrame, asked: Sequence[Asked], optima: Sequence[Sequence[Nearest]]) -> dict[str, float]:
    """Return the figures of LINES for one explainer; what does not apply is left out.

    Args:
        lines: its answers, as `answers` gives them.
        asked: one per rejected row.
        optima: per row, the nearest counterfactuals within 1, within 2 and within any number of changes.
    """
    found = lines["answered"].to_numpy()
    l1 = lines["distance"].to_numpy()[found]
    pairs, best = (np.array([row[at].distance for row in optima])[found] for at in (1, 2))
    measured = figures(lines, asked)
    if measured.get("cells_delta"):
        measured["compression"] = measured["cells_naive"] / measured["cells_delta"]
    if len(l1):
        measured["over_optimum"] = float(np.mean(l1 / best))
        measured["at_optimum"] = float(np.mean(l1 <= best * (1 + 1e-9)))
    if np.isfinite(pairs).any():
        measured["over_pairs"] = float(np.mean((l1 / pairs)[np.isfinite(pairs)]))
    return measured


def table(name: str, measured: Mapping[str, Mapping[str, float]]) -> str:
    """Return an aligned table for one data set: a line per figure, a column per explainer, then the paper's."""
    columns: dict[str, Mapping[str, str]] = {
        method: {key: form.format(values[key]) for key, (_, form) in LINES.items() if key in values}
        for method, values in measured.items()
    }
    columns.update(PAPER.get(name, {}))
    lines = [["", *columns]]
    lines += [
        [label, *(cells.get(key, "-") for cells in columns.values())]
        for key, (label, _) in LINES.items()
        if any(key in values for values in measured.values())
    ]
    return aligned(lines)


def _regimes(case: Case, seed: int) -> dict[str, regimes.Figures]:
    """Compare the search with and without constraints, rules and groups, and print what came out."""
    print(
        "\ngeco as published, medians per row: candidates, CPU seconds of its search, of the whole answer; then shares"
    )
    contests = regimes.contests(case, seed)
    measured: dict[str, regimes.Figures] = {}
    for contest in contests:
        measured.update(regimes.run(contest, seed, teller(", ".join(contest.regimes), len(contest.case.rejected))))
    print(f"\n{regimes.table(contests, measured)}")
    return measured


def _optima(case: Case) -> list[list[Nearest]]:
    """Return each row's nearest counterfactuals within 1, within 2 and within any number of changes."""
    say = teller("exact optima", len(case.rejected))
    boxes = Boxes.build(case)
    optima = []
    for done, x0 in enumerate(case.rejected.to_dict("records"), start=1):
        optima.append(boxes.nearest({str(name): value for name, value in x0.items()}))
        say(done)
    claimed = [nearest.row for row in optima for nearest in row if nearest.row is not None]
    if not accepted(case, claimed).all():
        raise AssertionError("an optimum read from the tree is not favourable under the pipeline")
    return optima


def _exists(optima: Sequence[Sequence[Nearest]]) -> NDArray[np.bool_]:
    return np.isfinite([[nearest.distance for nearest in row] for row in optima])


def _summary(lines: Mapping[str, pd.DataFrame], optima: Sequence[Sequence[Nearest]]) -> str:
    """Say for how many rows a counterfactual exists, and how many of them each explainer missed."""
    exists = _exists(optima)
    single, pair, some = exists.sum(axis=0).tolist()
    text = f"A counterfactual exists for {single} rows within one change, {pair} within two, {some} at all (exact)."
    missed = [f"{name} {int((exists[:, 2] & ~told['answered']).sum())}" for name, told in lines.items()]
    return f"{text}\nRows missed although one exists: {', '.join(missed)}."


def _misses(lines: Mapping[str, pd.DataFrame], optima: Sequence[Sequence[Nearest]]) -> list[str]:
    """Return every row that GeCo missed although one change, two changes or the nearest background row would help."""
    told = lines["geco"]
    within_two = _exists(optima)[:, 1]
    missed = ~told["answered"] & (within_two | lines["nearest_row"]["answered"])
    return [
        f"BROKEN: geco found nothing for row {at} ({told['reason'][at]}), "
        f"but {'one or two changes do' if within_two[at] else 'nearest_row did'}"
        for at in np.flatnonzero(missed)
    ]
