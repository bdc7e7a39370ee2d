"""CSCF and SCF beside a grid of all plans of two steps, the figures of their paper, and pymoo's NSGA2."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from cases.data_sets import FAVOURABLE, VIEWS, data_folder, split
from cases.models import fitted
from cases.plans_actions import LEAST, Model, State
from parts.gates import Gate
from rivals import rival_nsga2
from rivals.plans_grid import Grid, Network, rows_of
from sklearn.pipeline import Pipeline

import mlflow_cf
from mlflow_cf import ExplainedModel, Explanation
from mlflow_cf.explainers.cscf import CSCF, SCF

DATA_SETS = ("adult", "german")
EXPLAINERS = (CSCF, SCF)
NETWORK = "mlp_deep"
SHORT = 2  # steps of the plans that the grid has
COUNT = 50  # answers: the whole front, mostly
SAME = 1e-9
NEAR = 0.01  # costlier than the grid's plan by at most that is as cheap
AS_CHEAP, SECONDS, OVER_NSGA2 = 0.9, 1.0, 8.0
FRONT: Mapping[str, int] = {"adult": 7, "german": 4}
STUDY, GAIN = "add education", "change capital gain"
LESS_GAIN = 3_000
ORDER_ROWS = 20
RIVAL_ROWS = 2
EVERY = "rows with a plan where the grid has one"
CONFIRMED = "answers whose every step is confirmed"

# Mean and median effort of plans of at most two steps in the runs published with the paper, computed anew.
PUBLISHED: Mapping[tuple[str, str], tuple[float, float]] = {
    ("adult", "cscf"): (6.298, 5.453),
    ("adult", "scf"): (6.309, 5.408),
    ("adult", "synth"): (12.663, 5.894),
    ("german", "scf"): (0.972, 0.351),
    ("german", "synth"): (1.224, 0.395),
}


@dataclass(frozen=True, eq=False)
class Asked:
    """One data set: its policy, its network, and the rows of the paper that this network rejects."""

    name: str
    X: pd.DataFrame
    pipeline: Pipeline
    rejected: pd.DataFrame
    policy: dict[str, Any]
    accuracy: float

    @classmethod
    def of(cls, name: str, rows: int, seed: int) -> Asked:
        """Fit a network, and take so many rows."""
        parts = split(name, seed, VIEWS[name])
        pipeline = fitted(NETWORK, parts.X, parts.y, seed)
        told = pd.read_csv(data_folder() / f"cscf_{name}_instances.csv")[list(parts.X)].astype(parts.X.dtypes.to_dict())
        rejected = told[pipeline.predict(told) != FAVOURABLE].head(rows).reset_index(drop=True)
        accuracy = float((pipeline.predict(parts.X_test) == parts.y_test).mean())
        return cls(name, parts.X, pipeline, rejected, policy(name), accuracy)

    def explained(self, seed: int, policy: Mapping[str, Any] | None = None) -> ExplainedModel:
        """Return the network with its policy, or another one."""
        constraints = dict(policy or self.policy)
        return mlflow_cf.wrap(
            self.pipeline,
            self.X,
            target=FAVOURABLE,
            constraints=constraints,
            values="continuous",
            seed=seed,
            limits={"count": COUNT},
        )

    def least_changes(self) -> dict[str, float]:
        """Return what counts as a change of a number."""
        return dict.fromkeys(self.X.select_dtypes("number"), LEAST)


def policy(name: str) -> dict[str, Any]:
    """Return what can be done, and what makes it cheaper, as users write it."""
    text = (Path(__file__).resolve().parent / f"plans_{name}.yaml").read_text(encoding="utf-8")
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def with_less_gain(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy under which gain alone seldom suffices, so that there are plans which study, too."""
    actions = [{**action, "high": LESS_GAIN} if action["name"] == GAIN else action for action in policy["actions"]]
    return {**policy, "actions": actions}


@dataclass(frozen=True, eq=False)
class Line:
    """What one explainer found on one data set.

    Attributes:
        rows: a line per row: `front` and `answers`, seconds `wall` and `cpu` of a reply with one answer; cost of the
            cheapest plan of at most two steps among all answers (`cost`), where no more are asked for (`capped`), and
            of the grid (`grid`); the least `effort` of those two, and that of the grid (`grid_effort`).
        orders: how many plans with both study before they gain, and gain first, where gain alone seldom suffices.
        confirmed: share of the answers whose steps and costs are those of the actions told once more.
        broken: what is wrong with answers.
    """

    rows: pd.DataFrame
    orders: tuple[int, int]
    confirmed: float
    broken: list[str]

    def as_cheap(self, column: str) -> float:
        """Return the share of the rows where the grid has a plan whose own cheapest one is as cheap, within 1 %."""
        some = self.rows[np.isfinite(self.rows["grid"])]
        return float((some[column] <= (1 + NEAR) * some["grid"] + SAME).mean()) if len(some) else 1.0

    def figures(self) -> dict[str, float]:
        """Return means and medians over the rows."""
        some = self.rows[np.isfinite(self.rows["grid"])]
        efforts = {"effort": "effort", "grid_effort": "effort of the grid"}
        told: dict[str, float] = {
            "rows": len(self.rows),
            "grid has a plan": len(some),
            "found": float((some["answers"] > 0).mean()),
            "as cheap": self.as_cheap("cost"),
            "as cheap in 2 steps": self.as_cheap("capped"),
            "front": float(self.rows["front"].median()),
            "wall s": float(self.rows["wall"].median()),
            "CPU s": float(self.rows["cpu"].median()),
        }
        for column, what in efforts.items():
            known = self.rows.loc[np.isfinite(self.rows[column]), column]
            told |= {f"mean {what}": float(known.mean()), f"median {what}": float(known.median())}
        return told


@dataclass(frozen=True, eq=False)
class Measured:
    """Both explainers on one data set, and CPU milliseconds of a generation of NSGA2 and of CSCF."""

    name: str
    accuracy: float
    lines: dict[str, Line]
    nsga2_ms: float
    ours_ms: float

    @property
    def over(self) -> float:
        """How many times as much CPU a generation of NSGA2 takes."""
        return self.nsga2_ms / self.ours_ms


def run(names: Sequence[str], rows: int, seed: int) -> list[Measured]:
    """Explain so many rows of every data set."""
    found = []
    for name in names:
        asked = Asked.of(name, rows, seed)
        if asked.rejected.empty:
            continue
        explained = asked.explained(seed)
        explainers = [kind(min_change=asked.least_changes()) for kind in EXPLAINERS]
        lines = {explainer.name: _line(asked, explained, explainer) for explainer in explainers}
        if any(action["name"] == GAIN for action in asked.policy["actions"]):
            narrow = asked.explained(seed, with_less_gain(asked.policy))
            for explainer in explainers:
                answers = narrow.explain(asked.rejected.head(ORDER_ROWS), count=COUNT, explainer=explainer)
                lines[explainer.name] = replace(lines[explainer.name], orders=_orders(answers))
        few = explained.explain(asked.rejected.head(RIVAL_ROWS), explainer=rival_nsga2.Rival())
        nsga2 = float(np.median([one.diagnostics["generation_cpu"] for one in few]))
        ours = float(lines["cscf"].rows["cpu"].median()) / CSCF().generations
        found.append(Measured(name, asked.accuracy, lines, 1_000 * nsga2, 1_000 * ours))
    return found


def _line(asked: Asked, explained: ExplainedModel, explainer: CSCF) -> Line:
    """Let an explainer explain every row, all lengths and short ones, and ask the grid."""
    model = Model.of(asked.name, asked.X, discounts=explainer.discounts)
    bare = Model.of(asked.name, asked.X, discounts=False)
    network, short = Network.of(asked.pipeline), replace(explainer, max_steps=SHORT)
    explained.explain(asked.rejected.head(1), explainer=explainer)  # whatever is made once
    table: list[dict[str, float]] = []
    told, broken = list[bool](), list[str]()
    for at, x0 in enumerate(rows_of(asked.rejected)):
        row = asked.rejected.iloc[[at]]
        wall, cpu = time.perf_counter(), time.process_time()
        explained.explain(row, explainer=explainer)
        spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        (answer,) = explained.explain(row, count=COUNT, explainer=explainer)
        (capped,) = explained.explain(row, count=COUNT, explainer=short)
        wrong = [wrong_step(model, x0, found.plan) for one in (answer, capped) for found in one.counterfactuals]
        told += [not text for text in wrong]
        broken += [f"BROKEN: {explainer.name}, row {at}: {text}" for text in wrong if text]
        grid = Grid(model, network, x0).cheapest().cost
        least = grid if model.helps == bare.helps else Grid(bare, network, x0).cheapest().cost
        table.append(
            {
                "front": answer.diagnostics.get("front", 0),
                "answers": len(answer.counterfactuals),
                **spent,
                "cost": _least(answer, discounted=True),
                "capped": _least(capped, discounted=True),
                "grid": grid,
                "effort": min(_least(answer, discounted=False), _least(capped, discounted=False)),
                "grid_effort": least,
            }
        )
    rows = pd.DataFrame(table)
    return Line(rows, (0, 0), float(np.mean(told)) if told else 1.0, broken)


def _least(answer: Explanation, *, discounted: bool) -> float:
    """Return what the cheapest plan of at most two steps costs, or the least effort; infinite: there is none."""
    plans = [found.plan for found in answer.counterfactuals if len(found.plan) <= SHORT]
    return min((sum(s.effort * (s.discount if discounted else 1.0) for s in plan) for plan in plans), default=np.inf)


def _orders(answers: Sequence[Explanation]) -> tuple[int, int]:
    names = [[step.action for step in found.plan] for answer in answers for found in answer.counterfactuals]
    both = [some.index(STUDY) < some.index(GAIN) for some in names if STUDY in some and GAIN in some]
    return sum(both), len(both) - sum(both)


def wrong_step(model: Model, x0: State, plan: Sequence[mlflow_cf.Step]) -> str:
    """Return what is wrong with a plan by the actions told once more; "" if nothing is."""
    state = x0
    for step in plan:
        doing = model.doings.get(step.action)
        if doing is None:
            return f"{step.action} is no action"
        value = 0.0 if doing.outcome else step.row[doing.feature] - state[doing.feature]  # type: ignore[operator]
        done = model.step(step.action, state, value)
        if not done.valid:
            return f"step {step.step}, {step.action}, cannot be done"
        if any(done.state[feature] != value for feature, value in step.row.items()):
            return f"step {step.step}, {step.action}, leads elsewhere"
        if abs(done.effort - step.effort) > SAME or abs(done.discount - step.discount) > SAME:
            return f"step {step.step}, {step.action}, has another effort or discount"
        state = done.state
    return "" if plan and model.within(x0, state) else "the plan ends where it must not, or has no step"


def gates(found: Sequence[Measured]) -> list[tuple[str, Gate]]:
    """Return what is promised of plans."""
    promised: list[tuple[str, Gate]] = []
    for one in found:
        for name, line in one.lines.items():
            figures, where = line.figures(), f"{one.name} / {name}"
            some = [Gate(CONFIRMED, line.confirmed, 1.0)]
            if figures["grid has a plan"]:
                some += [Gate(EVERY, figures["found"], 1.0)]
                some += [Gate("rows as cheap as the grid", figures["as cheap in 2 steps"], AS_CHEAP)]
            some += [Gate(f"{key}, median", figures[key], SECONDS, most=True) for key in ("wall s", "CPU s")]
            promised += [(where, gate) for gate in some]
        cscf, scf = one.lines["cscf"], one.lines["scf"]
        where = f"{one.name} / cscf"
        promised.append((where, Gate("size of the front, median", cscf.figures()["front"], FRONT[one.name])))
        promised.append((where, Gate("CPU of a generation, NSGA2 / cscf", one.over, OVER_NSGA2)))
        if any(cscf.orders):
            promised.append((where, Gate("study before gain", cscf.orders[0] / sum(cscf.orders), 1.0)))
        if sum(scf.orders) > 1:
            mixed = min(scf.orders) / sum(scf.orders)
            promised.append((f"{one.name} / scf", Gate("share of the rarer order", mixed, 1e-9)))
    return promised


def table(found: Sequence[Measured]) -> str:
    """Return the figures, those of the paper beside them."""
    shown: dict[tuple[str, str], dict[str, float]] = {}
    for one in found:
        for name, line in one.lines.items():
            study, gain = line.orders
            shown[one.name, name] = {**line.figures(), "study first": study, "gain first": gain}
        for (data, name), (mean, median) in PUBLISHED.items():
            if data == one.name:
                shown.setdefault((data, name), {}).update({"paper, mean": mean, "paper, median": median})
    return pd.DataFrame(shown).round(3).to_string(na_rep="")


def generations(found: Sequence[Measured]) -> str:
    """Return CPU milliseconds of one generation of both."""
    shown = {one.name: {"NSGA2": one.nsga2_ms, "cscf": one.ours_ms, "ratio": one.over} for one in found}
    return pd.DataFrame(shown).T.round(1).to_string()


def costlier(found: Sequence[Measured]) -> str:
    """Return the rows whose cheapest plan of two steps is more than 1 % costlier than the grid's."""
    lines = []
    for one in found:
        for name, line in one.lines.items():
            rows = line.rows
            behind = np.isfinite(rows["grid"]) & ~(rows["capped"] <= (1 + NEAR) * rows["grid"] + SAME)
            lines += [
                f"{one.name} / {name}, row {at}: {row['capped']:.4f}, grid {row['grid']:.4f}"
                for at, row in rows[behind].iterrows()
            ]
    return "\n".join(lines) or "none"
