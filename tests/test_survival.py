"""Answers that hold under retrained models: what is promised, stored, asked for by requests, and refused."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.artifact.format.files import SURVIVAL_ARRAYS
from mlflow_cf.errors import ArtifactError, InputError
from mlflow_cf.evaluation.compare.side_by_side import Bootstrap, Issued, judged, survival
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.model.flavors import open_native
from mlflow_cf.policy.survival import SurvivalWanted
from mlflow_cf.structures.kernels.trees import CUT, FEATURE, LEFT, TEST
from mlflow_cf.survival import Opening, Refit, Rows, Showing, Trial, retrain, tried
from mlflow_cf.survival.labels import chances
from mlflow_cf.survival.rows import Draws
from mlflow_cf.survival.stored import from_arrays, to_arrays
from mlflow_cf.survival.trial import FEW, OF_LINEAR, PAIRS
from mlflow_cf.wrapping import OnTrial

RNG = np.random.default_rng(0)
DATA = pd.DataFrame({"a": RNG.normal(size=300).round(1), "b": RNG.normal(size=300).round(1)})
DATA["c"] = RNG.choice(["x", "y", "z"], 300)
GOOD = (DATA["a"] + DATA["b"] + (DATA["c"] == "x") + RNG.normal(size=300) * 0.5 > 0.8).astype(int)
LESS = {"holds": 0.6, "confidence": 0.9, "compared": 1, "rows": 0.5}  # four models, without a trial
MORE = {**LESS, "holds": 0.9}  # 21 models


def coded(last: Any) -> Any:
    spread = OneHotEncoder(handle_unknown="ignore")
    return make_pipeline(make_column_transformer((StandardScaler(), ["a", "b"]), (spread, ["c"])), last)


MODEL = coded(LogisticRegression()).fit(DATA, GOOD)
FOREST = coded(RandomForestClassifier(5, max_depth=4, random_state=0)).fit(DATA, GOOD)
POOR = DATA[MODEL.predict(DATA) == 0].head(6)


@pytest.fixture(scope="module")
def explained() -> ExplainedModel:
    return mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival=LESS)


def test_a_description_says_what_is_promised(explained: ExplainedModel) -> None:
    told = " ".join(str(explained.describe()).split())
    assert "survival: 4 retrained models: linear; answers" in told
    assert "answers hold under 0.6 of later models with confidence 0.9" in told


def test_all_of_few_models_agree_and_the_reply_says_how_surely(explained: ExplainedModel) -> None:
    promise = explained.policy.survival
    assert promise is not None
    assert (promise.of, promise.needed, promise.models) == (4, 4, "bootstrap")
    (found,) = explained.explain(POOR.head(1), certify=True)
    (answer,) = found.counterfactuals
    assert answer.proof == "optimal"
    expected = {"holds": 5 / 6, "at_least": 0.6, "confidence": 0.9, "agreeing": 4, "models": 4}
    assert found.to_dict()["counterfactuals"][0]["survival"] == expected
    told = "after a retraining it holds with probability 0.833 (at least 0.6 with confidence 0.9: 4 of 4 retrained"
    assert answer.text.split("\n")[1].startswith(told)
    (german,) = explained.explain(POOR.head(1), language="de")
    told = "nach erneutem Training gilt es mit Wahrscheinlichkeit 0,833 (mindestens 0,6 mit Vertrauen 0,9"
    assert german.counterfactuals[0].text.split("\n")[1].startswith(told)


def test_answers_are_no_nearer_than_those_that_nothing_is_promised_of(explained: ExplainedModel) -> None:
    plain = mlflow_cf.wrap(MODEL, DATA, target=1)
    near, far = (one.explain(POOR, certify=True) for one in (plain, explained))
    for before, after in zip(near, far, strict=True):
        assert before.counterfactuals[0].survival is None
        assert after.counterfactuals[0].distance >= before.counterfactuals[0].distance


def test_misses_take_more_models() -> None:
    missed = mlflow_cf.wrap(FOREST, DATA, GOOD, target=1, survival={**LESS, "misses": 1}).policy.survival
    assert missed is not None
    assert (missed.of, missed.needed) == (8, 7)


def test_folds_and_given_models() -> None:
    halves = mlflow_cf.wrap(FOREST, DATA, GOOD, target=1, survival={**LESS, "models": "folds"})
    assert halves.extra_models.future is not None
    assert halves.extra_models.future.count == 4
    others = [coded(RandomForestClassifier(5, random_state=seed)).fit(DATA, GOOD) for seed in range(5)]
    given = mlflow_cf.wrap(
        FOREST, DATA, target=1, survival={"holds": 0.5, "confidence": 0.9, "compared": 1, "models": others}
    )
    assert given.policy.survival is not None
    assert (given.policy.survival.of, given.policy.survival.needed) == (5, 5)


@pytest.mark.parametrize("model", [MODEL, FOREST], ids=["linear", "trees"])
@pytest.mark.parametrize("immutable", [[], ["c"]], ids=["free", "kept"])
def test_rows_with_a_level_that_no_model_knows_are_certified(model: Any, immutable: list[str]) -> None:
    promised = mlflow_cf.wrap(model, DATA, GOOD, target=1, constraints={"immutable": immutable}, survival=LESS)
    rows = DATA.assign(c="elsewhere")
    rows = rows[model.predict(rows) == 0].head(6)
    for found in promised.explain(rows, certify=True):
        (answer,) = found.counterfactuals
        assert answer.proof == "optimal"
        assert answer.survival is not None
        assert answer.survival.agreeing == 4
        assert immutable == [] or answer.row["c"] == "elsewhere"


def test_given_models_may_know_levels_that_the_background_lacks() -> None:
    others = [coded(RandomForestClassifier(5, random_state=seed)).fit(DATA, GOOD) for seed in range(5)]
    asked = {"holds": 0.5, "confidence": 0.9, "compared": 1, "models": others}
    given = mlflow_cf.wrap(FOREST, DATA, target=1, constraints={"immutable": ["c"]}, survival=asked)
    rows = DATA.assign(c="elsewhere")
    for found in given.explain(rows[FOREST.predict(rows) == 0].head(3), certify=True, max_evaluations=2_000):
        assert {answer.proof for answer in found.counterfactuals} <= {"none"}
        assert found.status != "infeasible"


@pytest.mark.parametrize("last", [LogisticRegression(), RandomForestClassifier(20, random_state=0)])
def test_where_a_search_finds_nothing_background_rows_are_answers(last: Any) -> None:
    data, labels = load_breast_cancer(as_frame=True, return_X_y=True)
    model = make_pipeline(StandardScaler(), last).fit(data, labels)
    promised = mlflow_cf.wrap(model, data, labels, target=1, survival={**LESS, "margin": 0.1})
    rows = data[model.predict(data) == 0].head(4)
    for found in promised.explain(rows, max_evaluations=6_000):
        assert found.status == "found"
        assert found.evaluations <= 6_000
        assert found.counterfactuals[0].n_changed < 15  # of 30


def test_however_many_candidates_are_listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    promised = mlflow_cf.wrap(FOREST, DATA, GOOD, target=1, survival=LESS)
    rows = DATA[FOREST.predict(DATA) == 0].head(6)
    before = promised.explain(rows, certify=True)
    monkeypatch.setattr("mlflow_cf.engine.thresholds.MORE_AGREED", 2**63)
    after = promised.explain(rows, certify=True)
    assert {one.status for one in after} == {"found"}
    assert [one.counterfactuals for one in after] == [one.counterfactuals for one in before]


@pytest.mark.parametrize(("model", "labels"), [(MODEL, GOOD), (FOREST, GOOD)], ids=["linear", "trees"])
def test_an_artifact_answers_as_before(model: Any, labels: Any, tmp_path: Path) -> None:
    explained = mlflow_cf.wrap(model, DATA, labels, target=1, survival=LESS)
    mlflow_cf.save_model(model, tmp_path / "model", DATA, labels, target=1, survival=LESS)
    again = mlflow_cf.load_model(tmp_path / "model")
    assert again.predict(POOR).to_dict("records") == explained.predict(POOR).to_dict("records")
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    row = DATA[model.predict(DATA) == 0].head(1)
    (reply,) = served.predict(row, {"counterfactual": {"count": 1}}).to_dict("records")
    assert reply["counterfactuals"][0]["survival"]["models"] == 4
    json.dumps(reply, allow_nan=False)
    file = tmp_path / "model" / SURVIVAL_ARRAYS
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(ArtifactError):
        mlflow_cf.load_model(tmp_path / "model")


def test_what_is_said_of_retrained_models_is_kept(tmp_path: Path) -> None:
    before = mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival=MORE).describe()["requirements"]
    mlflow_cf.save_model(MODEL, tmp_path / "model", DATA, GOOD, target=1, survival=MORE)
    assert "shrunk" in str(before)
    assert mlflow_cf.load_model(tmp_path / "model").describe()["requirements"] == before


@pytest.mark.parametrize("model", [MODEL, FOREST], ids=["linear", "trees"])
def test_arrays_that_are_no_models_are_refused(model: Any) -> None:
    explained = mlflow_cf.wrap(model, DATA, GOOD, target=1, survival=LESS)
    future, space = explained.extra_models.future, explained.space
    assert future is not None
    arrays, plain = to_arrays(future.structure, space)
    from_arrays(arrays, plain, space, 4)
    with pytest.raises(ValueError, match="number of models"):
        from_arrays(arrays, plain, space, 3)
    with pytest.raises(ValueError, match="link"):
        from_arrays(arrays, {**plain, "link": "pickle"}, space, 4)
    for name, array in arrays.items():
        shorter = {**arrays, name: array[:-1]}
        with pytest.raises((ValueError, IndexError)):
            from_arrays(shorter, plain, space, 4)
    if "tests" in arrays:
        for column in (FEATURE, CUT, TEST, LEFT):
            tests = arrays["tests"].copy()
            tests[np.flatnonzero(tests[:, TEST] < 0)[0], column] = 10_000_000
            with pytest.raises(ValueError, match=r"."):
                from_arrays({**arrays, "tests": tests}, plain, space, 4)


def test_draws_of_a_linear_model_are_shrunk_and_given_models_are_not() -> None:
    chance = np.random.default_rng(0).integers(2, size=len(DATA))  # nothing can be learned
    model = coded(LogisticRegression()).fit(DATA, chance)
    drawn = mlflow_cf.wrap(model, DATA, chance, target=1, survival=MORE)
    retrained = [coded(LogisticRegression(C=1.0 + at)).fit(DATA, chance) for at in range(21)]
    given = mlflow_cf.wrap(model, DATA, target=1, survival={"holds": 0.9, "compared": 1, "models": retrained})
    spread, shrunk = [], []
    for explained in (given, drawn):
        scores = explained.extra_models.future.requirement.judge.outcome(DATA).scores[:, 1::2]
        spread.append(np.log(scores / (1 - scores)).mean(axis=1).std())
        shrunk.append("shrunk towards 0" in " ".join(str(explained.describe()).split()))
    assert shrunk == [False, True]
    assert spread[1] < 0.5 * spread[0]


def test_requests_tighten_and_never_loosen() -> None:
    asked = {"holds": 0.5, "confidence": 0.8, "compared": 1, "misses": 1}
    explained = mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival=asked)
    assert explained.policy.survival is not None
    assert (explained.policy.survival.of, explained.policy.survival.needed) == (4, 3)

    def ask(survival: Any) -> Any:
        return explained.request(POOR.head(1), {"counterfactual": {"survival": survival}})[0].counterfactuals[0]

    assert ask(True).survival.at_least == 0.5
    assert ask({"confidence": 0.95}).survival.agreeing == 4
    with pytest.raises(InputError, match=r"survival.holds: 0.4 is less than the policy's 0.5; ask for more, or leave"):
        ask({"holds": 0.4})
    with pytest.raises(
        InputError, match=r"survival: 4 models cannot show a share of 0.99 with confidence 0.8; ask for"
    ):
        ask({"holds": 0.99})
    with pytest.raises(InputError, match=r"survival: no model was retrained when the model was logged"):
        mlflow_cf.wrap(MODEL, DATA, target=1).explain(POOR, survival=True)


def test_what_is_not_required_is_only_promised_where_that_is_asked() -> None:
    explained = mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival={**LESS, "required": False})
    (plain,), (surer,) = explained.explain(POOR.head(1)), explained.explain(POOR.head(1), survival=True)
    assert plain.counterfactuals[0].survival is None
    assert surer.counterfactuals[0].survival is not None
    (checked,) = explained.verify(POOR.head(1), pd.DataFrame([surer.counterfactuals[0].row]), survival=True)
    assert checked.requirements == {"survival": True}


def test_survival_is_named_where_it_blocks() -> None:
    rows = DATA.assign(c="y")
    good = (rows["a"] > 0.5).astype(int)
    model = coded(LogisticRegression()).fit(rows, good)
    others = [coded(LogisticRegression()).fit(rows, good if at else 1 - good) for at in range(4)]
    explained = mlflow_cf.wrap(model, rows, target=1, survival={**LESS, "models": others})
    (found,) = explained.explain(rows[model.predict(rows) == 0].head(1), certify=True)
    assert found.status == "infeasible"
    assert found.reason == "leave out survival; ruled out by survival"


def test_regressions_survive_in_an_interval() -> None:
    model = coded(LinearRegression()).fit(DATA, DATA["a"] + DATA["b"])
    explained = mlflow_cf.wrap(model, DATA, DATA["a"] + DATA["b"], target={"low": 1.0}, survival=LESS)
    (found,) = explained.explain(DATA[model.predict(DATA) < 1].head(1), certify=True)
    assert found.counterfactuals[0].proof == "optimal"


def test_a_comparison_tells_what_was_promised_beside_what_happened(explained: ExplainedModel) -> None:
    later = coded(LogisticRegression(C=0.5)).fit(DATA.iloc[::2], GOOD.iloc[::2])
    rows, answers = POOR.reset_index(drop=True), [one.counterfactuals[0] for one in explained.explain(POOR)]
    measured = pd.DataFrame(
        {
            "counterfactual": [json.dumps(answer.row) for answer in answers],
            "prediction": [0] * len(rows),
            "target_probability": [answer.probability for answer in answers],
        }
    )
    verdict = judged(Issued.of(explained, measured, rows), mlflow_cf.wrap(later, DATA, target=1), len(rows))
    told = pd.DataFrame([answer.row for answer in answers])
    assert verdict["survival"].tolist() == (later.predict(told) == 1).tolist()
    assert verdict["promised"].tolist() == [answer.survival.holds for answer in answers if answer.survival]
    line = survival(verdict, None, Bootstrap(draws=10)).iloc[0]
    assert (line["answers"], line["promised"]) == (len(rows), verdict["promised"].mean())
    plain = Issued.of(mlflow_cf.wrap(MODEL, DATA, target=1), measured, rows)
    assert np.isnan(plain.promised).all()


def test_with_a_margin_every_retrained_model_is_surer() -> None:
    wanted = {**LESS, "margin": 0.1}
    found = mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival=wanted)
    assert found.policy.survival is not None
    assert found.policy.survival.margin == 0.1
    answers = [one.counterfactuals[0] for one in found.explain(POOR, certify=True)]
    future = found.extra_models.future
    assert future is not None
    scores = future.requirement.judge.outcome(found.space.from_values([one.row for one in answers])).scores
    assert scores is not None
    assert (scores[:, 1::2] >= 0.6).all()
    assert all(answer.proof == "optimal" for answer in answers)
    near = mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival=LESS).explain(POOR, certify=True)
    assert sum(one.counterfactuals[0].distance for one in near) < sum(one.distance for one in answers)


@pytest.mark.parametrize(
    ("steps", "last", "warned"),
    [
        pytest.param(StandardScaler(), LogisticRegression(), True, id="as it is"),
        pytest.param(QuantileTransformer(n_quantiles=50), LogisticRegression(), False, id="quantiles"),
        pytest.param("passthrough", DecisionTreeClassifier(max_depth=3), False, id="trees"),
    ],
)
def test_single_rows_that_make_up_most_of_a_number_are_warned_of(
    steps: Any,
    last: Any,
    warned: bool,  # noqa: FBT001
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whether there is one in a sample decides what a linear model makes of the number."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"payment": rng.lognormal(0, 1, 300), "age": rng.integers(20, 70, 300)})
    rows.loc[7, "payment"] = 900.0
    wanted = (np.log(rows["payment"]) + rows["age"] / 30 > 1.5).astype(int)
    model = make_pipeline(steps, last).fit(rows, wanted)
    promise = {"holds": 0.8, "compared": 1, "margin": 0.0}
    warnings = mlflow_cf.wrap(model, rows, wanted, target=1, survival=promise).describe()["warnings"]
    told = [warning for warning in warnings if warning.startswith("survival: one row makes up 9")]
    assert [" of the variance of payment; " in warning for warning in told] == [True] * warned
    assert caplog.text.count("of the variance of payment") == warned
    assert not any("variance" in warning for warning in mlflow_cf.wrap(model, rows, target=1).describe()["warnings"])


def test_further_fits_are_opened_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rows where that is the same: of one-vs-one scores, rows alone show that they have no column per class."""
    given = list[bool]()

    def opened(model: Any, *, output: str | None = None, rows: Any = None) -> Any:
        given.append(rows is not None)
        return open_native(model, output=output, rows=rows)

    monkeypatch.setattr(retrain, "open_native", opened)
    one_vs_one = SVC(decision_function_shape="ovo").fit(
        DATA[["a", "b"]], DATA["c"].replace("z", "w") + GOOD.astype(str)
    )
    for model, kind, with_rows in (
        (MODEL, "probability", [True, False]),
        (one_vs_one, "none", [True, False, True]),
    ):
        given.clear()
        opening = Opening(DATA if model is MODEL else DATA[["a", "b"]])
        first, second = opening.open(model), opening.open(model)
        assert first.score_kind == second.score_kind == kind
        assert given == with_rows
        assert (second.decide(DATA) == first.decide(DATA)).all()


class Shown(NamedTuple):
    """What shows answers of a trial."""

    linear: bool
    held: Callable[[float], Any]


class TestTrial:
    """How strict a promise is where its owner says nothing of it."""

    ROWS = Rows(DATA, GOOD.to_numpy())
    MANY = ROWS.take(np.arange(FEW) % 300)
    WANTED = SurvivalWanted(holds=0.6, confidence=0.9, compared=1)

    def tried(
        self, *held: float, margins: bool = True, linear: bool = False, rows: Rows = ROWS
    ) -> tuple[tuple[float, float], str, int]:
        """Return rows and margin that are chosen where pairs of halves hold so often, what is said, and the asked."""
        shares, asked = iter(held), count()

        def preparing(trial: Trial, wanted: SurvivalWanted) -> Showing:
            assert len(trial.drawn.models) == 4
            assert len(trial.own.labels) == len(trial.other.labels) == len(rows.labels) // 2
            assert wanted.labels == ("drawn" if wanted.rows == 0.25 and margins else "kept")
            return Shown(linear, lambda _: np.empty(0) if next(asked) % 2 else np.array([next(shares)]))

        refit = Refit.of(MODEL, rows)
        wanted, note = tried(refit, rows, self.WANTED, 0, preparing, margins=margins)
        return (wanted.drawn, float(wanted.margin or 0)), note, next(asked)

    def test_the_least_strict_step_that_holds_is_chosen(self) -> None:
        assert self.tried(0.9) == ((0.5, 0.1), "draws of 50% of the rows, margin 0.1", 2)
        chosen, note, asked = self.tried(0.49, 0.9, rows=self.MANY)
        assert (chosen, asked) == ((0.25, 0.3), 4)
        told = "draws of 25% of the rows and labels, margin 0.3: with less, halves of the rows broke the promise"
        assert note == f"{told}, or nearly"
        assert self.tried(0.9, margins=False) == ((0.5, 0.0), "", 2)

    def test_where_it_is_a_near_thing_further_pairs_of_halves_are_asked(self) -> None:
        assert self.tried(*[0.62] * PAIRS, margins=False) == ((0.5, 0.0), "", 2 * PAIRS)
        assert self.tried(*[0.59] * PAIRS)[::2] == ((0.5, 0.1), 2 * PAIRS)
        assert self.tried(0.58, 0.55, 0.1, 0.9, rows=self.MANY)[::2] == ((0.25, 0.3), 8)

    def test_with_a_margin_answers_may_lack_a_little_of_what_is_promised(self) -> None:
        chosen, note, _ = self.tried(*[0.585] * PAIRS)
        assert chosen == (0.5, 0.1)
        assert "may break" not in note

    def test_a_promise_that_is_never_kept_is_made_with_a_warning(self, caplog: pytest.LogCaptureFixture) -> None:
        chosen, note, _ = self.tried(0.2, 0.3, rows=self.MANY)
        assert chosen == (0.25, 0.3)
        told = "answers of half of the rows held under 30% of later models (draws of 25% of the rows and labels, "
        assert note == told + "margin 0.3); the promise may break"
        assert note in caplog.text

    def test_of_few_rows_no_labels_are_drawn(self) -> None:
        chosen, note, asked = self.tried(0.2)
        assert (chosen, asked) == ((0.5, 0.1), 2)
        assert "the promise may break" in note

    def test_a_linear_model_is_tried_on_several_pairs_of_halves(self) -> None:
        assert self.tried(*[0.9] * PAIRS, linear=True) == ((0.5, 0.0), "", 2 * PAIRS)
        chosen, _, asked = self.tried(0.3, 0.78, *[0.9] * (PAIRS - 1), linear=True)
        assert (chosen, asked) == ((0.5, 0.1), 2 * (1 + PAIRS))  # a pair that breaks it by much is the last

    def test_answers_of_a_linear_model_must_hold_under_more(self) -> None:
        """They hold or break together: those that just hold in the mean break the promise of every other sample."""
        chosen, note, _ = self.tried(*[0.78] * 2 * PAIRS, linear=True)
        assert chosen == (0.5, 0.1)
        assert "or nearly" in note

    def test_a_linear_model_takes_a_margin_at_most(self) -> None:
        chosen, note, asked = self.tried(*[0.1] * 3, linear=True)
        assert (chosen, asked) == ((0.5, 0.1), 2 * len(OF_LINEAR))
        assert "the promise may break" in note

    def test_which_models_are_linear(self) -> None:
        for last, linear in ((LogisticRegression(), True), (DecisionTreeClassifier(max_depth=2), False)):
            fitted = coded(last).fit(DATA, GOOD)
            for asked, enough in ((MORE, linear), (LESS, False)):
                explained = mlflow_cf.wrap(fitted, DATA, GOOD, target=1, survival=asked)
                assert OnTrial(explained, DATA.head(1), []).linear == enough

    def test_without_probabilities_there_is_no_margin(self) -> None:
        assert self.tried(0.1, 0.9, margins=False)[0] == (0.25, 0.0)
        assert "the promise may break" in self.tried(0.1, 0.2, margins=False)[1]

    def test_a_promise_that_no_answer_could_try_is_told(self) -> None:
        def preparing(trial: Trial, wanted: SurvivalWanted) -> Showing:
            del trial, wanted
            return Shown(False, lambda _: np.empty(0))

        wanted, note = tried(Refit.of(MODEL, self.ROWS), self.ROWS, self.WANTED, 0, preparing, margins=True)
        assert (wanted.rows, wanted.margin) == (0.5, 0.1)
        assert note == "draws of 50% of the rows, margin 0.1; no row of the halves had an answer that could be tried"

    def test_what_cannot_be_tried_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        chosen, note, asked = self.tried(rows=self.ROWS.take(np.arange(199)))
        assert (chosen, note, asked) == ((0.5, 0.0), "not tried whether the promise is kept: fewer than 200 rows", 0)
        failing(monkeypatch, lambda fit: fit < 3)  # those that judge
        chosen, note, asked = self.tried()
        assert (chosen, note, asked) == ((0.5, 0.0), "not tried whether the promise is kept: ValueError", 0)

    def test_a_model_of_mere_chance_needs_more_than_one_that_has_learned(self) -> None:
        chance = np.random.default_rng(1).permutation(GOOD.to_numpy())
        tree = coded(DecisionTreeClassifier(random_state=0))
        wanted = {"holds": 0.8, "confidence": 0.9, "compared": 1}
        note = mlflow_cf.wrap(tree.fit(DATA, chance), DATA, chance, target=1, survival=wanted).describe()
        learned = mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival=wanted)
        assert learned.policy.survival is not None
        assert learned.policy.survival.margin == 0.1
        assert "the promise may break" in " ".join(str(note).split())
        assert "the promise may break" not in " ".join(str(learned.describe()).split())


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], bool]) -> None:
    """Let some fits fail, by their number."""
    fit, fits = LogisticRegression.fit, count(1)

    def tried(self: Any, *args: Any, **options: Any) -> Any:
        if fails(next(fits)):
            raise ValueError("no")
        return fit(self, *args, **options)

    monkeypatch.setattr(LogisticRegression, "fit", tried)


class TestRefused:
    def test_fits_that_fail_are_made_again_and_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        failing(monkeypatch, lambda fit: fit == 2)
        explained = mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival=LESS)
        assert "1 retrained model failed with ValueError" in explained.extra_models.describe()["survival"]

    def test_too_many_that_fail(self, monkeypatch: pytest.MonkeyPatch) -> None:
        failing(monkeypatch, lambda fit: fit > 1)
        with pytest.raises(InputError, match="only 1 of 4 models could be retrained"):
            mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival=LESS)

    def test_no_labels(self) -> None:
        with pytest.raises(InputError, match="survival: models are retrained on labels, and there are none"):
            mlflow_cf.wrap(MODEL, DATA, target=1, survival=LESS)

    def test_what_cannot_be_cloned(self) -> None:
        with pytest.raises(InputError, match=r"survival.models: a function cannot be fitted anew"):
            mlflow_cf.wrap(lambda rows: np.ones(len(rows)), DATA, GOOD, target=1, output="score", survival=LESS)

    def test_what_cannot_be_opened(self) -> None:
        model = coded(SVC(random_state=0)).fit(DATA, GOOD)
        with pytest.raises(InputError, match=r"survival.models\[0\]: cannot be opened"):
            mlflow_cf.wrap(model, DATA, GOOD, target=1, survival=LESS)

    def test_networks_are_wrapped_and_not_stored(self, tmp_path: Path) -> None:
        model = coded(MLPClassifier((3,), solver="lbfgs", max_iter=2_000, random_state=0)).fit(DATA, GOOD)
        explained = mlflow_cf.wrap(model, DATA, GOOD, target=1, survival=LESS)
        (found,) = explained.explain(DATA[model.predict(DATA) == 0].head(1))
        assert found.counterfactuals[0].survival is not None
        with pytest.raises(InputError, match=r"survival.models: an artifact keeps retrained models that are trees or"):
            mlflow_cf.save_model(model, tmp_path / "model", DATA, GOOD, target=1, survival=LESS)

    def test_other_labels(self) -> None:
        other = coded(LogisticRegression()).fit(DATA, GOOD + 1)
        with pytest.raises(InputError, match=r"survival.models\[0\]: predicts \[1, 2\], the explained model \[0, 1\]"):
            mlflow_cf.wrap(
                MODEL, DATA, target=1, survival={"holds": 0.5, "confidence": 0.7, "compared": 1, "models": [other]}
            )

    @pytest.mark.parametrize(
        ("survival", "told"),
        [
            ({"holds": 1.5}, "survival.holds: "),
            ({"confidence": 0}, "survival.confidence: "),
            ({"hold": 0.9}, "survival.hold: "),
            ({"rows": 0}, "survival.rows: "),
            ({"margin": 0.5}, "survival.margin: "),
            ({"models": "jackknife"}, "survival.models"),
            ("bootstrap", "survival: a str is no survival"),
            ({"models": []}, "survival.of"),
            ({"models": [MODEL] * 3}, "survival: 3 models cannot show a share of 0.95 with confidence 0.9"),
            ({"models": [MODEL], "misses": 1}, "survival.misses: "),
            ({"holds": 0.999}, "survival: a share of 0.999 needs more than 256 models to be shown"),
        ],
    )
    def test_nonsense(self, survival: Any, told: str) -> None:
        with pytest.raises(InputError, match=told.replace("[", r"\[")):
            mlflow_cf.wrap(MODEL, DATA, GOOD, target=1, survival=survival)

    def test_one_class(self) -> None:
        with pytest.raises(InputError, match="labels: 1 class in all rows"):
            mlflow_cf.wrap(MODEL, DATA, np.ones(len(DATA)), target=1, survival=LESS)


def test_labels_that_are_drawn_are_as_likely_as_they_were() -> None:
    rng = np.random.default_rng(5)
    rows = Rows(pd.DataFrame({"a": rng.integers(0, 4, 4_000)}), np.empty(4_000))
    share = np.array([0.05, 0.3, 0.6, 0.9])
    labels = np.where(rng.random(4_000) < share[rows.data["a"]], "yes", "no")
    rows = Rows(rows.data, labels)
    refit = Refit.of(DecisionTreeClassifier(min_samples_leaf=20), rows)
    likely = chances(rows, Draws(labels, refit.classes, rng), lambda some: refit.fit(some, rng))
    places = np.arange(4_000)
    drawn = likely.drawn(rows, places, rng)
    assert set(drawn.labels) == {"no", "yes"}
    assert (drawn.labels != labels).mean() > 0.2
    for value in range(4):
        assert (drawn.labels == "yes")[drawn.data["a"] == value].mean() == pytest.approx(share[value], abs=0.05)


def test_chances_of_labels_are_calibrated_where_models_follow_single_rows() -> None:
    """A tree to the last row is sure of everything, and wrong as often as labels are chance."""
    rng = np.random.default_rng(6)
    labels = rng.choice(["x", "y", "z"], 600, p=[0.5, 0.3, 0.2])
    rows = Rows(pd.DataFrame(rng.normal(size=(600, 3)), columns=list("abc")), labels)
    refit = Refit.of(DecisionTreeClassifier(), rows)
    likely = chances(rows, Draws(labels, refit.classes, rng), lambda some: refit.fit(some, rng))
    np.testing.assert_allclose(likely.of_row.mean(axis=0), [0.5, 0.3, 0.2], atol=0.06)
    assert likely.of_row.std(axis=0).max() < 0.1


def test_a_promise_with_drawn_labels_is_asked_for_by_hand() -> None:
    explained = mlflow_cf.wrap(FOREST, DATA, GOOD, target=1, survival={**LESS, "labels": "drawn"})
    assert explained.policy.survival is not None
    poor = DATA[FOREST.predict(DATA) == 0].head(2)
    assert [one.status for one in explained.explain(poor)] == ["found"] * 2
    plain = mlflow_cf.wrap(FOREST, DATA, GOOD, target=1, survival=LESS)
    scores = [each.extra_models.future.requirement.judge.scores(DATA) for each in (explained, plain)]
    assert not np.allclose(*scores)


def test_labels_are_not_drawn_without_probabilities_or_for_given_models() -> None:
    vector = coded(SVC()).fit(DATA, GOOD)
    with pytest.raises(InputError, match="a Pipeline tells no probabilities to draw labels with"):
        mlflow_cf.wrap(vector, DATA, GOOD, target=1, survival={**LESS, "labels": "drawn"})
    with pytest.raises(InputError, match="given models are not fitted"):
        SurvivalWanted.read({"models": [MODEL], "labels": "drawn"})


def test_draws_without_a_class_are_drawn_again() -> None:
    labels = np.array([0] * 16 + [1] * 4)
    draws = Draws(labels, np.array(["0", "1"]), np.random.default_rng(0))
    found = [next(rows) for rows in [draws.bootstraps()] for _ in range(30)]
    assert draws.again > 0
    assert all(len(rows) == 10 and set(labels[rows]) == {0, 1} for rows in found)
    first, second = (next(rows) for rows in [draws.halves()] for _ in range(2))
    assert sorted([*first, *second]) == list(range(20))
    assert len(next(draws.bootstraps(0.4))) == 8
    lonely = Draws(np.array([0] * 18 + [1]), np.array(["0", "1"]), np.random.default_rng(0))
    with pytest.raises(InputError, match="100 draws of 10 of 19 rows lacked a class each time"):
        next(lonely.halves())
    classes = Draws(np.arange(3), np.array(["0", "1", "2"]), np.random.default_rng(0))
    with pytest.raises(InputError, match="100 draws of 2 of 3 rows lacked a class each time"):
        next(classes.bootstraps(0.01))


@pytest.mark.parametrize("models", [make_pipeline(StandardScaler(), LogisticRegression()), MODEL, 5, {"a": MODEL}])
def test_models_come_as_a_list(models: Any) -> None:
    with pytest.raises(InputError, match=r"survival\.models: a \w+ is not a list of models; pass \[model, ...\]"):
        SurvivalWanted.read({"models": models})


@pytest.mark.parametrize("kind", [float, object])
def test_labels_that_are_missing_are_told(kind: type) -> None:
    labels = pd.Series(GOOD).astype(kind)
    labels[:3] = None
    with pytest.raises(InputError, match=f"labels: 3 of {len(DATA):,} are missing"):
        mlflow_cf.wrap(MODEL, DATA, labels, target=1, survival=True)


def test_an_object_is_as_good_as_a_dict() -> None:
    wanted = SurvivalWanted(holds=0.9, confidence=0.9)
    assert SurvivalWanted.read(wanted) is wanted
    assert SurvivalWanted.read(True) == SurvivalWanted()
    assert SurvivalWanted.read(False) is None
