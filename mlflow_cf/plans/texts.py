"""What stands in actions and relationships: conditions as rules, and names of features."""

from __future__ import annotations

from mlflow_cf.constraints.expressions import Side
from mlflow_cf.constraints.origin import Origin
from mlflow_cf.constraints.plaf import parse_rule
from mlflow_cf.constraints.resolve import check_sides, resolve
from mlflow_cf.constraints.rules import Rule
from mlflow_cf.errors import InputError, did_you_mean
from mlflow_cf.features import FeatureSpace


def condition(text: str, space: FeatureSpace, path: str, sides: tuple[Side, ...]) -> Rule:
    """Return a condition on the state before a step (``x``), or also on the one after it (``x_cf``).

    Raises:
        InputError: text that is no rule, unknown features, or a state that does not belong here.
    """
    statement = parse_rule(text, path, functions=True)
    for comparison in (*statement.when, statement.then):
        for node in (comparison.left, comparison.right):
            check_sides(node, sides, path)
    return resolve(statement, space, Origin("policy", "actions"), path=path)


def unknown(name: str, space: FeatureSpace, path: str) -> list[InputError]:
    """Return what is wrong with the name of a feature, if it is none."""
    if name in space.index:
        return []
    return [InputError(path, f"{name[:60]!r} is not a feature", did_you_mean(name, space.names, "features"))]
