"""What one look at everything that may change tells: that nothing meets the target, or a candidate that does."""

from itertools import product

import numpy as np
import pandas as pd
from hypothesis import example, given
from hypothesis import strategies as st
from laws import dear
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import mlflow_cf
from mlflow_cf.engine.engine import Engine
from mlflow_cf.explainers import UFCE, Candidates


class Seen:
    """An explainer that finds nothing, and keeps the problem."""

    name = "seen"
    polish = False

    def search(self, problem, budget, rng):
        del budget, rng
        self.problem = problem
        return Candidates(np.empty((0, len(problem.space))))


def table(seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({name: rng.integers(0, 5, 120) for name in "abc"}).assign(d=rng.random(120) < 0.5)
    return frame, (frame["a"] + frame["b"] - frame["c"] + frame["d"] > 6).to_numpy()


@dear(40)
@given(
    seed=st.integers(0, 20),
    forest=st.booleans(),
    at=st.integers(0, 119),
    frozen=st.sets(st.sampled_from("abcd"), max_size=3),
    rules=st.sampled_from([[], ["x_cf.a <= x_cf.b"], ["x_cf.a + x_cf.c <= 5"]]),
    most=st.sampled_from([None, 1, 2]),
    groups=st.sampled_from([[], [["a", "c"]], [["a", "b", "d"]]]),
)
@example(seed=0, forest=False, at=0, frozen=set(), rules=[], most=None, groups=[["a", "c"]])
@example(seed=0, forest=True, at=0, frozen=set(), rules=[], most=None, groups=[["a", "c"]])
def test_what_it_tells_is_what_all_rows_tell(*, seed, forest, at, frozen, rules, most, groups) -> None:
    frame, y = table(seed)
    model = RandomForestClassifier(5, max_depth=3, random_state=0) if forest else LogisticRegression()
    model.fit(frame, y)
    row, seen = frame.iloc[[at]], Seen()
    constraints = {"immutable": sorted(frozen), "rules": rules, "max_changes": most or 4, "groups": groups}
    explained = mlflow_cf.wrap(model, frame, target=True, constraints=constraints, why_not=False)
    if model.predict(row)[0] or explained.explain(row, explainer=seen)[0].status == "infeasible":
        return
    problem = seen.problem
    engine = Engine(problem)
    codes = np.array(list(product(*(range(len(group.actions)) for group in problem.groups))))
    rows = problem.rows(codes)
    lawful = rows[problem.check(rows)]
    favourable = model.predict(problem.space.decode(lawful)[list(frame)]) if len(lawful) else np.empty(0)
    assert not (engine.beyond_reach(1e-6) and favourable.any())
    if not forest and not rules and not groups and most is None:
        assert engine.beyond_reach(1e-6) != favourable.any()
    few = engine.few
    if few is None:
        return
    steepest = problem.rows(few.steepest())
    assert problem.check(steepest).all()
    assert model.predict(problem.space.decode(steepest)[list(frame)]).all() if len(steepest) else True
    if not forest and not rules and not groups:
        assert len(steepest) == favourable.any()


def test_pairs_and_triples_that_cannot_suffice_cost_ufce_nothing() -> None:
    frame, _ = table(0)
    model = LogisticRegression().fit(frame, frame["a"] > 3)
    explained = mlflow_cf.wrap(model, frame, frame["a"] > 3, target=True, explainer="ufce", why_not=False)
    row = frame[frame["a"] == 0].head(1)
    (singles,) = explained.explain(row, constraints={"immutable": ["a"]}, explainer=UFCE(changes=1))
    for changes in (2, 3, "all"):
        (answer,) = explained.explain(row, constraints={"immutable": ["a"]}, explainer=UFCE(changes=changes))
        assert answer.status == singles.status == "not_found"
        assert answer.evaluations == singles.evaluations
