"""Where programs put real numbers: inside the cells that they chose, by the comparison of the model itself."""

import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from exact_worlds import CUTS
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import many
from milp_worlds import continuous
from sklearn.base import ClassifierMixin
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import CEOCL
from mlflow_cf.milp.embed import embed
from mlflow_cf.milp.program import Program
from mlflow_cf.milp.solve import Effort, solve
from mlflow_cf.milp.variables import STRICT, Real, Variables, domains_of

forests = continuous(("forest",), ("margin", "shares", "value"))
at_cuts = st.sampled_from([*CUTS["income"], *np.nextafter(CUTS["income"], np.inf).tolist()])


@given(forests, at_cuts, st.integers(0, 2**16), st.sampled_from([0.0, STRICT]))
def test_what_a_program_says_of_a_row_is_what_the_structure_says_of_it(world, income, seed, strict):
    """Whatever is minimised, for own values at a cut and by a last bit above it."""
    rng = np.random.default_rng(seed)
    world = replace(world, query={**world.query, "income": income}, constraints={})
    problem, structure = world.row_task().problem, world.structure
    domains = domains_of(problem)
    assume(domains is not None)
    program = Program()
    variables = Variables.add(program, problem, domains, strict=strict)
    sums = embed(program, variables, structure)
    for variable in variables.groups:
        some = variable.size if isinstance(variable, Real) else variable.switch
        program.costs.append(some.times(float(rng.uniform(-1, 1))))
    program.costs.append(sums[0].times(float(rng.uniform(-3, 3))))
    solved = solve(program, Effort())
    assert solved.status == "optimal"
    row = variables.row(solved.values)
    (found,) = structure.sums([structure.encode(column, row[[column]]) for column in range(len(row))])
    assert found == pytest.approx([one.value(solved.values) for one in sums], abs=1e-5)


MODELS = {
    "tree": lambda: DecisionTreeClassifier(max_depth=5, random_state=0),
    "forest": lambda: RandomForestClassifier(5, max_depth=4, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=6, max_depth=3, random_state=0),
    "bins": lambda: make_pipeline(KBinsDiscretizer(8, quantile_method="averaged_inverted_cdf"), LogisticRegression()),
}


def drawn(seed: int) -> tuple[pd.DataFrame, pd.Series, ClassifierMixin, np.random.Generator]:
    rng = np.random.default_rng(seed)
    data = pd.DataFrame(rng.normal(size=(200, 3)) * 10.0 ** rng.integers(-2, 3, 3) + 5, columns=list("abc"))
    wanted = ((data - data.mean()) / data.std()).sum(axis=1) + rng.normal(size=200) > 0.6
    scaled = [[MinMaxScaler()], [StandardScaler()], []][seed % 3]
    data = data.astype("float32") if rng.random() < 0.4 else data
    model = make_pipeline(*scaled, MODELS[rng.choice(list(MODELS))]()).fit(data, wanted.astype(int))
    return data, wanted.astype(int), model, rng


@pytest.mark.parametrize("seed", range(many(6, 200)))
def test_no_answer_of_a_program_is_refused_by_the_model(seed, caplog):
    """Numbers of any size, scaled before trees and not, stored as float32 and float64, next to cuts and far away."""
    data, labels, model, rng = drawn(seed)
    rows = data[model.predict(data) == 0].head(5)
    rows["a"] = np.nextafter(rows["a"], np.array(np.inf, rows["a"].dtype))
    options = {"objective": rng.choice(["l1", "l1_mad", "l2"]), "mu": rng.choice([0.0, 1.0, 1e4])}
    options = {name: value.item() for name, value in options.items()}
    explainer = CEOCL(**options, manifold=["none", "hull"][seed % 2])
    explained = mlflow_cf.wrap(model, data, labels, target=1, values="continuous", explainer=explainer)
    with caplog.at_level(logging.WARNING, logger="mlflow_cf"):
        answers = explained.explain(rows)
    assert not caplog.records
    assert {answer.status for answer in answers} == {"found"}
    assert {answer.diagnostics["solver"] for answer in answers} == {"optimal"}
