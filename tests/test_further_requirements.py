"""Answers held to more than the target: other models, plausibility, a margin; in memory and in an artifact."""

import warnings
from pathlib import Path
from typing import Any

import mlflow.sklearn
import numpy as np
import pandas as pd
import pytest
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import IsolationForest, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC

import mlflow_cf
from mlflow_cf.artifact.publish import versions
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.features import FeatureSpace
from mlflow_cf.metrics.outliers import Inliers
from mlflow_cf.metrics.plausibility_model import SEED, TREES, Isolation, Plausibility, average_path
from mlflow_cf.model.judge import Judge
from mlflow_cf.policy import Query
from mlflow_cf.policy.further import Plausible, Plausibly
from mlflow_cf.request.context import MOST_KEPT

RNG = np.random.default_rng(0)
DATA = pd.DataFrame({"a": RNG.normal(size=300).round(1), "b": RNG.normal(size=300).round(1)})
DATA["c"] = RNG.integers(0, 5, 300)
GOOD = (DATA["a"] + DATA["b"] + RNG.normal(size=300) * 0.3 > 0.5).astype(int)
MODEL = RandomForestClassifier(20, random_state=0).fit(DATA, GOOD)
OTHER = RandomForestClassifier(20, random_state=1).fit(DATA[:150], GOOD[:150])
LINEAR = LogisticRegression().fit(DATA[["b", "a"]], GOOD)
POOR = DATA[(MODEL.predict(DATA) == 0)].head(5)


def rows_of(answers: Any) -> pd.DataFrame:
    found = [answer.counterfactuals[0].row for answer in answers]
    assert len(found) == len(answers)
    return pd.DataFrame(found)


class TestMargin:
    def test_answers_keep_it(self) -> None:
        found = mlflow_cf.wrap(MODEL, DATA, target=1, margin=0.2).explain(POOR)
        assert MODEL.predict_proba(rows_of(found))[:, 1].min() >= 0.7

    def test_it_comes_on_top_of_the_least_probability(self) -> None:
        explained = mlflow_cf.wrap(MODEL, DATA, target={"label": 1, "min_probability": 0.7}, margin=0.1)
        assert MODEL.predict_proba(rows_of(explained.explain(POOR)))[:, 1].min() >= 0.8

    def test_what_leads_to_1_is_refused(self) -> None:
        told = "margin: 0.2 on top of min_probability 0.8 asks for a probability of 1 or more; both together must stay"
        with pytest.raises(InputError, match=told):
            mlflow_cf.wrap(MODEL, DATA, target={"label": 1, "min_probability": 0.8}, margin=0.2)
        explained = mlflow_cf.wrap(MODEL, DATA, target=1, margin=0.1)
        surest = {"label": 1, "min_probability": 0.9}
        params = {"counterfactual": {"target": surest}}
        for ask in (
            lambda: explained.explain(POOR, target=surest),
            lambda: explained.predict(POOR, params),
            lambda: explained.verify(POOR, POOR, target=surest),
        ):
            with pytest.raises(InputError, match=r"margin: 0\.1 on top of min_probability 0\.9"):
                ask()
        sure = explained.explain(POOR, target={"label": 1, "min_probability": 0.89})
        assert {answer.status for answer in sure} <= {"found", "not_found", "infeasible"}

    def test_a_row_is_as_wanted_by_the_models_own_target(self) -> None:
        shares = MODEL.predict_proba(DATA)[:, 1]
        narrow = DATA[(shares > 0.5) & (shares < 0.7)].head(1)
        (answer,) = mlflow_cf.wrap(MODEL, DATA, target=1, margin=0.3, robust_to=[OTHER]).explain(narrow)
        assert answer.status == "already"

    @pytest.mark.parametrize(
        ("model", "target", "message"),
        [
            (LinearSVC().fit(DATA, GOOD), 1, "margin: the model gives no probabilities; leave it out"),
            (LinearRegression().fit(DATA, GOOD), {"low": 1}, "margin: a regression has no probabilities; narrow low"),
        ],
    )
    def test_it_needs_probabilities(self, model: Any, target: Any, message: str) -> None:
        with pytest.raises(InputError) as error:
            mlflow_cf.wrap(model, DATA, target=target, margin=0.1)
        assert str(error.value).startswith(message)
        with pytest.raises(InputError, match="margin"):
            mlflow_cf.wrap(model, DATA, target=target).explain(POOR, margin=0.1)


class TestRobustTo:
    def test_answers_hold_under_all_models_whatever_columns_these_take(self) -> None:
        explained = mlflow_cf.wrap(MODEL, DATA, target=1, robust_to=[OTHER, {"model": LINEAR, "name": "linear"}])
        found = explained.explain(POOR, certify=True)
        rows = rows_of(found)
        assert OTHER.predict(rows).all()
        assert LINEAR.predict(rows[["b", "a"]]).all()
        assert {answer.counterfactuals[0].proof for answer in found} == {"optimal"}
        assert list(explained.describe()["requirements"]) == ["robust_to.model_1", "robust_to.linear"]

    def test_any_other_label_is_another_than_the_models_own(self) -> None:
        kinds = pd.Series(np.where(DATA["a"] > 0.5, "x", np.where(DATA["b"] > 0, "y", "z")))
        one, two = (RandomForestClassifier(9, random_state=seed).fit(DATA, kinds) for seed in (0, 1))
        explained = mlflow_cf.wrap(one, DATA, target=mlflow_cf.Target.other(), robust_to=[two])
        rows = rows_of(explained.explain(POOR, certify=True))
        own = one.predict(POOR)
        assert (one.predict(rows) != own).all()
        assert (two.predict(rows) != own).all()

    def test_a_model_that_is_not_opened_proves_nothing(self) -> None:
        closed = QuadraticDiscriminantAnalysis().fit(DATA, GOOD)
        found = mlflow_cf.wrap(MODEL, DATA, target=1, robust_to=[closed]).explain(POOR, certify=True)
        assert closed.predict(rows_of(found)).all()
        told = "not certified: a further requirement could not be opened (robust_to.model_1: "
        assert all(answer.reason.startswith(told) for answer in found)

    def test_a_policy_of_proofs_needs_all_of_them_opened(self) -> None:
        closed = QuadraticDiscriminantAnalysis().fit(DATA, GOOD)
        with pytest.raises(InputError, match=r"certify: nothing can be proved of this model .*robust_to.model_1"):
            mlflow_cf.wrap(MODEL, DATA, target=1, certify=True, robust_to=[closed])

    def test_why_not_names_it_where_it_is_the_reason(self) -> None:
        line = pd.DataFrame({"x": np.arange(10), "y": np.arange(10) % 3})
        low, high = (LogisticRegression().fit(line, wanted) for wanted in (line["x"] < 3, line["x"] > 6))
        (answer,) = mlflow_cf.wrap(low, line, target=True, robust_to=[{"model": high, "name": "high"}]).explain(
            line.tail(1), certify=True
        )
        assert answer.status == "infeasible"
        assert answer.reason == "leave out robust_to.high; ruled out by robust_to.high"

    @pytest.mark.parametrize(
        ("models", "message"),
        [
            ([LogisticRegression().fit(DATA.assign(d=1.0), GOOD)], "robust_to.model_1: "),
            ([LogisticRegression().fit(DATA, GOOD + 5)], "robust_to.model_1: cannot meet the target (target.label: "),
            ([LinearRegression().fit(DATA, GOOD)], "robust_to.model_1: cannot meet the target (target: the model"),
            ([{"model": OTHER, "name": "../up"}], "robust_to[0].name: '../up' is no name"),
            ([{"model": OTHER, "nmae": "v2"}], "robust_to[0]: has the keys ['model', 'nmae']"),
            ([{"model": OTHER, "name": "A"}, {"model": MODEL, "name": "a"}], "robust_to[1]: 'a' is the name of two"),
            (["models:/nothing/1"], "robust_to.v1: model: 'models:/nothing/1' cannot be fetched"),
            ("models:/credit/1", "robust_to: a str is not a list"),
        ],
    )
    def test_what_does_not_fit_is_named(self, models: Any, message: str) -> None:
        with pytest.raises(InputError) as error:
            mlflow_cf.wrap(MODEL, DATA, target=1, robust_to=models)
        assert str(error.value).startswith(message)

    @pytest.mark.parametrize("asked", [5, "other", {"model": OTHER}], ids=str)
    def test_what_a_call_asks_for_is_a_list(self, asked: Any) -> None:
        with pytest.raises(InputError, match=r"robust_to: a (int|str|dict) is not a list; pass a list of models"):
            mlflow_cf.wrap(MODEL, DATA, target=1).explain(POOR, robust_to=asked)

    def test_python_may_open_others(self) -> None:
        explained = mlflow_cf.wrap(MODEL, DATA, target=1)
        rows = rows_of(explained.explain(POOR, robust_to=[OTHER]))
        assert OTHER.predict(rows).all()
        told = explained.verify(POOR, POOR.assign(a=9.0), robust_to=[{"model": OTHER, "name": "v2"}], margin=0.4)
        assert list(told[0].requirements) == ["margin", "robust_to.v2"]


class TestPlausible:
    def test_the_forest_is_that_of_scikit_learn(self) -> None:
        frame = DATA.assign(d=RNG.choice(["x", "y", "z"], 300, p=[0.7, 0.2, 0.1]), k=1)
        frame.loc[::11, "a"] = np.nan
        space = FeatureSpace.infer(frame)
        Z = space.encode(frame)
        isolation = Isolation.fit(space, Z)
        low, high, middle = frame["a"].min(), frame["a"].max(), frame["a"].median()
        coded = pd.DataFrame({"a": (frame["a"].fillna(middle) - low) / (high - low)})
        coded["b"] = (frame["b"] - frame["b"].min()) / np.ptp(frame["b"])
        coded["c"] = frame["c"] / 4
        coded["d"] = frame["d"].map(frame["d"].value_counts(normalize=True))
        coded["k"] = 0.0
        forest = IsolationForest(n_estimators=TREES, random_state=SEED).fit(coded.to_numpy())
        normal = -(2.0 ** (-isolation.scores(Z) / average_path(np.array([256.0]))))
        np.testing.assert_allclose(normal, forest.score_samples(coded.to_numpy()), atol=1e-12)
        again = Isolation.from_arrays(space, dict(isolation.arrays))
        np.testing.assert_array_equal(again.scores(Z), isolation.scores(Z))

    @pytest.mark.parametrize("method", ["isolation_forest", "lof"])
    def test_so_many_background_rows_are_inside(self, method: Any) -> None:
        space = FeatureSpace.infer(DATA)
        Z = space.encode(DATA)
        learned = Plausibility.learn(method, space, Z)
        required = learned.required(Plausible(quantile=0.1))
        inside = required.outcome.values >= required.target.low
        assert 0.9 <= inside.mean() < 0.95
        again = Plausibility.learn(method, space, Z, learned.arrays)
        assert again.required(Plausible(quantile=0.1)).target == required.target

    def test_a_threshold_is_that_of_the_factor(self) -> None:
        space = FeatureSpace.infer(DATA)
        learned = Plausibility.learn("lof", space, space.encode(DATA))
        required = learned.required(Plausible(method="lof", threshold=1.2))
        factors = learned.scorer.scores(space.encode(DATA))
        assert ((required.outcome.values >= required.target.low) == (factors <= 1.2)).all()

    @pytest.mark.parametrize(
        ("source", "text"),
        [
            ({"threshold": 1.5}, "plausible.threshold: only a local outlier factor has one"),
            ({"method": "lof", "threshold": 1.5, "quantile": 0.1}, "plausible: has a quantile and a threshold"),
            ({"method": "lof", "threshold": 0.5}, "plausible.threshold"),
        ],
    )
    def test_thresholds_that_make_no_sense_are_refused(self, source: Any, text: str) -> None:
        with pytest.raises(InputError, match=text):
            Plausible.read(source)

    def test_a_request_may_only_ask_for_a_smaller_threshold(self) -> None:
        policy = Plausible(method="lof", threshold=1.5)
        assert Plausibly().tightened(policy) == policy
        assert Plausibly(threshold=1.2).tightened(policy).threshold == 1.2
        with pytest.raises(InputError, match=r"1.7 is more than the policy's 1.5"):
            Plausibly(threshold=1.7).tightened(policy)
        with pytest.raises(InputError, match=r"plausible.quantile: the policy asks for a threshold"):
            Plausibly(quantile=0.1).tightened(policy)
        with pytest.raises(InputError, match=r"plausible.threshold: the policy asks for a quantile"):
            Plausibly(threshold=1.2).tightened(Plausible())

    @pytest.mark.parametrize("name", ["left", "column", "roots", "numbers", "sizes", "length"])
    def test_stored_nodes_that_are_no_trees_are_refused(self, name: str) -> None:
        space = FeatureSpace.infer(DATA)
        arrays = dict(Isolation.fit(space, space.encode(DATA)).arrays)
        arrays[name] = arrays[name] * np.nan if name in ("length", "numbers") else np.zeros_like(arrays[name]) + 7
        with pytest.raises(ValueError, match=r"nodes|coding"):
            Isolation.from_arrays(space, arrays)

    def test_answers_look_like_the_background(self) -> None:
        far = pd.concat([DATA, DATA.head(5).assign(a=30.0)], ignore_index=True)
        model = LogisticRegression().fit(far, far["a"] > 1)
        plain, held = (mlflow_cf.wrap(model, far, target=True, plausible=p) for p in (None, {"quantile": 0.1}))
        answers = held.explain(POOR, certify=True)
        checked = held.verify(POOR, rows_of(answers))
        assert all(one.ok and one.requirements["plausible"] for one in checked)
        odd = held.verify(POOR, POOR.assign(a=30.0))
        assert not any(one.ok for one in odd)
        assert odd[0].unmet == ("plausible",)
        nearest = plain.explain(POOR, certify=True)
        for one, other in zip(answers, nearest, strict=True):
            assert one.counterfactuals[0].distance >= other.counterfactuals[0].distance - 1e-12

    def test_neighbours_are_asked_last_and_of_few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        far = pd.concat([DATA, DATA.head(5).assign(a=30.0)], ignore_index=True)
        model = LogisticRegression().fit(far, far["a"] > 1)
        held = mlflow_cf.wrap(model, far, target=True, plausible={"method": "lof", "quantile": 0.01})
        held.explain(POOR.head(1))
        asked: list[int] = []
        calls: list[bool] = []
        own, predict = Inliers.scores, Judge.predict
        with monkeypatch.context() as patched:
            patched.setattr(Inliers, "scores", lambda it, Z: asked.append(len(Z)) or own(it, Z))
            patched.setattr(
                Judge, "predict", lambda it, Z: calls.append(it.model is held.judge.model) or predict(it, Z)
            )
            (answer,) = held.explain(POOR.head(1))
        assert held.verify(POOR.head(1), rows_of([answer]))[0].ok
        assert sum(asked) <= 8
        assert sum(calls) == 1

    def test_an_answer_that_neighbours_accept_is_as_near_as_any(self) -> None:
        grid = pd.DataFrame(np.argwhere(np.ones((6, 6, 4))), columns=["a", "b", "c"])
        data = grid[(grid["a"] - grid["b"]).abs() <= 1].reset_index(drop=True)
        model = LogisticRegression().fit(data, data["a"] + data["b"] > 6)
        held = mlflow_cf.wrap(model, data, target=True, plausible={"method": "lof", "threshold": 1.05})
        rows = data[~model.predict(data)].iloc[::7]
        inliers = grid[[one.ok for one in held.verify(pd.concat([rows.head(1)] * len(grid)), grid)]]
        for answer, (_, row) in zip(held.explain(rows), rows.iterrows(), strict=True):
            table = pd.concat([row.to_frame().T] * len(inliers)).astype("int64")
            nearest = min(one.distance for one in held.verify(table, inliers))
            assert answer.counterfactuals[0].distance == pytest.approx(nearest)

    def test_neighbours_need_rows(self) -> None:
        with pytest.raises(InputError, match=r"plausible.method: 'lof' compares with rows of data"):
            mlflow_cf.wrap(MODEL, DATA, target=1, plausible="lof", privacy={"sample": "summary"})
        explained = mlflow_cf.wrap(MODEL, DATA, target=1, plausible="isolation_forest", privacy={"sample": "summary"})
        assert explained.explain(POOR)[0].status == "found"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("further")
    other = root / "other"
    mlflow_cf.save_model(OTHER, other, DATA, target=1)  # an explained model: the one inside it counts
    free = {"model": LINEAR, "name": "linear", "required": False}
    saved = root / "saved"
    mlflow_cf.save_model(MODEL, saved, DATA, target=1, robust_to=[other, free], plausible="lof", margin=0.1)
    return saved


class TestArtifact:
    def test_answers_hold_under_every_stored_model(self, folder: Path) -> None:
        explained = mlflow_cf.load_model(folder)
        reply = explained.predict(POOR, {"counterfactual": {"robust_to": ["linear"]}})
        rows = pd.DataFrame([found[0]["row"] for found in reply["counterfactuals"]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stored = {name: mlflow.pyfunc.load_model(str(folder / name)) for name in ("model", "robust_to/other")}
            linear = mlflow.pyfunc.load_model(str(folder / "robust_to" / "linear"))
        assert all((model.predict(rows) == 1).all() for model in stored.values())
        assert (linear.predict(rows[["a", "b"]]) == 1).all()
        assert all(one.ok for one in explained.verify(POOR, rows, robust_to=True))

    def test_it_answers_as_in_memory(self, folder: Path) -> None:
        free = {"model": LINEAR, "name": "linear", "required": False}
        named = {"model": OTHER, "name": "other"}
        wrapped = mlflow_cf.wrap(MODEL, DATA, target=1, robust_to=[named, free], plausible="lof", margin=0.1)
        answers = mlflow_cf.load_model(folder).explain(POOR)
        pd.testing.assert_frame_equal(answers.to_records(), wrapped.explain(POOR).to_records())

    @pytest.mark.parametrize("name", ["robust_to/other/MLmodel", "counterfactual/plausible.npz"])
    def test_what_was_altered_is_refused_before_anything_is_opened(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        def opened(*_: Any, **__: Any) -> None:
            raise AssertionError("a model was opened")

        monkeypatch.setattr(versions, "open_folder", opened)
        monkeypatch.setattr("mlflow_cf.artifact.load.open_folder", opened)
        path, before = folder / name, (folder / name).read_bytes()
        path.write_bytes(before[:-1] + b" ")
        try:
            with pytest.raises(ArtifactError, match=f"{name}: has other bytes than the manifest says"):
                mlflow_cf.load_model(folder)
        finally:
            path.write_bytes(before)


class TestSharedByRequests:
    HELD = mlflow_cf.wrap(MODEL, DATA, target=1, robust_to=[{"model": OTHER, "name": "other", "required": False}])

    def test_who_asks_for_the_same_gets_what_was_prepared_for_it(self) -> None:
        context, query = self.HELD.context, Query(robust_to=("other",), margin=0.1)
        assert context.shared_by(query) is context.shared_by(Query(robust_to=("other",), margin=0.1))
        assert context.shared_by(Query()).requirements is context.required

    def test_a_margin_alone_needs_no_other_tables(self) -> None:
        context = self.HELD.context
        shared = context._share(robust_to=False, plausible=False, margin=0.1)
        assert shared.owners is context.bound_policy
        assert context._share(robust_to=True, plausible=False, margin=None).owners is not context.bound_policy

    def test_callers_cannot_fill_the_memory(self) -> None:
        for percent in range(40):
            self.HELD.predict(POOR[:1], {"counterfactual": {"explain": "none", "margin": percent / 100}})
        assert self.HELD.context._shared.cache_info().currsize <= MOST_KEPT
