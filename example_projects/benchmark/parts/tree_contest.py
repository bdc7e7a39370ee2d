"""GeCo and exact answers beside treecf's genetic and exact search: one row at a time, and all rows in one call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

import numpy as np
import pandas as pd
from cases.data_sets import Case
from parts.gates import Gate
from parts.measures import DEFAULT, aligned, answers
from rivals.rival_treecf import Treecf
from rivals.turns import Asked, Ours, Reply, take_turns, teller

from mlflow_cf.explainers import Exact, GeCo

LIMIT_S = 5.0  # for one row, of every method
CALLS = 3  # with all rows, of every method in turns
LONG_MS = 1_000.0  # CPU of a row in the first of these calls that makes another one needless
FASTEST_MS = 15.0  # of treecf's genetic search; below it we promise to be as fast, above it to be twice as fast
SAME = 1e-6  # of a cost: both place a value beside a threshold, and not at the same distance from it
GENETIC, REFINE = "treecf", "treecf exact"
# Ours -> whom it is beside. Only with continuous values does it answer the same question.
BESIDE: Mapping[str, str] = {
    "geco": GENETIC,
    "geco observed": GENETIC,
    "exact": REFINE,
    "exact observed": REFINE,
}
CONTINUOUS = ("geco", "exact")
Method = Ours | Treecf
COLUMNS: Mapping[str, str] = {
    "answered": "{:.0%}",
    "valid": "{:.0%}",
    "changed": "{:.2f}",
    "cost": "{:.4f}",
    "proved": "{:.0%}",
    "single_ms": "{:,.1f}",
    "batch_ms": "{:,.1f}",
}
HEADS = (
    "answered", "valid", "changed", "cost", "proved", "CPU ms, one row", "in one call",
    "/ treecf", "in one call / treecf", "treecf is ahead in",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """What one method made of the rows of a case.

    Attributes:
        answered: share of the rows.
        valid: share of the answers that the model accepts, in the columns' own types, and that leave fixed columns be.
        changed, cost: means over the answers; an answer costs its changes plus their sum as shares of the ranges.
        proved: share of the rows.
        single_ms, batch_ms: CPU milliseconds a row: the median of single calls, and of calls with all rows.
    """

    answered: float
    valid: float
    changed: float
    cost: float
    proved: float
    single_ms: float
    batch_ms: float


@dataclass(frozen=True, eq=False)
class Tried:
    """One case, explained by every method.

    Attributes:
        real: whether all columns hold real numbers, so that treecf's values are values they can have.
        lines: method -> its figures.
        costs: method -> (m,) the cost of the answer to each row; infinite: no answer, or a wrong one.
        proved: method -> (m,) whether there is a proof for each row.
    """

    name: str
    real: bool
    lines: Mapping[str, Line]
    costs: Mapping[str, pd.Series[float]]
    proved: Mapping[str, pd.Series[bool]]

    def figures(self) -> dict[str, dict[str, float]]:
        """Return everything that is a number, by method and name."""
        told = {method: vars(line) for method, line in self.lines.items()}
        return {
            f"{self.name} {method}": {key: value for key, value in values.items() if np.isfinite(value)}
            for method, values in told.items()
        }

    def gates(self) -> list[Gate]:
        """Return what is promised: twice as fast as treecf and never costlier; a search that was cut has no time."""
        own, genetic = self.lines["geco"], self.lines[GENETIC]
        exact, refine = self.lines["exact"], self.lines[REFINE]
        found = [Gate(f"share proved, beside {REFINE}", exact.proved, refine.proved)]
        for call in ("single_ms", "batch_ms"):
            theirs = getattr(genetic, call)
            share = 0.5 if theirs >= FASTEST_MS else 1.0
            found.append(Gate(f"{call} CPU, geco / {GENETIC}", getattr(own, call) / theirs, share, most=True))
            if refine.proved == 1:
                ratio = getattr(exact, call) / getattr(refine, call)
                found.append(Gate(f"{call} CPU, exact / {REFINE}", ratio, 0.5, most=True))
        found += [Gate(f"{method} valid", self.lines[method].valid, 1.0) for method in BESIDE]
        if self.real:
            mean = _mean_beside(self.costs["geco"], self.costs[GENETIC])
            found.append(Gate(f"mean cost, geco / {GENETIC}", mean, 1.0 + SAME, most=True))
            costlier = float((self.costs["exact"] > self.costs[REFINE] + SAME).sum())
            found.append(Gate(f"rows where exact is costlier than {REFINE}", costlier, 0.0, most=True))
        return found

    def broken(self) -> list[str]:
        """Return every method of ours with a wrong answer, and every proof that treecf contradicts, in words."""
        texts = [f"BROKEN: {method}: an answer is wrong" for method in BESIDE if self.lines[method].valid < 1]
        for method, peer in product(CONTINUOUS, (GENETIC, REFINE) if self.real else ()):
            claimed = self.costs[method].where(self.proved[method], -np.inf)
            nearer = np.flatnonzero(self.costs[peer] < claimed - SAME)
            texts += [f"BROKEN: {method} proved row {at} wrongly: {peer} is nearer" for at in nearer]
        return texts

    def ahead(self, method: str) -> str:
        """Return in what the one beside `method` is ahead, in words."""
        own, peer = self.lines[method], self.lines[BESIDE[method]]
        faster = {"one row": own.single_ms > peer.single_ms, "in one call": own.batch_ms > peer.batch_ms}
        compared = self.real and method in CONTINUOUS
        better = {"cost": compared and own.cost > peer.cost + SAME, "proofs": own.proved < peer.proved}
        return ", ".join(word for word, is_ahead in {**faster, **better}.items() if is_ahead)


def methods(case: Case, seed: int, time_limit_s: float) -> dict[str, Method]:
    """Return ours, with continuous values and with those of the background, and treecf's."""
    continuous, observed = case.wrapped(seed, "continuous"), case.wrapped(seed)
    return {
        "geco": Ours(continuous, GeCo(), time_limit_s),
        "exact": Ours(continuous, Exact(), time_limit_s),
        "geco observed": Ours(observed, GeCo(), time_limit_s),
        "exact observed": Ours(observed, Exact(), time_limit_s),
        GENETIC: Treecf.build(case, seed, time_limit_s, exact=False),
        REFINE: Treecf.build(case, seed, time_limit_s, exact=True),
    }


def run(case: Case, seed: int) -> Tried:
    """Let all methods explain the rows of `case` one by one in turns, then in one call in turns."""
    chosen = methods(case, seed, LIMIT_S)
    asked = take_turns(chosen, case.rejected, teller(case.name, len(case.rejected)))
    batches = in_one_call(chosen, case.rejected)
    single = {method: judged(case, replies) for method, replies in asked.items()}
    together = {method: judged(case, batch.asked) for method, batch in batches.items()}
    lines = {method: _line(single[method], together[method], batches[method].row_ms) for method in chosen}
    costs = {method: told["cost"].where(told["right"]).fillna(np.inf) for method, told in single.items()}
    real = all(dtype.kind == "f" for dtype in case.background.dtypes)
    return Tried(case.name, real, lines, costs, {method: told["proved"] for method, told in single.items()})


def judged(case: Case, asked: Sequence[Asked]) -> pd.DataFrame:
    """Return a line per row as `answers` does, with its cost, and whether it is right: valid and lawful."""
    lines = answers(case, asked, DEFAULT)
    features = case.background.shape[1]
    # half the share of changes and half their mean: over all features that is half of what is paid for them
    return lines.assign(cost=2 * features * lines["distance"], right=lines["valid"] & lines["lawful"])


@dataclass(frozen=True, eq=False)
class Batch:
    """The answers of one call with all rows, and its CPU milliseconds a row: the median of some short calls."""

    asked: Sequence[Asked]
    row_ms: float


def in_one_call(chosen: Mapping[str, Method], rows: pd.DataFrame) -> dict[str, Batch]:
    """Let every method explain all rows in one call, in turns."""
    records = [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]
    replies: dict[str, list[Reply]] = {}
    spent: dict[str, list[float]] = {method: [] for method in chosen}
    for _ in range(CALLS):
        for name, method in chosen.items():
            if spent[name] and spent[name][0] > LONG_MS:
                continue
            start = time.process_time()
            replies[name] = method.in_one_call(rows)
            spent[name].append(1_000 * (time.process_time() - start) / len(rows))
    return {
        name: Batch([Asked(x0, one, 0.0, 0.0) for x0, one in zip(records, replies[name], strict=True)], median(ms))
        for name, ms in spent.items()
    }


def _line(single: pd.DataFrame, together: pd.DataFrame, batch_ms: float) -> Line:
    """Sum up answers to the same rows, one by one and in one call."""
    given = pd.concat([single, together])
    return Line(
        answered=float(single["answered"].mean()),
        valid=float(given.loc[given["answered"], "right"].mean()),
        changed=float(single["changed"].mean()),
        cost=float(single["cost"].mean()),
        proved=float(single["proved"].mean()),
        single_ms=1_000 * float(single["cpu"].median()),
        batch_ms=batch_ms,
    )


def _mean_beside(own: pd.Series[float], theirs: pd.Series[float]) -> float:
    """Return the ratio of mean costs over the rows that the other answered; infinite where we did not."""
    answered = np.isfinite(theirs)
    return float(own[answered].mean() / theirs[answered].mean()) if answered.any() else 1.0


def table(tried: Sequence[Tried]) -> str:
    """Return an aligned table: a line per case and method; the ratios are ours / that of the one beside it."""
    lines = [["", *HEADS]]
    for case in tried:
        for method, line in case.lines.items():
            own = [form.format(getattr(line, key)) for key, form in COLUMNS.items()]
            ratios = ["", "", ""]
            if method in BESIDE:
                peer = case.lines[BESIDE[method]]
                beside = line.single_ms / peer.single_ms, line.batch_ms / peer.batch_ms
                ratios = [*(f"{ratio:.2f}" for ratio in beside), case.ahead(method)]
            lines.append([f"{case.name}: {method}", *own, *ratios])
    return aligned(lines)
