"""Causal equations: given and learned ones, what they ask for, and what is refused (CE-OCL section 2.1)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import CEOCL
from mlflow_cf.artifact.format import files
from mlflow_cf.causal.equation import StructuralEquation
from mlflow_cf.causal.function import StructuralFunction, of_equations, structural_functions
from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy

RNG = np.random.default_rng(0)
AMOUNT = RNG.integers(5, 80, 300) * 100.0
DATA = pd.DataFrame(
    {
        "amount": AMOUNT,
        "duration": np.clip((10 + 0.004 * AMOUNT + RNG.normal(0, 2, 300)).round(), 4, 60).astype(int),
        "job": RNG.choice(["none", "some", "top"], 300),
        "owner": RNG.random(300) < 0.5,
        "rate": RNG.random(300),
    }
)
GRADES = DATA.assign(grade=RNG.choice(["low", "high"], 300), since=pd.Timestamp("2024-01-01"))
GRADES.loc[0, "since"] = pd.Timestamp("2024-03-01")
PAPER = {"child": "duration", "parents": ["amount"], "coefficients": {"amount": 0.004}, "intercept": 10}
MODEL = DecisionTreeClassifier(max_depth=4, random_state=0).fit(
    DATA[["amount", "duration"]], (DATA["amount"] < 3000) & (DATA["duration"] < 20)
)


def bound_policy(*causal: dict[str, Any], values: Any = "continuous", frame: pd.DataFrame = DATA) -> BoundPolicy:
    grades = {"grade": {"kind": "ordinal", "levels": ["low", "high"]}}
    space = FeatureSpace.infer(frame, grades if "grade" in frame else {})
    constraints = Constraints.read({"causal": causal})
    return BoundPolicy.build(space, space.encode(frame), constraints, Distance(), values)


def accepted(built: BoundPolicy, query: dict[str, Any], found: dict[str, Any]) -> bool:
    row = DATA.iloc[[0]].assign(**query)
    x0, z = built.space.encode(pd.concat([row, row.assign(**found)]))
    return bool(built.accepts(z[None], x0)[0])


@pytest.fixture(scope="module", autouse=True)
def narrow_networks() -> Iterator[None]:
    """Let networks be chosen among narrow ones: that is as good here, and takes a tenth of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlflow_cf.causal.function.WIDTHS", (5, 10))
        yield


class TestWhatFollows:
    def test_the_worked_example(self) -> None:
        """10 + 0.004 amount: 1000 more make 20 + 18 - 14 months of 20."""
        built, query = bound_policy(PAPER), {"amount": 1000.0, "duration": 20}
        assert [d for d in range(4, 60) if accepted(built, query, {"amount": 2000.0, "duration": d})] == [24]
        assert not accepted(built, query, {"duration": 24})
        assert accepted(built, query, {"rate": DATA["rate"].max()})

    def test_half_a_step_either_way(self) -> None:
        built = bound_policy({**PAPER, "coefficients": {"amount": 0.005}})
        query = {"amount": 1000.0, "duration": 20}
        assert [d for d in range(4, 60) if accepted(built, query, {"amount": 1900.0, "duration": d})] == [24, 25]

    def test_half_the_gap_to_the_next_observed_value(self) -> None:
        frame = pd.DataFrame({"amount": [1000.0, 1500.0, 2000.0, 3000.0], "duration": [20, 20, 23, 30]})
        space = FeatureSpace.infer(frame)
        built = BoundPolicy.build(
            space, space.encode(frame), Constraints.read({"causal": [PAPER]}), Distance(), "observed"
        )
        x0 = np.array([1000.0, 20.0])
        reached = {a: [d for d in (20, 23, 30) if built.accepts(np.array([[a, d]]), x0)[0]] for a in (1500, 2000, 3000)}
        assert reached == {1500: [23], 2000: [23], 3000: [30]}  # 22, 24 and 28 months

    def test_a_number_that_takes_any_value_follows_exactly(self) -> None:
        built = bound_policy(
            {"child": "rate", "parents": ["amount"], "coefficients": {"amount": 1e-4}}, values="continuous"
        )
        query, width = {"amount": 1000.0, "rate": 0.5}, DATA["rate"].max() - DATA["rate"].min()
        assert accepted(built, query, {"amount": 2000.0, "rate": 0.6})
        assert accepted(built, query, {"amount": 2000.0, "rate": 0.6 + 0.9e-6 * width})
        assert not accepted(built, query, {"amount": 2000.0, "rate": 0.6 + 1.1e-6 * width})

    def test_levels_booleans_and_dates_have_coefficients(self) -> None:
        built = bound_policy(
            {
                "child": "duration",
                "parents": ["job", "owner", "grade", "since"],
                "coefficients": {"job": {"top": 3, "none": -1}, "owner": 2, "grade": {"high": 0.5}, "since": 0.1},
            },
            frame=GRADES,
        )
        (function,) = built.functions
        rows = GRADES.iloc[[1]].assign(owner=False, job="some", grade="low")
        changed = pd.concat(
            [rows, rows.assign(job="top"), rows.assign(job="none"), rows.assign(owner=True), rows.assign(grade="high"),
             rows.assign(since=pd.Timestamp("2024-01-11"))]
        )  # fmt: skip
        moved = function.values(built.space.encode(changed))
        assert (moved - moved[0]).tolist() == pytest.approx([0, 3, -1, 2, 0.5, 1])

    def test_a_child_that_never_varies_holds_its_parents(self) -> None:
        built = bound_policy({**PAPER, "parents": ["amount"]}, frame=DATA.assign(duration=12))
        assert not accepted(built, {"duration": 12}, {"amount": 2000.0, "duration": 12})


@pytest.mark.parametrize("duration", [20, 2000])
def test_numbers_of_many_values_are_solved_with_their_neighbours(duration: int) -> None:
    """More than selectors are made for; also from a value far beyond all others, which may stay as far from them."""
    many = np.arange(400)
    frame = pd.DataFrame({"amount": many * 1.0, "duration": RNG.permutation(many), "owner": many % 2 == 0})
    causal = [{"child": "duration", "parents": ["amount"], "coefficients": {"amount": 0.5}}]
    model = LogisticRegression(max_iter=1000).fit(frame, many > 200)
    explained = mlflow_cf.wrap(model, frame, target=True, constraints={"causal": causal})
    row = pd.DataFrame({"amount": [100.0], "duration": [duration], "owner": [False]})
    (near,), (solved,) = (explained.explain(row, explainer=e) for e in ("exact", CEOCL(engine="milp")))
    assert near.counterfactuals[0].n_changed == (1 if duration == 2000 else 2)
    assert solved.counterfactuals[0].distance == pytest.approx(near.counterfactuals[0].distance, abs=1e-6)


class TestLearned:
    @pytest.mark.parametrize("kind", ["linear", "tree", "mlp"])
    def test_it_is_what_scikit_learn_says(self, kind: str) -> None:
        frame = GRADES.assign(job=GRADES["job"].mask(GRADES.index % 7 == 0))
        causal = {"child": "duration", "parents": ["amount", "job", "owner", "grade", "rate"], "model": kind}
        built = bound_policy(causal, frame=frame)
        (function,) = built.functions
        assert isinstance(function, StructuralFunction)
        truth, told = built.background[:, 1], function.values(built.background)
        share = 1 - ((truth - told) ** 2).sum() / ((truth - truth.mean()) ** 2).sum()
        assert function.describe(built.space)["r2"] == pytest.approx(share, abs=1e-9)
        assert share > 0.8
        again = bound_policy(causal, frame=frame)
        assert all(np.array_equal(a, again.learned[0][name]) for name, a in built.learned[0].items())
        whole = [function.structure.encode(column, built.background[:, column]) for column in range(7)]
        np.testing.assert_allclose(function.structure.sums(whole)[:, 0], told, rtol=0, atol=1e-9)

    def test_the_papers_demo(self, data_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
        """A network from the amount to the duration of credits: R2 0.44 on the training split."""
        monkeypatch.setattr("mlflow_cf.causal.function.WIDTHS", (50,))  # the best of all that are tried
        table = pd.read_csv(data_file("german.csv"))
        rows = train_test_split(table, test_size=0.2, stratify=table.iloc[:, -1], random_state=0)[0].iloc[:, :-1]
        constraints = {"causal": [{"child": "duration", "parents": ["credit_amount"], "model": "mlp"}]}
        space = FeatureSpace.infer(rows)
        (function,) = structural_functions(Constraints.read(constraints), space, space.encode(rows))
        assert function.describe(space)["r2"] == pytest.approx(0.44, abs=0.01)

    def test_what_never_varies_is_learned_too(self) -> None:
        frame = DATA.assign(duration=12, rate=1.0)
        for kind in ("linear", "tree", "mlp"):
            built = bound_policy({"child": "duration", "parents": ["rate"], "model": kind}, frame=frame)
            assert built.functions[0].describe(built.space)["r2"] == 1.0
            assert built.functions[0].values(built.background).tolist() == pytest.approx([12.0] * 300)

    def test_not_without_a_value(self) -> None:
        with pytest.raises(InputError, match=r"causal\[0\].model: no row has a value of 'rate' to learn from; give"):
            bound_policy({"child": "rate", "parents": ["amount"], "model": "tree"}, frame=DATA.assign(rate=np.nan))


REFUSED: list[tuple[list[dict[str, Any]], str]] = [
    ([{**PAPER, "child": "months"}], r"causal\[0\].child: 'months' is not a feature; "),
    ([{**PAPER, "child": "job"}], r"causal\[0\].child: 'job' is a category, and no number; write what holds"),
    ([{**PAPER, "parents": ["amont"]}], r"causal\[0\].parents\[0\]: 'amont' is not a feature; did you mean 'amount'"),
    ([{**PAPER, "parents": []}], r"causal\[0\].parents: names no feature; list those"),
    ([{**PAPER, "parents": ["amount", "amount"]}], r"causal\[0\].parents\[1\]: 'amount' is named twice"),
    ([{**PAPER, "model": "forest"}], r"causal\[0\].model: input should be 'linear', 'tree' or 'mlp', got 'forest'"),
    ([{**PAPER, "model": "tree"}], r"causal\[0\]: has both a model to learn and coefficients"),
    ([{"child": "duration", "parents": ["amount"]}], r"causal\[0\]: has no function; give model: linear, tree or mlp"),
    (
        [{"child": "duration", "parents": ["amount"], "model": "tree", "intercept": 1}],
        r"causal\[0\].intercept: belongs to coefficients; leave it out",
    ),
    ([{**PAPER, "coefficients": {}}], r"causal\[0\].coefficients: has none for 'amount'; give one for every parent"),
    ([{**PAPER, "coefficients": {"amount": 1, "rate": 1}}], r"coefficients.rate: not one of its parents; parents: 'am"),
    ([{**PAPER, "coefficients": {"amount": {"a": 1}}}], r"coefficients.amount: names levels, and amount has none; gi"),
    (
        [{**PAPER, "parents": ["job"], "coefficients": {"job": 1}}],
        r"coefficients.job: is one number for a category; give what each level adds, by level",
    ),
    (
        [{**PAPER, "parents": ["job"], "coefficients": {"job": {"topp": 1}}}],
        r"coefficients.job: 'topp' is not a level of job; did you mean 'top'\?",
    ),
    ([PAPER, PAPER], r"causal\[1\].child: 'duration' has an equation already, causal\[0\]; keep one of them"),
    ([{**PAPER, "child": "amount"}], r"causal: features move each other in a circle: amount -> amount; leave out"),
    (
        [PAPER, {"child": "amount", "parents": ["rate", "duration"], "model": "linear"}],
        r"causal: features move each other in a circle: (amount -> duration|duration -> amount) -> ",
    ),
    ([PAPER] * 33, "causal: tuple should have at most 32 items"),
]


@pytest.mark.parametrize(("causal", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_what_does_not_fit_is_refused(causal: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        bound_policy(*causal)


@pytest.fixture(scope="module")
def explained() -> mlflow_cf.ExplainedModel:
    causal = [{"child": "duration", "parents": ["amount"], "model": "mlp"}]
    return mlflow_cf.wrap(MODEL, DATA[["amount", "duration"]], target=True, constraints={"causal": causal})


POOR = pd.DataFrame({"amount": [5000.0, 4200.0], "duration": [30, 26]})


class TestRequests:
    def test_every_explainer_moves_the_child_with_its_parents(self, explained: mlflow_cf.ExplainedModel) -> None:
        for name in ("geco", "exact", "random_search"):
            for row, answer in zip(POOR.itertuples(), explained.explain(POOR, explainer=name), strict=True):
                assert answer.status == "found", name
                changed = {change.feature for change in answer.counterfactuals[0].changes}
                assert changed == {"amount", "duration"}
                assert answer.counterfactuals[0].row["amount"] < row.amount

    def test_what_does_not_follow_is_told_by_name(self, explained: mlflow_cf.ExplainedModel) -> None:
        (verification,) = explained.verify(POOR[:1], POOR[:1].assign(amount=1000.0))
        assert [(check.path, check.holds) for check in verification.constraints] == [("constraints.causal[0]", False)]

    def test_a_request_may_add_what_it_gives(self) -> None:
        wrapped = mlflow_cf.wrap(MODEL, DATA[["amount", "duration"]], target=True)
        (free,), (bound,) = wrapped.explain(POOR[:1]), wrapped.explain(POOR[:1], constraints={"causal": [PAPER]})
        moved = bound.counterfactuals[0].row
        assert moved["duration"] == pytest.approx(30 + 0.004 * (moved["amount"] - 5000), abs=0.5)
        assert free.counterfactuals[0].distance < bound.counterfactuals[0].distance
        contrary = {"causal": [{**PAPER, "coefficients": {"amount": -0.004}}]}  # both must fall
        reply = wrapped.predict(POOR[:1], {"counterfactual": {"constraints": contrary}})
        assert reply["status"].tolist() == ["infeasible"]
        told = "leave out constraints.causal[0] (duration must follow amount); ruled out by constraints.causal[0]"
        assert reply["reason"].tolist() == [told]

    def test_a_request_frees_and_learns_nothing(self, explained: mlflow_cf.ExplainedModel) -> None:
        for causal, message in (
            (PAPER, r"causal\[0\].child: 'duration' has an equation under the policy; leave it out"),
            ({"child": "amount", "parents": ["duration"], "coefficients": {"duration": 1}}, "in a circle: "),
            ({"child": "amount", "parents": ["duration"], "model": "tree"}, "is learned when a model is logged only"),
        ):
            with pytest.raises(InputError, match=message):
                explained.explain(POOR, constraints={"causal": [causal]})


CAUSAL = ({**PAPER, "child": "rate"}, {"child": "duration", "parents": ["amount"], "model": "mlp"})
ROWS = DATA[["amount", "duration", "rate"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = DecisionTreeClassifier(max_depth=4, random_state=0).fit(ROWS, ROWS["duration"] < 20)
    path = tmp_path_factory.mktemp("causal") / "model"
    mlflow_cf.save_model(model, path, ROWS, target=True, constraints={"causal": list(CAUSAL)})
    return path


class TestArtifact:
    def test_what_was_learned_comes_back_bit_for_bit(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mlflow_cf.causal.function.fit", None)  # nothing is learned anew
        loaded = mlflow_cf.load_model(folder)
        monkeypatch.undo()
        (learned,) = bound_policy(*CAUSAL, values="observed", frame=ROWS).learned
        (kept,) = loaded.bound_policy.learned
        assert set(kept) == set(learned)
        for name, array in learned.items():
            assert (kept[name].dtype, kept[name].tobytes()) == (array.dtype, array.tobytes())
        assert loaded.describe()["causal"][1]["r2"] == float(learned["r2"])
        assert [fact["child"] for fact in loaded.describe()["causal"]] == ["rate", "duration"]

    def test_files_are_there_if_something_was_learned_only(self, folder: Path, tmp_path: Path) -> None:
        assert (folder / files.CAUSAL_ARRAYS).exists()
        mlflow_cf.save_model(
            MODEL, tmp_path / "m", DATA[["amount", "duration"]], target=True, constraints={"causal": [PAPER]}
        )
        assert not (tmp_path / "m" / files.CAUSAL_ARRAYS).exists()
        assert mlflow_cf.load_model(tmp_path / "m").describe()["causal"][0]["r2"] is None

    def test_what_is_altered_is_refused(self, folder: Path) -> None:
        path, before = folder / files.CAUSAL_ARRAYS, (folder / files.CAUSAL_ARRAYS).read_bytes()
        path.write_bytes(before[:-1] + b" ")
        try:
            with pytest.raises(ArtifactError, match=r"causal\.npz: has other bytes than the manifest says"):
                mlflow_cf.load_model(folder)
        finally:
            path.write_bytes(before)

    @pytest.mark.parametrize(
        "arrays",
        [
            {},
            {"e0_column": np.zeros(1)},
            {"e1_column": np.zeros(1), "e2_column": np.zeros(1)},
        ],
    )
    def test_arrays_of_other_equations_are_none(self, arrays: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="equation"):
            of_equations(arrays, [1])

    @pytest.mark.parametrize("kind", ["linear", "tree", "mlp"])
    def test_arrays_that_are_no_function_are_refused(self, kind: str) -> None:
        causal = {"child": "duration", "parents": ["amount", "job"], "model": kind}
        built = bound_policy(causal)
        constraints, arrays = Constraints.read({"causal": [causal]}), built.learned[0]
        for name, array in arrays.items():
            others = [
                {key: kept for key, kept in arrays.items() if key != name},
                {**arrays, name: array[None] + np.nan},
            ]
            if name != "r2":
                others.append({**arrays, name: array[:-1]})
            if name in ("left", "column"):
                others.append({**arrays, name: np.full_like(array, 10_000)})
            for other in others:
                with pytest.raises(ValueError, match=r"arrays|inputs|tree"):
                    structural_functions(constraints, built.space, built.background, [other])
        with pytest.raises(ValueError, match="more functions than equations"):
            structural_functions(constraints, built.space, built.background, [arrays, arrays])


def test_nothing_is_learned_from_columns_shuffled_apart() -> None:
    summary = {"sample": "summary"}
    learned = {"causal": [{"child": "duration", "parents": ["amount"], "model": "tree"}]}
    data = DATA[["amount", "duration"]]
    with pytest.raises(
        InputError, match=r"causal\[0\].model: is learned from rows, and privacy.sample 'summary' keeps"
    ):
        mlflow_cf.wrap(MODEL, data, target=True, constraints=learned, privacy=summary)
    given = mlflow_cf.wrap(MODEL, data, target=True, constraints={"causal": [PAPER]}, privacy=summary)
    assert given.explain(POOR[:1])[0].status == "found"


def test_a_rule_names_its_columns() -> None:
    (rule,) = bound_policy(PAPER).rules
    assert isinstance(rule.then.left, mlflow_cf.constraints.expressions.Computed)
    assert isinstance(rule.then.left.by, StructuralEquation)
    assert rule.columns("x_cf") == rule.columns("x") == {0, 1}
    assert rule.text == "duration must follow amount"
