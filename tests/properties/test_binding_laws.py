"""Laws of binding groups of one column to a row: kernels say what rules and domains say one by one."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from mlflow_cf.constraints import Domain, Rule
from mlflow_cf.constraints.expressions import Apply, Const, Expression, Ref
from mlflow_cf.constraints.programs import SIGNS, Checks
from mlflow_cf.constraints.rules import Atom, Origin
from mlflow_cf.features import FeatureSpace
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundDistance
from mlflow_cf.problem.single_features import PlainRules, SingleFeatures

COLUMNS = 3
FRAME = pd.DataFrame({name: np.arange(6.0) for name in "xyz"[:COLUMNS]})
ORIGIN = Origin("policy", "rules")

codes = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0])
values = codes | st.just(np.nan)


def sides(column: int) -> st.SearchStrategy[Expression]:
    """Return what a rule may say of one column of the counterfactual and of the row."""
    plain = values.map(Const) | st.integers(0, COLUMNS - 1).map(lambda other: Ref("x", other))
    operands = plain | st.just(Ref("x_cf", column))
    computed = st.builds(Apply, st.sampled_from("+-*/"), st.tuples(operands, operands)) | operands.map(
        lambda of: Apply("abs", (of,))
    )
    return operands | computed


@st.composite
def atoms(draw: st.DrawFn, column: int) -> Atom:
    """Return a comparison of a column of the counterfactual with what may be computed from it and the row."""
    sign = draw(st.sampled_from(SIGNS))
    unknown_from = draw(st.sampled_from([np.inf, 3.0]))
    tolerance = draw(st.sampled_from([0.0, 0.5])) if sign == "==" else 0.0
    left = draw(st.just(Ref("x_cf", column)) | sides(column))
    return Atom(left, sign, draw(sides(column)), unknown_from=unknown_from, tolerance=tolerance)


@st.composite
def rules_of(draw: st.DrawFn, column: int) -> Rule:
    when = draw(st.lists(atoms(column), max_size=2))
    return Rule(tuple(when), draw(atoms(column)), ORIGIN, "a rule")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Domain], dict[int, list[Rule]], BoundDistance, np.ndarray]:
    """Return domains of all columns, some rules about each, a distance and a row."""
    some = [sorted(draw(st.sets(codes, max_size=6))) for _ in range(COLUMNS)]
    domains = [Domain((at,), np.array(one).reshape(-1, 1), np.arange(1.0, len(one) + 1)) for at, one in enumerate(some)]
    rules = {at: draw(st.lists(rules_of(at), max_size=2)) for at in range(COLUMNS)}
    weights = draw(st.sampled_from([{}, {"x": 2.5}]))
    scale = draw(st.sampled_from(["range", "percentile"]))
    distance = BoundDistance.bind(Distance(0.25, 0.5, 0.25, scale=scale, weights=weights), FeatureSpace.infer(FRAME))
    return domains, rules, distance, np.array(draw(st.tuples(*[values] * COLUMNS)))


@given(worlds(), st.sampled_from(["plain", "others"]))
def test_a_row_is_bound_as_its_rules_and_its_distance_say(world, kind: str) -> None:
    domains, rules, distance, x0 = world
    lone = SingleFeatures.of(range(COLUMNS), domains, distance)
    others = {} if kind == "plain" else rules
    bound = lone.bind(PlainRules(rules if kind == "plain" else {}), others, x0)
    for column, domain in enumerate(domains):
        found, own = bound.actions(column), x0[column]
        candidates = np.tile(x0, (len(domain.actions), 1))
        candidates[:, column] = domain.actions[:, 0]
        lawful = np.ones(len(candidates), dtype=np.bool_)
        for rule in rules[column]:
            lawful &= rule.holds(candidates, x0)
        kept = np.flatnonzero(lawful & (domain.actions[:, 0] != own))
        expected = np.append(domain.actions[kept, 0], own)
        order = np.argsort(expected, kind="stable")  # a missing value comes last
        np.testing.assert_array_equal(found.values[:, 0], expected[order])
        assert found.own == order.tolist().index(len(kept))
        known = np.flatnonzero(domain.actions[:, 0] == own)
        np.testing.assert_array_equal(found.ids, np.append(kept, known if len(known) else -1)[order])
        np.testing.assert_array_equal(found.weights, np.append(domain.weights[kept], 0.0)[order])
        cost, peak = distance.parts((column,), found.values, x0[[column]])
        np.testing.assert_array_equal(found.cost, cost)
        np.testing.assert_array_equal(found.peak, peak)
        assert bound.allowed[column] == all(rule.holds(x0[None], x0)[0] for rule in rules[column])


@given(worlds(), st.lists(st.tuples(*[values] * COLUMNS), min_size=1, max_size=5))
def test_members_are_what_the_domains_contain(world, rows: list[tuple[float, ...]]) -> None:
    domains, _, distance, x0 = world
    Z, found = np.array(rows), np.ones(len(rows), dtype=np.bool_)
    changed = (x0 != Z) & ~(np.isnan(Z) & np.isnan(x0))
    SingleFeatures.of(range(COLUMNS), domains, distance).find_members(Z, changed, found)
    inside = np.column_stack([domain.contains(Z[:, [at]]) for at, domain in enumerate(domains)])
    np.testing.assert_array_equal(found, (inside | ~changed).all(axis=1))


@given(worlds(), st.lists(st.tuples(*[values] * COLUMNS), max_size=5))
def test_each_rule_is_held_as_it_is_by_itself(world, rows: list[tuple[float, ...]]) -> None:
    _, rules, _, x0 = world
    every = [rule for some in rules.values() for rule in some]
    others = Rule((), Atom(Ref("x_cf", 0), "in", members=(1.0, 2.0)), ORIGIN, "no kernel knows it")
    every = [*every[:1], others, *every[1:]]
    Z = np.array(rows).reshape(-1, COLUMNS)
    held = Checks.of(every).held(Z, x0)
    np.testing.assert_array_equal(held, np.array([rule.holds(Z, x0) for rule in every]))
    kept = np.ones(len(Z), dtype=np.bool_)
    Checks.of(every).refuse(Z, x0, kept)
    np.testing.assert_array_equal(kept, held.all(axis=0))
