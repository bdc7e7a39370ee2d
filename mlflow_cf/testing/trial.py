"""One scenario put before one explainer, and everything that is asked of its answers.

Also which kinds of models, targets, constraints, values and distances are tried together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any, Final, get_args

import pandas as pd

from mlflow_cf.constraints import Values
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.policy import Distance
from mlflow_cf.policy.distance import Scale
from mlflow_cf.testing.checker import Checker, Row, Ruler, plain_rows, table_of
from mlflow_cf.testing.goals import GOALS, Reply
from mlflow_cf.testing.models import KINDS, Fitted, fitted
from mlflow_cf.testing.worlds import DEMANDS, ORDERS, Demands, odd_row, overrides, table
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.result import Counterfactual
from mlflow_cf.wrapping import wrap

Choice = tuple[int, str]
Pair = tuple[int, str, int, str]


@dataclass(frozen=True)
class Scenario:
    """One problem of the suite, by the names of its parts.

    Attributes:
        kind: of model, among `KINDS`.
        goal: of target, among `GOALS`.
        demands: of constraints, among `DEMANDS`.
        values: which values may be proposed.
        scale: how the distance measures a change of a number.
    """

    kind: str
    goal: str
    demands: str
    values: Values
    scale: Scale = "range"

    def __str__(self) -> str:
        return "-".join(astuple(self))

    def choices(self) -> set[Choice]:
        """Return every choice of this scenario."""
        return set(enumerate(astuple(self)))

    def pairs(self) -> set[Pair]:
        """Return every two choices that this scenario brings together."""
        return {(i, a, j, b) for (i, a), (j, b) in combinations(enumerate(astuple(self)), 2)}


def covering(covered: Callable[[Scenario], set[Any]]) -> tuple[Scenario, ...]:
    """Return few scenarios that cover all there is to cover, at least once; `covered` tells what one of them covers.

    Among those that cover as much, the one that brings most together for the first time is chosen, so that what is left
    over is spread over all kinds of models, targets and values.
    """
    scenarios = [Scenario(*choice) for choice in product(KINDS, GOALS, DEMANDS, get_args(Values), get_args(Scale))]
    scenarios = [scenario for scenario in scenarios if KINDS[scenario.kind].takes(GOALS[scenario.goal])]
    found = {scenario: covered(scenario) for scenario in scenarios}
    left = set().union(*found.values())
    apart = {scenario: scenario.pairs() for scenario in scenarios}
    chosen: list[Scenario] = []
    met: set[Pair] = set()
    while left:
        best = max(scenarios, key=lambda scenario: (len(found[scenario] & left), len(apart[scenario] - met)))
        chosen.append(best)
        left -= found[best]
        met |= apart[best]
    return tuple(chosen)


# Every two choices that can occur together do so. The full product is ten times larger and finds hardly more: most
# faults need one choice or two to show.
SCENARIOS: Final = covering(Scenario.pairs)
FEW: Final = covering(Scenario.choices)  # every choice alone, for a suite that runs at every change


def first_of_each_kind(scenarios: Iterable[Scenario]) -> tuple[Scenario, ...]:
    """Return the first scenario for every kind of model."""
    first: dict[str, Scenario] = {}
    for scenario in scenarios:
        first.setdefault(scenario.kind, scenario)
    return tuple(first.values())


BACKGROUND_SEED: Final = 1
QUERY_SEED: Final = 2
COUNT: Final = 3
EVALUATIONS: Final = 2500
SEED: Final = 5


@dataclass(frozen=True, eq=False)
class Trial:
    """A scenario with its model, rows to explain and the explainer under test.

    Attributes:
        scenario, explainer: what is tried.
        model: fitted for the scenario.
        background: raw rows; `rows` are those to explain, one of which meets the target already and one is odd.
        options: what `wrap` and `save_model` are told.
    """

    scenario: Scenario
    explainer: AnyExplainer
    model: Fitted
    background: pd.DataFrame
    rows: pd.DataFrame
    options: dict[str, Any]

    @classmethod
    def of(cls, scenario: Scenario, explainer: AnyExplainer) -> Trial:
        """Set a scenario up."""
        plain, model = KINDS[scenario.kind].plain, fitted(scenario.kind, scenario.goal)
        background = table(BACKGROUND_SEED, plain=plain)
        options = {
            "target": GOALS[scenario.goal].target(model.labels),
            "constraints": DEMANDS[scenario.demands].policy_for(background),
            "explainer": explainer,
            "features": overrides(scenario.values),
            "values": scenario.values,
            "distance": Distance(scale=scenario.scale),
            "output": model.output,
        }
        return cls(scenario, explainer, model, background, rows_of(scenario), options)

    @property
    def demands(self) -> Demands:
        """The kind of constraints."""
        return DEMANDS[self.scenario.demands]

    @cached_property
    def explained(self) -> ExplainedModel:
        """The wrapped model."""
        return wrap(self.model.model, self.background, **self.options)

    def explain(
        self, rows: pd.DataFrame, explained: ExplainedModel | None = None, explainer: AnyExplainer | None = None
    ) -> Explanations:
        """Explain rows as every test of this trial does."""
        return (explained or self.explained).explain(
            rows,
            count=COUNT,
            constraints=self.demands.request,
            explainer=explainer,
            seed=SEED,
            max_evaluations=EVALUATIONS,
        )

    @cached_property
    def answers(self) -> Explanations:
        """The answers for `rows`."""
        return self.explain(self.rows)

    @cached_property
    def queries(self) -> list[dict[str, Any]]:
        """The rows to explain as plain values."""
        return plain_rows(self.rows)

    @cached_property
    def replies(self) -> list[Reply]:
        """What the model itself says of the rows to explain."""
        return self.model.replies(self.rows)

    @cached_property
    def checker(self) -> Checker:
        """The independent checker of the scenario's constraints."""
        return self.demands.checker(self.background, self.scenario.values)

    @cached_property
    def ruler(self) -> Ruler:
        """The independent distance."""
        return Ruler(self.background, scale=self.scenario.scale, orders=ORDERS)

    def found(self) -> Iterator[tuple[int, Row, Counterfactual]]:
        """Yield every counterfactual with the position and the plain values of the row it explains."""
        for position, answer in enumerate(self.answers):
            for counterfactual in answer.counterfactuals:
                yield position, self.queries[position], counterfactual

    def ask(self, rows: Sequence[Row]) -> list[Reply]:
        """Ask the model itself about plain rows."""
        return self.model.replies(table_of(rows, self.background)) if rows else []

    def met(self, position: int, reply: Reply) -> bool:
        """Whether a reply is what was wanted for the row to explain at a position."""
        return GOALS[self.scenario.goal].met(self.model.labels, self.replies[position], reply)


def rows_of(scenario: Scenario) -> pd.DataFrame:
    """Return rows to explain: unwanted, wanted already (if there can be such), odd, unwanted."""
    model, goal = fitted(scenario.kind, scenario.goal), GOALS[scenario.goal]
    rows = table(QUERY_SEED, 40, plain=KINDS[scenario.kind].plain)
    met = pd.Series([goal.met(model.labels, reply, reply) for reply in model.replies(rows)])
    unwanted = rows[~met]
    return pd.concat(
        [unwanted.iloc[:1], rows[met].iloc[:1], odd_row(rows), unwanted.iloc[1:2]], ignore_index=True
    ).astype({name: dtype for name, dtype in rows.dtypes.items() if dtype != "category"})
