"""How far proofs reach: exact answers beside treecf's, by trees, depth, and features that may change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from cases.data_sets import Case
from cases.tree_cases import Shape, spread_out
from parts.gates import Gate
from parts.measures import aligned
from parts.tree_contest import SAME, judged
from rivals.rival_treecf import Treecf
from rivals.turns import Ours, take_turns, teller

from mlflow_cf import ExplainedModel
from mlflow_cf.explainers import Exact, GeCo

LIMIT_S = 10.0  # wall clock for one row, of both
ROWS = 2  # of each shape and number of changes
CHANGES = (1, 2, 3)
TRIED = 60  # rows of each shape, among which those of ROWS are looked for
OURS, THEIRS = "exact", "treecf exact"
GRID: Sequence[Shape] = tuple(
    Shape(free, free, trees, depth) for free, trees, depth in product((8, 12, 20, 50), (50, 100, 200, 300), (3, 4, 6))
)
SHORT: Sequence[Shape] = (
    Shape(8, 8, 100, 4),
    Shape(8, 8, 300, 6),
    Shape(12, 12, 50, 3),
    Shape(12, 12, 200, 4),
    Shape(12, 12, 300, 6),
    Shape(20, 20, 50, 3),
    Shape(20, 20, 100, 4),
    Shape(20, 20, 300, 6),
    Shape(50, 50, 50, 3),
    Shape(50, 50, 300, 6),
)
GRIDS: Mapping[str, Sequence[Shape]] = {"short": SHORT, "whole": GRID}


@dataclass(frozen=True)
class Side:
    """What one side proved.

    Attributes:
        proved: share of the rows with a proof within the limit.
        median_s: wall seconds of a row, proved or not.
    """

    proved: float
    median_s: float


@dataclass(frozen=True)
class Reach:
    """One shape.

    Attributes:
        changed: row -> changes of the cheapest answer found, 0 where there is none.
        sides: what OURS and THEIRS proved.
        wrong: rows that we proved although treecf's answer is nearer.
    """

    shape: Shape
    changed: Sequence[int]
    sides: Mapping[str, Side]
    wrong: Sequence[int]

    @property
    def gate(self) -> Gate:
        """We promise to prove no smaller share."""
        return Gate(f"share proved, beside {THEIRS}", self.sides[OURS].proved, self.sides[THEIRS].proved)

    def broken(self) -> list[str]:
        """Return every proof of ours that an answer of treecf contradicts, in words."""
        return [f"BROKEN: exact proved row {at} wrongly: {THEIRS} is nearer ({self.shape.name})" for at in self.wrong]


def needing(case: Case, explained: ExplainedModel, rows: int) -> Case:
    """Keep up to `rows` rows for each of CHANGES, by the answers that GeCo finds: the farthest from the boundary."""
    tried = spread_out(case, TRIED).rejected
    found = explained.explain(tried, explainer=GeCo())
    changed = np.array([one.counterfactuals[0].n_changed if one.counterfactuals else 0 for one in found])
    chosen = [at for number in CHANGES for at in np.flatnonzero(changed == number)[-rows:]]
    return replace(case, rejected=tried.iloc[chosen].reset_index(drop=True))


def run(shape: Shape, rows: int, seed: int) -> Reach:
    """Let both sides prove the nearest answers to the same rows, in turns."""
    case = shape.case(seed)
    explained = case.wrapped(seed, "continuous")
    case = needing(case, explained, rows)
    methods = {
        OURS: Ours(explained, Exact(), LIMIT_S),
        THEIRS: Treecf.build(case, seed, LIMIT_S, exact=True),
    }
    asked = take_turns(methods, case.rejected, teller(case.name, len(case.rejected)), warm=1)
    lines = {method: judged(case, replies) for method, replies in asked.items()}
    costs = {method: told["cost"].where(told["right"]).fillna(np.inf).to_numpy() for method, told in lines.items()}
    within = {method: (told["proved"] & (told["wall"] <= LIMIT_S)).to_numpy() for method, told in lines.items()}
    sides = {method: Side(float(within[method].mean()), float(told["wall"].median())) for method, told in lines.items()}
    wrong = lines[OURS]["proved"].to_numpy() & (costs[THEIRS] < costs[OURS] - SAME)
    cheapest = np.where(costs[OURS] <= costs[THEIRS] + SAME, lines[OURS]["changed"], lines[THEIRS]["changed"])
    changed = [int(number) for number in np.nan_to_num(cheapest)]
    return Reach(shape, changed, sides, [int(at) for at in np.flatnonzero(wrong)])


def table(reached: Sequence[Reach]) -> str:
    """Return an aligned table: a line per shape, and one for all of them."""
    heads = ["", "rows", "changes", "proved", "median s", f"{THEIRS} proved", "median s", "ahead"]
    lines = [heads]
    for reach in reached:
        own, theirs = reach.sides[OURS], reach.sides[THEIRS]
        ahead = "" if own.proved == theirs.proved else OURS if own.proved > theirs.proved else THEIRS
        needed = "/".join(map(str, reach.changed))
        both = [cell for side in (own, theirs) for cell in (f"{side.proved:.0%}", f"{side.median_s:.2f}")]
        lines.append([reach.shape.name, str(len(reach.changed)), needed, *both, ahead])
    shares = [float(np.mean([reach.sides[side].proved for reach in reached])) for side in (OURS, THEIRS)]
    lines.append(["all", "", "", f"{shares[0]:.0%}", "", f"{shares[1]:.0%}", "", ""])
    return aligned(lines)


def limits(reached: Sequence[Reach]) -> str:
    """Return an aligned table: the largest model of which every row was proved, per number of free features."""
    lines = [["free features", OURS, THEIRS]]
    for free in sorted({reach.shape.free for reach in reached}):
        some = [reach for reach in reached if reach.shape.free == free]
        whole = {side: [one.shape for one in some if one.sides[side].proved == 1] for side in (OURS, THEIRS)}
        lines.append([str(free), *(_largest(shapes) for shapes in whole.values())])
    return aligned(lines)


def _largest(shapes: Sequence[Shape]) -> str:
    largest = max(shapes, key=lambda shape: shape.trees * 2**shape.depth, default=None)
    return "none" if largest is None else f"{largest.trees} x {largest.depth}"
