"""Why not, against all rows there are: what blocks is minimal, what helps is nearest, and nothing is made up."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forest_worlds import RULES, forest_model
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from sklearn.tree import DecisionTreeClassifier
from worlds import KEYS, background, explained, setting_of, table, wide_rows

import mlflow_cf
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.goal import Requirements
from mlflow_cf.model.judge import Judge, OpenModel, Outcome
from mlflow_cf.model.parity import Opened
from mlflow_cf.policy import Target
from mlflow_cf.stepwise import finished
from mlflow_cf.why_not.relax import Deciding, Decision, Question, Relaxations, Unanswered, WhyNot, why_not

# of two groups, rules may define one by the other in a circle, which is refused
GROUPS = st.sampled_from([[], [["income", "rooms"]], [["job", "grade"]]])
RULED = {**KEYS, "groups": GROUPS, "rules": st.lists(st.sampled_from(RULES), unique=True, max_size=2)}
strict = st.fixed_dictionaries({}, optional=RULED).filter(lambda constraints: len(constraints) > 3)


class World:
    """A forest that says yes now and then, and all rows that a row may become."""

    def __init__(self, seed: int, row: dict[str, Any], constraints: dict[str, Any]) -> None:
        self.frame = background(seed)
        self.constraints = constraints
        self.query = table([row], self.frame)
        self.wrapped: ExplainedModel = explained(forest_model(seed, self.frame), self.frame, constraints)
        space = self.wrapped.space.covering(self.query)
        self.x0 = space.encode(self.query)[0]
        alone = setting_of(self.frame, {}).domains
        values = [np.unique(np.append(domain.actions[:, 0], self.x0[domain.columns[0]])) for domain in alone]
        rows = np.array(list(product(*values)))
        said = self.wrapped.judge.verdict(space.decode(rows))
        self.rows, self.space = rows[said.codes == 1], space

    def answers(self, constraints: dict[str, Any]) -> np.ndarray:
        """Return all rows with the wanted label that meet constraints."""
        bound_policy = setting_of(self.frame, constraints).covering(self.space)
        return self.rows[bound_policy.accepts(self.rows, self.x0)]

    def nearest(self, constraints: dict[str, Any]) -> float:
        metric = self.wrapped.bound_policy.bound_distance
        columns = tuple(domain.columns for domain in setting_of(self.frame, {}).domains)
        return float(metric.distance(columns, self.answers(constraints), self.x0).min(initial=np.inf))


def parts(constraints: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what every path says, alone."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in constraints.items():
        if key == "max_changes":
            found["constraints.max_changes"] = {key: value}
        elif key in ("rules", "groups"):
            found.update({f"constraints.{key}[{n}]": {key: [part]} for n, part in enumerate(value)})
        elif key == "forbidden":
            for name, pairs in value.items():
                found.update({f"constraints.{key}.{name}[{n}]": {key: {name: [pair]}} for n, pair in enumerate(pairs)})
        elif isinstance(value, dict):
            found.update({f"constraints.{key}.{name}": {key: {name: part}} for name, part in value.items()})
        else:
            found.update({f"constraints.{key}.{name}": {key: [name]} for name in value})
    return found


def joined(chosen: list[dict[str, Any]]) -> dict[str, Any]:
    """Return constraints made of parts."""
    told: dict[str, Any] = {}
    for part in chosen:
        for key, value in part.items():
            if isinstance(value, dict):
                for name, inner in value.items():
                    kept = told.setdefault(key, {})
                    kept[name] = [*kept.get(name, []), *inner] if key == "forbidden" else inner
            else:
                told[key] = [*told.get(key, []), *value] if isinstance(value, list) else value
    return told


@dear(2)
@given(st.integers(0, 40), wide_rows, strict)
def test_what_blocks_is_minimal_and_what_helps_is_nearest(
    seed: int, row: dict[str, Any], constraints: dict[str, Any]
) -> None:
    world = World(seed, row, constraints)
    (found,) = world.wrapped.explain(world.query, why_not="full")
    if "why_not" not in found.diagnostics:
        return
    told, declared = found.diagnostics["why_not"], parts(constraints)
    blocking = told["blocking"]
    assert found.status == "infeasible"
    assert not len(world.answers(constraints))
    assert (told["proved"], told["minimal"]) == (True, True)
    assert not len(world.answers(joined([declared[path] for path in blocking])))
    for path in blocking:
        assert len(world.answers(joined([declared[other] for other in blocking if other != path])))
    assert set(told["relaxations"]) == set(blocking)
    for path, distance in told["relaxations"].items():
        nearest = world.nearest(joined([part for other, part in declared.items() if other != path]))
        assert distance == (None if nearest == np.inf else pytest.approx(nearest, abs=1e-12))


LAZY = pd.DataFrame({"income": [0, 1, 2, 3, 4, 9], "debt": [9, 8, 7, 6, 5, 0]})


@pytest.mark.parametrize("constraints", [{"immutable": ["debt"]}, {"max_changes": 1}], ids=str)
def test_constraints_are_not_blamed_for_what_a_search_missed(constraints: dict[str, Any]) -> None:
    """No background row meets the constraints, but there are answers: the nearest row is no excuse to blame them."""
    model = DecisionTreeClassifier(random_state=0).fit(LAZY[["income"]].assign(debt=0), LAZY["income"] > 5)
    wrapped = mlflow_cf.wrap(model, LAZY, target=True, constraints=constraints, explainer="nearest_row")
    (found,) = wrapped.explain(LAZY.head(1))
    assert found.status == "not_found"
    assert "rule" not in found.reason
    assert found.diagnostics["why_not"]["blocking"] == []
    assert wrapped.explain(LAZY.head(1), explainer="geco")[0].status == "found"


def scripted(probability: float | None, *, found: bool | None = False) -> WhyNot:
    """Return why not, where all but a lower probability is said to be `found`."""
    bound_policy = setting_of(background(0), {"immutable": ["age"]})
    row = bound_policy.background[0]

    def decide(question: Question) -> Deciding[Decision]:
        yield from ()  # the judge need not be asked
        lower = question.target.min_probability is None and probability is not None
        return Decision(True, row, 0.1, probability) if lower else Decision(found)

    nobody = Judge(OpenModel("test", ("no", "yes"), lambda rows: np.full(len(rows), "no")), argmax_decides=False)
    alone = Requirements(bound_policy.space, nobody, Outcome(np.empty(0, dtype=np.intp)), Opened(None, ""))
    asked = Question(bound_policy, Target(label="yes", min_probability=0.99), alone, nearest=False)
    return finished(why_not(Unanswered(Relaxations(asked), bound_policy.space, row, decide), lambda _: True))


@pytest.mark.parametrize(
    ("probability", "told"),
    [(0.6278, "0.627"), (0.5, "0.5"), (np.nextafter(0.29, 0), "0.289"), (0.00012349, "0.000123")],
)
def test_a_probability_that_is_told_can_be_reached(probability: float, told: str) -> None:
    assert scripted(probability).advice == f"ask for a probability of {told} instead of 0.99"


def test_what_is_not_known_is_not_claimed() -> None:
    why = scripted(0.6278, found=None)
    assert (why.proved, why.minimal) == (False, False)
    assert why.reason == (
        "ask for a probability of 0.627 instead of 0.99; "
        "may be ruled out by constraints.immutable.age and target.min_probability, or part of this"
    )


def test_a_limit_that_is_told_admits_its_answer() -> None:
    """Six digits of 41.12345649 are less than the answer needs."""
    frame = pd.DataFrame({"income": [1.0, 2.0, 40.0, 41.12345649], "debt": [1, 2, 4, 4]})
    model = DecisionTreeClassifier(random_state=0).fit(frame, frame["income"] > 40)
    wrapped = mlflow_cf.wrap(model, frame, target=True, constraints={"ranges": {"income": [0, 40.0]}})
    (found,) = wrapped.explain(frame.head(1))
    assert found.reason == ("raise the limit of income from 40 to 41.12345649; ruled out by constraints.ranges.income")
