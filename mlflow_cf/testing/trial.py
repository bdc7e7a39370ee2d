"""One scenario put before one explainer, and everything that is asked of its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd

from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import AnyExplainer
from mlflow_cf.policy import Distance
from mlflow_cf.testing.checker import Checker, Row, Ruler, plain_rows, table_of
from mlflow_cf.testing.goals import GOALS, Goal, Reply
from mlflow_cf.testing.models import KINDS, Fitted, fitted
from mlflow_cf.testing.scenarios import Scenario
from mlflow_cf.testing.worlds import DEMANDS, ORDERS, Demands, odd_row, overrides, table
from mlflow_cf.words.explanations import Explanations
from mlflow_cf.words.result import Counterfactual
from mlflow_cf.wrapping import wrap

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
    def goal(self) -> Goal:
        """The kind of target."""
        return GOALS[self.scenario.goal]

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
        return self.goal.met(self.model.labels, self.replies[position], reply)

    def simpler(self, query: Row, row: Row) -> list[Row]:
        """Return every feasible row with one changed group put back."""
        rows = [{**row, **{name: query[name] for name in group}} for group in self.checker.changed_groups(query, row)]
        return [row for row in rows if self.checker.accepts(query, row)]


def rows_of(scenario: Scenario) -> pd.DataFrame:
    """Return rows to explain: unwanted, wanted already (if there can be such), odd, unwanted."""
    model, goal = fitted(scenario.kind, scenario.goal), GOALS[scenario.goal]
    rows = table(QUERY_SEED, 40, plain=KINDS[scenario.kind].plain)
    met = pd.Series([goal.met(model.labels, reply, reply) for reply in model.replies(rows)])
    unwanted = rows[~met]
    return pd.concat(
        [unwanted.iloc[:1], rows[met].iloc[:1], odd_row(rows), unwanted.iloc[1:2]], ignore_index=True
    ).astype({name: dtype for name, dtype in rows.dtypes.items() if dtype != "category"})
