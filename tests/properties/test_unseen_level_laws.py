"""Rows with levels that the background lacks are explained and proved as others are, whether the model knows them.

Of those that it does not know, by what it does with all such levels.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from people import CONSTRAINTS, MODELS, fitted, people, wrapped
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler, TargetEncoder

import mlflow_cf
from mlflow_cf import ExplainedModel, Target
from mlflow_cf.evaluation.measure.cohorts import SummaryOptions, cohorts
from mlflow_cf.features import Floats
from mlflow_cf.structures.structure import score_rows

OPENED = sorted(set(MODELS) - {"unopened"})
SINGLE = range(len(CONSTRAINTS) - 1)  # those without groups: values of a group are tuples of the background


UNKNOWN, KNOWN = "elsewhere", "e"  # a town that no model knows, and one that all of them do


@cache
def knowing(kind: str, seed: int, constraints: int) -> ExplainedModel:
    """Return the same model with a background that has the level, to which no row that has it can change."""
    return on(UNKNOWN, kind, seed, constraints)


@cache
def on(first: str, kind: str, seed: int, constraints: int) -> ExplainedModel:
    """Return a model with a background whose first row has one town, and nobody else one that is in doubt."""
    model, frame = fitted(kind, seed)
    target: Any = Target(low=float(np.quantile(model.predict(frame), 0.7))) if "value" in kind else 1
    frame = frame.assign(town=[first, *frame["town"][1:]])
    if first != UNKNOWN:
        frame["town"] = [first, *frame["town"][1:].replace(KNOWN, "a")]
    return mlflow_cf.wrap(model, frame, constraints=CONSTRAINTS[constraints], target=target)


def with_and_without(town: str, kind: str, seed: int, constraints: int) -> tuple[ExplainedModel, ExplainedModel]:
    """Return a model with a background that lacks a town, and one whose first row has it."""
    if town == UNKNOWN:
        return wrapped(kind, seed, constraints), knowing(kind, seed, constraints)
    return on("a", kind, seed, constraints), on(KNOWN, kind, seed, constraints)


@dear(4)
@given(
    town=st.sampled_from([UNKNOWN, KNOWN]),
    kind=st.sampled_from(OPENED),
    seed=st.integers(0, 2),
    constraints=st.sampled_from(SINGLE),
    count=st.integers(1, 3),
)
def test_as_near_as_with_a_background_that_knows_the_level(town: str, count: int, **made: Any) -> None:
    rows = people(made["seed"] + 300, 12).assign(town=town)
    asked = {"count": count, "certify": True, "why_not": False, "n_jobs": 1}
    found, expected = (one.explain(rows, **asked) for one in with_and_without(town, **made))
    for one, other in zip(found, expected, strict=True):
        assert (one.status, len(one.counterfactuals)) == (other.status, len(other.counterfactuals))
        for answer, known in zip(one.counterfactuals, other.counterfactuals, strict=True):
            assert answer.proof == known.proof
            assert answer.distance == pytest.approx(known.distance, rel=1e-9)


ASKED: dict[str, dict[str, Any]] = {
    "why not": {"constraints": {"max_changes": 1}, "why_not": "full"},
    "levers": {"levers": 2},
    "responsiveness": {"responsiveness": True},
    "region": {"region": True},
    "reasons": {"reasons": True},
    "proof": {"certify": True, "count": 2, "explainer": "exact"},
}


@pytest.mark.parametrize("asked", sorted(ASKED))
@pytest.mark.parametrize("kind", ["forest", "logistic", "network"])
@pytest.mark.parametrize("town", [UNKNOWN, KNOWN])
def test_whatever_else_is_asked(town: str, kind: str, asked: str) -> None:
    rows = people(301, 8).assign(town=town)
    found, expected = (one.explain(rows, **ASKED[asked]) for one in with_and_without(town, kind, 0, 3))
    assert found.statuses == expected.statuses
    assert not any("failed" in one.reason for one in found)
    for one, other in zip(found, expected, strict=True):
        assert [each.distance for each in one.counterfactuals] == [each.distance for each in other.counterfactuals]


@pytest.mark.parametrize("kind", ["forest", "boosting", "logistic"])
@pytest.mark.parametrize("town", [UNKNOWN, KNOWN])
def test_reasons_add_up_without_asking_the_model(town: str, kind: str) -> None:
    rows = people(301, 8).assign(town=town)
    explained, _ = with_and_without(town, kind, 0, 0)
    alone, reasoned = (
        [explained.explain(rows.iloc[[at]], why_not=False, reasons=told)[0] for at in range(8)]
        for told in (False, True)
    )
    assert [one.evaluations for one in alone] == [one.evaluations for one in reasoned]
    told = [one.reasons for one in reasoned if one.status == "found"]
    assert {each.method for each in told} == {"exact"}
    for each in told:
        total = sum(factor.contribution for factor in (*each.factors, *each.others))
        assert total == pytest.approx(each.shortfall, abs=1e-6)
    factors = [factor for each in told for factor in (*each.factors, *each.others)]
    assert {factor.values for factor in factors if factor.features == ("town",)} <= {(town,)}


@pytest.mark.parametrize("kind", ["forest", "logistic", "network"])
@pytest.mark.parametrize("town", [UNKNOWN, KNOWN])
def test_summaries_count_such_rows_without_asking(town: str, kind: str) -> None:
    rows, models = people(301, 60).assign(town=town), with_and_without(town, kind, 0, 3)
    found, expected = (cohorts(explained, rows, most=2) for explained in models)
    assert found.items == expected.items
    assert (found.rows, found.bound, found.proof) == (expected.rows, expected.bound, expected.proof)
    few = cohorts(models[0], rows, most=2, options=SummaryOptions(max_evaluations=1))
    assert (few.bound, few.proof) == (found.bound, found.proof)


@pytest.mark.parametrize("kind", ["forest", "boosting", "tree", "logistic"])
@pytest.mark.parametrize("town", [UNKNOWN, KNOWN])
def test_one_call_of_the_model_for_row_and_candidates(town: str, kind: str) -> None:
    rows, (explained, _) = people(301, 8).assign(town=town), with_and_without(town, kind, 0, 0)
    alone = [explained.explain(rows.iloc[[at]], why_not=False)[0] for at in range(len(rows))]
    assert {one.diagnostics["judge_calls"] for one in alone if one.status == "found"} == {1}


@pytest.mark.parametrize("kind", ["forest", "boosting"])
def test_answers_that_must_be_plausible(kind: str) -> None:
    """The forest that says how plausible a row is knows the levels of the background, and no others."""
    model, frame = fitted(kind, 0)
    rows = people(301, 8).assign(town="elsewhere")
    asked = {"plausible": {"method": "isolation_forest", "quantile": 0.1}, "target": 1}
    explained = mlflow_cf.wrap(model, frame, **asked)
    found = explained.explain(rows, certify=True)
    assert {each.proof for one in found for each in one.counterfactuals} == {"optimal"}
    assert all(one.counterfactuals or one.status == "already" for one in found)


ENCODERS: dict[str, Any] = {
    "one hot": OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    "infrequent": OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=30, sparse_output=False),
    "ordinal": OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    "target": TargetEncoder(cv=2),
    "imputed": make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    ),
}


def learned(encoder: Any, last: Any) -> tuple[Pipeline, pd.DataFrame]:
    """Return a pipeline that was fitted on all towns, and its rows."""
    frame = people(5, 200)
    wanted = (frame["skill"] * 5 - frame["debt"] + 9 * (frame["town"] == "e") > 2).astype(int)
    steps = make_column_transformer((StandardScaler(), ["age", "debt", "skill"]), (encoder, ["job", "town"]))
    return make_pipeline(steps, last).fit(frame.drop(columns="income"), wanted), frame.drop(columns="income")


LAST = {"forest": RandomForestClassifier(9, max_depth=4, random_state=0), "linear": LogisticRegression()}


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
@pytest.mark.parametrize("last", sorted(LAST))
@pytest.mark.parametrize("categorical", [False, True])
def test_levels_that_the_model_knows_are_not_taken_for_unknown(encoder: str, last: str, categorical: bool) -> None:  # noqa: FBT001
    """The background has no town `e`. The type of a categorical says so, too, and only the model can be asked then."""
    model, frame = learned(ENCODERS[encoder], LAST[last])
    background = frame[frame["town"] != "e"]
    background = background.astype({"town": "category"}) if categorical else background
    explained = mlflow_cf.wrap(model, background, target=1)
    assert explained.context.model.opened.structure is not None
    for town, proof in (("elsewhere", "optimal"), ("e", "none" if categorical else "optimal")):
        rows = frame[model.predict(frame.assign(town=town)) == 0].assign(town=town).head(8)
        found = explained.explain(rows, why_not=False, n_jobs=1)
        assert found.statuses == ["found"] * len(rows)
        assert {one.proof for each in found for one in each.counterfactuals} == {proof}
        answers = pd.DataFrame([each.counterfactuals[0].row for each in found])
        assert (model.predict(answers[list(frame.columns)]) == 1).all()
        reasoned = explained.explain(rows, why_not=False, reasons=True)
        more = {one.evaluations > other.evaluations for one, other in zip(reasoned, found, strict=True)}
        assert more == {proof == "none"}


def scored(explained: ExplainedModel, rows: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return the scores of rows by the structure, and by the model."""
    space, model = explained.space.covering(rows), explained.context.model
    codes, structure, score = space.encode(rows), model.opened.structure, model.judge.model.score
    assert structure is not None
    assert score is not None
    assert all(model.reads(name, "elsewhere") for name in ("job", "town"))
    return score_rows(structure, codes), score(space.decode(codes))


@pytest.mark.parametrize("encoder", sorted(ENCODERS))
@pytest.mark.parametrize("last", sorted(LAST))
@pytest.mark.parametrize("towns", ["abcde", "abc"])
def test_the_structure_scores_levels_that_the_background_lacks_as_the_model_does(
    encoder: str, last: str, towns: str
) -> None:
    model, frame = learned(ENCODERS[encoder], LAST[last])
    explained = mlflow_cf.wrap(model, frame[frame["town"].isin(list(towns))], target=1)
    for unknown in ({"town": "elsewhere"}, {"job": "elsewhere"}, {"job": "elsewhere", "town": "elsewhere"}, {}):
        structure, truth = scored(explained, frame.assign(**unknown))
        assert structure == pytest.approx(truth, rel=1e-9)


def test_lightgbm_takes_unknown_levels_as_missing() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    frame = people(5, 300).drop(columns="income").astype({"job": "category", "town": "category"})
    wanted = (frame["skill"] * 5 - frame["debt"] + 9 * (frame["town"] == "e") > 2).astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=15, min_child_samples=5, verbose=-1).fit(frame, wanted)
    explained = mlflow_cf.wrap(model, frame, target=1)
    towns = pd.CategoricalDtype([*frame["town"].cat.categories, "elsewhere"])
    rows = frame.assign(town=pd.Series(["elsewhere"] * len(frame), dtype=towns))
    structure, truth = scored(explained, rows)
    assert structure == pytest.approx(truth, rel=1e-9)
    found = explained.explain(rows.head(40), why_not=False, n_jobs=1)
    assert {one.proof for each in found for one in each.counterfactuals} == {"optimal"}


def test_levels_that_the_last_step_takes_by_itself() -> None:
    """Nothing is known of levels that no encoder of the pipeline looks at."""
    frame = people(5, 200).astype({"job": "category", "town": "category"})
    wanted = (frame["skill"] * 5 - frame["debt"] + 9 * (frame["town"] == "e") > 2).astype(int)
    numbers = make_column_transformer(
        (StandardScaler(), ["age", "debt", "skill"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    last = HistGradientBoostingClassifier(max_iter=12, early_stopping=False, categorical_features="from_dtype")
    model = make_pipeline(numbers, last).fit(frame, wanted)
    explained = mlflow_cf.wrap(model, frame, target=1)
    assert explained.context.model.opened.levels == {}


def replies(explained: ExplainedModel, rows: pd.DataFrame, **asked: Any) -> list[Any]:
    """Return the statuses of rows, and their answers with distances and proofs."""
    found = explained.explain(rows, why_not=False, **asked)
    return [(one.status, [(each.row, each.distance, each.proof) for each in one.counterfactuals]) for one in found]


@cache
def sampled() -> tuple[Pipeline, pd.DataFrame, pd.DataFrame]:
    """Return a model, a background of two of its towns, and rows of all towns and of unknown ones."""
    model, frame = learned(ENCODERS["one hot"], LAST["forest"])
    rows = people(77, 200).drop(columns="income")
    rows.loc[::9, "town"] = UNKNOWN
    return model, frame[frame["town"].isin(["a", "b"])], rows


def test_all_rows_are_proved_whichever_stand_beside_them(tmp_path: Path) -> None:
    model, background, rows = sampled()
    explained = mlflow_cf.wrap(model, background, target=1)
    together = replies(explained, rows, n_jobs=2)
    assert {each[2] for _, answers in together for each in answers} == {"optimal"}
    some = range(0, len(rows), 7)
    assert [replies(explained, rows.iloc[[at]])[0] for at in some] == [together[at] for at in some]
    mlflow_cf.save_model(model, str(tmp_path / "model"), data=background, target=1)
    assert replies(mlflow_cf.load_model(str(tmp_path / "model")), rows, n_jobs=1) == together


def test_other_models_that_must_agree_know_such_levels_too() -> None:
    """A second version has other trees, and knows the same towns."""
    model, background, rows = sampled()
    other, frame = learned(ENCODERS["one hot"], RandomForestClassifier(7, max_depth=3, random_state=1))
    found = mlflow_cf.wrap(model, background, target=1, robust_to=[other]).explain(rows.head(60), why_not=False)
    assert {each.proof for one in found for each in one.counterfactuals} == {"optimal"}
    answers = pd.DataFrame([each.row for one in found for each in one.counterfactuals])[list(frame.columns)]
    assert (other.predict(answers) == 1).all()


@pytest.mark.parametrize("town", [UNKNOWN, KNOWN])
@pytest.mark.parametrize("kind", ["logistic", "forest"])
def test_what_blocks_a_row_may_be_that_the_level_stays(town: str, kind: str) -> None:
    """The town decides alone, and may not change: the advice names it."""
    frame = people(5, 200).drop(columns="income")
    wanted = (frame["town"] == "a").astype(int)
    steps = make_column_transformer((StandardScaler(), ["debt"]), (ENCODERS["one hot"], ["town"]))
    last = LAST["forest"] if kind == "forest" else LAST["linear"]
    model = make_pipeline(steps, last).fit(frame, wanted)
    background = frame[frame["town"] != KNOWN]
    explained = mlflow_cf.wrap(model, background, target=1, constraints={"immutable": ["town"]}, why_not="full")
    rows = people(6, 40).drop(columns="income").assign(town=town)
    found = explained.explain(rows, n_jobs=1)
    assert set(found.statuses) == {"infeasible"}
    assert all(f"let town go from {town} to a" in one.reason for one in found), found[0].reason
