"""CE-OCL's demonstration: what would have turned one refused applicant into a good one, part by part."""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
from applicants import NUMBERS, Demonstration, demonstration
from parts import PARTS, answer, objective, scores

from mlflow_cf import Explanation, metrics
from mlflow_cf.features import FeatureSpace

PUBLISHED = {  # categorical and continuous proximity, sparsity; categorical, continuous and sparsity diversity
    "A": (1.00, -1715.94, 0.80, None, None, None),
    "B": (1.00, -16.88, 0.95, None, None, None),
    "C": (1.00, -1423.45, 0.92, 0.00, 2845.81, 0.15),
    "D": (1.00, -23.69, 0.93, 0.00, 46.29, 0.12),
    "E": (0.67, -230.12, 0.63, 0.36, 441.68, 0.42),
    "F": (0.77, -308.20, 0.78, 0.00, 616.40, 0.10),
}
COLUMNS = ["cat prox", "cont prox", "sparsity", "cat div", "cont div", "sparsity div"]


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--data", default="", metavar="FOLDER", help="with german.csv (default: MLFLOW_CF_DATA)")
    parser.add_argument("--parts", default="".join(PARTS), metavar="ABC", help="some of them (default: all)")
    return parser


def main(arguments: list[str] | None = None) -> None:
    """Print every part, then the paper's second table beside its own figures."""
    chosen = options().parse_args(arguments)
    told = demonstration(chosen.data)
    score = told.model.decision_function(told.applicant)[0]
    print(f"The applicant in row {told.applicant.index[0]} is turned down with a score of {score:.4f}.\n")
    lines: dict[tuple[str, str], tuple[float | None, ...]] = {}
    for name in chosen.parts:
        started = time.perf_counter()
        found = answer(told, PARTS[name])
        print(_part(name, told, found, time.perf_counter() - started))
        lines[name, "here"], lines[name, "published"] = figures(told, found), PUBLISHED[name]
    table = pd.DataFrame(lines, index=COLUMNS, dtype=np.float64).T
    print(table.to_string(float_format="{:.2f}".format, na_rep=""))


def figures(told: Demonstration, found: Explanation) -> tuple[float | None, ...]:
    """Return proximity, sparsity and diversity of the counterfactuals as in the paper's second table."""
    space = FeatureSpace.infer(told.rows, {name: {"kind": "real"} for name in NUMBERS})
    x = space.encode(told.applicant)[0]
    Z = space.encode(space.from_values([one.row for one in found.counterfactuals]))
    near = (metrics.cat_proximity, metrics.cont_proximity, metrics.sparsity_unchanged)
    apart = (metrics.cat_diversity, metrics.cont_diversity, metrics.sparsity_diversity)
    several = len(Z) > 1
    return (*(metric(space, x, Z) for metric in near), *(metric(space, Z) if several else None for metric in apart))


def _part(name: str, told: Demonstration, found: Explanation, seconds: float) -> str:
    solved = found.diagnostics.get("solver", "")
    lines = [f"{name}: {PARTS[name].families} ({found.status}, solver: {solved}, {seconds:.1f} s)"]
    hull = found.diagnostics.get("manifold")
    if hull is not None and hull["enlarged"]:
        lines.append(f"   nothing is in the hull of {hull['points']} good rows (proved); as near to it as can be:")
    rows = zip(found.counterfactuals, objective(found), scores(told, found), strict=True)
    for one, cost, score in rows:
        changes = ", ".join(f"{change.feature} {_short(change.new)}" for change in one.changes)
        lines.append(f"   {changes}   (objective {cost:.4f}, score {score:.4f})")
    return "\n".join(lines) + "\n"


def _short(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
