"""`mlflow_cf.order`: in which order the changes of a counterfactual cost least."""

from __future__ import annotations

from mlflow_cf.constraints.actions import ActionSource, RelationshipSource, read_actions, read_relationships
from mlflow_cf.errors import InputError
from mlflow_cf.plans.action_model import ActionModel, Declared
from mlflow_cf.plans.plan import plan_steps
from mlflow_cf.plans.walk import cheapest_plan
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance
from mlflow_cf.words.changes import Step
from mlflow_cf.words.result import Counterfactual


def order(
    counterfactual: Counterfactual, actions: ActionSource = (), relationships: RelationshipSource = ()
) -> tuple[Step, ...]:
    """Return the steps of a counterfactual's changes in the order that costs least.

    Each step takes one feature to its new value; what an action's effects move on the way needs no step of its own.
    The cost of a step is its effort times its discount, and that of a plan the sum. All orders are looked at where up
    to eight features change; of more, the cheapest 500 ways are followed.

    Args:
        counterfactual: as explanations hold it.
        actions: what can be done, each once. A changed feature that none of them is about is set in a step of its own,
            whose effort is the change as a share of the feature's range, or 1 for a level.
        relationships: what earlier steps make cheaper.

    Returns:
        The steps; none if no order of these actions leads to the counterfactual under their conditions.

    Raises:
        InputError: actions or relationships that do not fit the features, or a counterfactual of no model.

    Reference: Naumann & Ntoutsi 2021, sections 3 and 4.
    """
    if counterfactual.space is None:
        raise InputError("counterfactual", "does not come from a model", "take one of an explanation")
    new = dict(counterfactual.row)
    old = {**new, **{change.feature: change.old for change in counterfactual.changes}}
    space, (x0, end) = counterfactual.space.coded([old, new])
    declared = Declared(read_actions(actions), read_relationships(relationships))
    plan = cheapest_plan(ActionModel.bind(declared, space, BoundDistance.bind(Distance(), space)), x0, end)
    return plan_steps(space, space.values(x0), plan)
