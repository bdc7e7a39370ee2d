"""CE-OCL: its options, and input that is hard on a solver."""

import dataclasses
import subprocess
import sys
import threading

import highspy
import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mlflow_cf
from mlflow_cf import CEOCL, InputError, Target
from mlflow_cf.explainers import Candidates

DATA = pd.DataFrame({"a": np.arange(40.0) / 8, "b": np.arange(40.0)[::-1] % 7, "c": list("xyzw") * 10})
WANTED = (DATA["a"] + (DATA["c"] == "x") > 3.1).astype(int)


def forest(data=DATA, wanted=WANTED):
    encoder = make_column_transformer((OneHotEncoder(), ["c"]), remainder="passthrough")
    return make_pipeline(encoder, RandomForestClassifier(8, max_depth=4, random_state=0)).fit(data, wanted)


@pytest.fixture(scope="module")
def explained():
    return mlflow_cf.wrap(forest(), DATA, target=1, explainer=CEOCL(engine="milp"))


ROW = DATA.iloc[[3]]


def test_both_engines_find_the_same_optimum(explained):
    (solved,) = explained.explain(ROW)
    (searched,) = explained.explain(ROW, explainer=CEOCL(engine="best_first"))
    assert solved.counterfactuals[0].proof == searched.counterfactuals[0].proof == "optimal"
    assert solved.counterfactuals[0].distance == pytest.approx(searched.counterfactuals[0].distance, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"engine": "simplex"}, "explainer.engine"),
        ({"objective": "l3"}, "explainer.objective"),
        ({"mu": -1.0}, "explainer.mu"),
        ({"margin": float("nan")}, "explainer.margin"),
        ({"engine": "best_first", "mu": 1.0}, "explainer.engine"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, path):
    with pytest.raises(InputError) as error:
        CEOCL(**options)
    assert error.value.path == path


def test_models_that_cannot_be_embedded_are_refused_when_they_are_wrapped():
    with pytest.raises(InputError, match="could not be opened"):
        mlflow_cf.wrap(lambda rows: (rows["a"] > 3).astype(int), DATA, target=1, output="label", explainer="ceocl")
    smooth = make_pipeline(StandardScaler(), MLPClassifier((4,), activation="tanh", max_iter=2000, random_state=0))
    smooth.fit(DATA[["a", "b"]], WANTED)
    with pytest.raises(InputError, match="tanh"):
        mlflow_cf.wrap(smooth, DATA[["a", "b"]], target=1, explainer=CEOCL(engine="milp"))
    assert mlflow_cf.wrap(smooth, DATA[["a", "b"]], target=1, explainer="ceocl").explain(ROW[["a", "b"]])


@pytest.mark.parametrize(
    ("options", "fix"),
    [({"engine": "milp"}, 'use "best_first"'), ({"mu": 1.0}, 'use "best_first", and leave objective, mu and')],
    ids=str,
)
def test_why_a_calibrated_model_is_no_program_is_told(options, fix):
    model = CalibratedClassifierCV(LogisticRegression()).fit(DATA[["a", "b"]], WANTED)
    fact = "explainer.engine: a program cannot express CalibratedClassifierCV of .*, which is not known as one sum"
    with pytest.raises(InputError, match=f"{fact} of trees or layers; {fix}"):
        mlflow_cf.wrap(model, DATA[["a", "b"]], target=1, explainer=CEOCL(**options))


def test_requests_choose_the_engine_and_the_objective(explained):
    options = {"engine": "milp", "objective": "l1", "mu": 10.0}
    (answer,) = explained.explain(ROW, explainer={"name": "ceocl", "options": options})
    assert answer.diagnostics["costs"][0] >= 10.0
    with pytest.raises(InputError, match=r"explainer.options.mu"):
        explained.explain(ROW, explainer={"name": "ceocl", "options": {"mu": 1e9}})


def test_the_first_family_that_leaves_nothing_is_named(explained):
    def blocking(constraints):
        (answer,) = explained.explain(ROW, constraints=constraints)
        assert answer.status == "infeasible"
        return answer.diagnostics["infeasible"]

    assert blocking({"immutable": ["a", "b"]}) == "rules"
    assert blocking({"max_changes": 1, "levels": {"c": ["w", "z"]}, "ranges": {"a": [0, 2]}}) == "rules"
    far = LinearRegression().fit(DATA[["a", "b"]], DATA["a"] + DATA["b"])
    beyond = mlflow_cf.wrap(far, DATA[["a", "b"]], target=Target(low=100.0), explainer=CEOCL(engine="milp"))
    (answer,) = beyond.explain(ROW[["a", "b"]])
    assert answer.diagnostics["infeasible"] == "validity"
    both = mlflow_cf.wrap(far, DATA[["a", "b"]], target=Target(low=10.5), explainer=CEOCL(engine="milp"))
    (answer,) = both.explain(DATA[["a", "b"]].iloc[[4]], constraints={"max_changes": 1})
    assert answer.diagnostics["infeasible"] == "sparsity"


def test_a_solver_that_fails_or_has_no_time_leaves_what_is_known(explained, monkeypatch):
    (known,) = explained.explain(ROW, explainer="geco")

    def fail(*_):
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(highspy.Highs, "run", fail)
        (answer,) = explained.explain(ROW)
    assert answer.counterfactuals[0].row == known.counterfactuals[0].row
    assert answer.counterfactuals[0].proof == "none"
    with monkeypatch.context() as patch:
        patch.setattr("mlflow_cf.problem.budget.Budget.seconds_left", 0.0)
        (answer,) = explained.explain(ROW)
    assert answer.counterfactuals[0].row == known.counterfactuals[0].row


@pytest.mark.parametrize("objective", ["l1", "l1_mad", "l2"])
def test_where_the_best_known_row_is_the_optimum_it_is_told_as_such(objective):
    """A cutoff that is met by one row alone does not make it infeasible."""
    data = DATA[["a", "b"]]
    explainer = CEOCL(objective=objective, mu=1.0)
    explained = mlflow_cf.wrap(forest_of_numbers(), data, target=1, values="continuous", explainer=explainer)
    for (answer,) in (explained.explain(data.iloc[[at]]) for at in range(4)):
        assert answer.diagnostics["solver"] == "optimal"
        assert answer.diagnostics["objective"] == pytest.approx(answer.diagnostics["costs"])
        assert answer.diagnostics["bound"] == pytest.approx(answer.diagnostics["costs"], rel=1e-3)


@pytest.mark.parametrize(("objective", "mu"), [("l2", 10.0), ("l1", 0.0), ("distance", 2.0)])
def test_what_is_proved_of_the_papers_objective_is_told_beside_the_distance(objective, mu):
    data = DATA[["a", "b"]]
    explainer = CEOCL(objective=objective, mu=mu)
    explained = mlflow_cf.wrap(forest_of_numbers(), data, target=1, values="continuous", explainer=explainer)
    (answer,) = explained.explain(data.iloc[[3]], count=2)
    first, second = answer.counterfactuals
    assert (first.proof, first.bound) == ("none", None)
    assert (first.solver.proof, second.solver.proof) == ("optimal", "bounded")
    assert first.solver.value == pytest.approx(answer.diagnostics["costs"][0])
    assert first.solver.bound <= first.solver.value <= second.solver.value
    assert second.solver.bound == first.solver.bound
    assert first.solver.objective == (f"{objective} + {mu:g} * features" if mu else objective)
    assert answer.to_dict()["counterfactuals"][0]["solver"] == dataclasses.asdict(first.solver)
    options = {"engine": "milp", "objective": "distance", "mu": 0.0}
    (nearest,) = explained.explain(data.iloc[[3]], explainer={"name": "ceocl", "options": options})
    assert nearest.counterfactuals[0].solver is None


def test_a_solver_that_was_stopped_proves_nothing_of_its_objective(monkeypatch):
    data = DATA[["a", "b"]]
    explainer = CEOCL(objective="l1")
    explained = mlflow_cf.wrap(forest_of_numbers(), data, target=1, values="continuous", explainer=explainer)
    monkeypatch.setattr(highspy.Highs, "run", lambda _: highspy.HighsStatus.kError)
    (answer,) = explained.explain(data.iloc[[3]])
    (found,) = answer.counterfactuals
    assert (found.proof, found.solver.proof, found.solver.bound) == ("none", "none", None)


def forest_of_numbers():
    return RandomForestClassifier(8, max_depth=4, random_state=0).fit(DATA[["a", "b"]], WANTED)


ALONE = """
from mlflow_cf.milp.program import Affine
from mlflow_cf.milp.program import Program
from mlflow_cf.milp.solve import Effort, solve, solve_squares

program = Program()
columns = program.add_binaries(2)
program.require([Affine(columns, [1.0, 1.0], 0.0, 0.0, 2.0)], 1.0, 2.0)
found = solve(program, Effort())
assert found.status == "optimal"
solve_squares(program, found.values, Effort())
"""


def test_nothing_reaches_the_standard_output(explained, capfd):
    """Not even the first solver of a process says anything there."""
    explained.explain(DATA.head(3), count=2)
    assert capfd.readouterr() == ("", "")
    alone = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, check=True, timeout=100)
    assert alone.stdout == b""


def test_threads_solve_at_once(explained):
    expected = [answer.to_dict()["counterfactuals"] for answer in explained.explain(DATA.head(4))]
    found = [None, None]

    def explain(at):
        found[at] = [answer.to_dict()["counterfactuals"] for answer in explained.explain(DATA.head(4))]

    threads = [threading.Thread(target=explain, args=(at,)) for at in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected, expected]


@pytest.mark.parametrize("engine", ["auto", "milp"])
def test_scales_may_be_awful(engine):
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.normal(size=(200, 4)) * [1e-9, 1.0, 1e5, 1e9], columns=list("abcd"))
    model = make_pipeline(StandardScaler(), LogisticRegression())
    model.fit(data, data["a"] * 1e9 + data["d"] / 1e9 > 1)
    explained = mlflow_cf.wrap(model, data, target=True, values="continuous", explainer=CEOCL(engine=engine))
    rows = data[~model.predict(data)].head(5)
    for answer in explained.explain(rows):
        assert answer.status == "found"
        assert answer.counterfactuals[0].proof in ("optimal", "bounded")
        assert model.predict(pd.DataFrame([answer.counterfactuals[0].row]))[0]


def test_five_hundred_features_are_answered_in_time():
    rng = np.random.default_rng(0)
    data = pd.DataFrame(rng.normal(size=(80, 500)), columns=[f"f{at}" for at in range(500)])
    model = LogisticRegression().fit(data, data["f0"] + data["f1"] > 0.5)
    explained = mlflow_cf.wrap(model, data, target=True, values="continuous", explainer="ceocl")
    rows = data[~model.predict(data)].head(1)
    (answer,) = explained.explain(rows, time_limit_s=20)
    assert answer.counterfactuals[0].proof == "optimal"


def test_a_probability_that_is_not_linear_is_not_searched_by_a_program():
    data = DATA[["a", "b"]]
    model = LogisticRegression(max_iter=1000).fit(data, np.digitize(DATA["a"], [1.5, 3.0]))
    explained = mlflow_cf.wrap(model, data, target=Target(label=2, min_probability=0.6), explainer=CEOCL(engine="milp"))
    (answer,) = explained.explain(data.iloc[[3]])
    assert "least probability" in answer.diagnostics["refused"]
    assert answer.status == "found"


def test_a_price_of_changes_outweighs_the_distance():
    """Two small changes are nearer than a large one; with a price the large one is cheaper, however near the others."""
    data = pd.DataFrame({"a": np.tile(np.arange(11.0), 11), "b": np.repeat(np.arange(11.0), 11)})
    model = LinearRegression().fit(data, data["a"] + data["b"])
    options = {"target": Target(low=9.5), "distance": (0.0, 0.0, 1.0)}
    explained = mlflow_cf.wrap(model, data, explainer=CEOCL(engine="milp"), **options)
    row = pd.DataFrame({"a": [0.0], "b": [0.0]})
    (near,) = explained.explain(row)
    assert near.counterfactuals[0].n_changed == 2
    (sparse,) = explained.explain(row, explainer=CEOCL(mu=1.0))
    assert sparse.counterfactuals[0].n_changed == 1
    assert sparse.diagnostics["costs"] == [pytest.approx(2.0)]


def test_numbers_of_many_values_stay_among_these():
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"a": rng.random(700).round(4), "b": rng.random(700).round(4)})
    model = LogisticRegression(C=100).fit(data, data["a"] + data["b"] > 1.2)
    explained = mlflow_cf.wrap(model, data, target=True, explainer="exact")
    for row in data[~model.predict(data)].index[:5]:
        (best,) = explained.explain(data.loc[[row]])
        (found,) = explained.explain(data.loc[[row]], explainer=CEOCL(engine="milp"))
        assert found.counterfactuals[0].row["a"] in set(data["a"])
        assert found.counterfactuals[0].distance == pytest.approx(best.counterfactuals[0].distance, abs=2e-3)
        assert found.counterfactuals[0].bound <= best.counterfactuals[0].distance


class Claims:
    """An explainer that hands over one row, and claims that nothing is nearer than `bound`."""

    name, polish = "claims", False

    def __init__(self, row, bound):
        self.row, self.bound = row, bound

    def search(self, problem, budget, rng):
        del budget, rng
        rows = problem.x0[None][:0] if self.row is None else problem.space.encode(self.row)
        return Candidates(rows, bound=self.bound)


@pytest.mark.parametrize("certify", [False, True])
@pytest.mark.parametrize(("bound", "proof"), [(0.0, "bounded"), (0.2, "bounded"), (1.0, "optimal")])
def test_what_an_explainer_proves_stands_for_a_certificate(explained, bound, proof, certify):
    row = ROW.assign(a=4.875)
    (answer,) = explained.explain(ROW, explainer=Claims(row, bound), certify=certify)
    (found,) = answer.counterfactuals
    assert (found.proof, found.bound) == (proof, min(bound, found.distance))


def test_where_its_restrictions_leave_nothing_constraints_are_not_blamed(explained):
    (answer,) = explained.explain(ROW, explainer=Claims(None, np.inf))
    assert answer.status == "infeasible"
    assert "own restrictions" in answer.reason
    assert "why_not" not in answer.diagnostics
