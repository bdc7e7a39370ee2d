"""CatBoost's trees over numbers and one-hot categories score as CatBoost does, on values it never saw too."""

import tempfile

import catboost
import numpy as np
import pandas as pd
import pytest
from agreement import agree, near_cuts, wrapped
from hypothesis import given
from hypothesis import strategies as st
from laws import dear
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

import mlflow_cf
from mlflow_cf.structures import NotOpenedError, TreeEnsemble
from mlflow_cf_flavors.catboost.export import exported, hashes
from mlflow_cf_flavors.catboost.trees import catboost_forest

QUIET = {"thread_count": 1, "logging_level": "Silent", "allow_writing_files": False, "one_hot_max_size": 20}
SMALL = {**QUIET, "iterations": 15, "depth": 4, "learning_rate": 0.3}
LEVELS = ("letter", "code", "size", "member")


def offers(rows: int = 500, seed: int = 0) -> pd.DataFrame:
    """Return numbers with gaps, and what CatBoost can take as categories: text, whole numbers, levels, flags."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "price": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
            "letter": np.array([*"abcde", "ä", "", "a much longer word"], dtype=object)[rng.integers(0, 8, rows)],
            "code": rng.choice([-3, 0, 4, 5, 12], rows),
            "weight": rng.normal(size=rows).astype("float32"),
            "size": pd.Categorical(rng.choice(["s", "m", "l"], rows), categories=["s", "m", "l"], ordered=True),
            "member": rng.random(rows) < 0.5,
            "count": rng.integers(0, 9, rows),
        }
    )


def value(data: pd.DataFrame) -> pd.Series:
    odd = data["letter"].isin(["a", "d", "ä"]) ^ (data["code"] == 4) ^ (data["count"] > 5)
    return data["price"].fillna(0.3) + 2 * odd + (data["size"] == "m") + 0.5 * data["member"] * data["weight"]


MODELS = {
    "symmetric": catboost.CatBoostClassifier(**SMALL),
    "depthwise": catboost.CatBoostClassifier(grow_policy="Depthwise", **SMALL),
    "lossguide": catboost.CatBoostRegressor(grow_policy="Lossguide", **SMALL),
    "deep": catboost.CatBoostRegressor(**{**SMALL, "depth": 8}),
    "missing numbers are large": catboost.CatBoostClassifier(nan_mode="Max", **SMALL),
    "weights of classes": catboost.CatBoostClassifier(auto_class_weights="Balanced", **SMALL),
    "ordered": catboost.CatBoostClassifier(boosting_type="Ordered", **SMALL),
    "few borders": catboost.CatBoostRegressor(border_count=3, **SMALL),
    "absolute": catboost.CatBoostRegressor(loss_function="MAE", **SMALL),
}


def target_of(model: object, data: pd.DataFrame) -> pd.Series:
    return value(data) if "Regressor" in type(model).__name__ else (value(data) > 1.5).map({True: "yes", False: "no"})


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_numbers_and_categories(model):
    data = offers()
    wanted = target_of(model, data)
    model.fit(data, wanted, cat_features=list(LEVELS))
    explained = wrapped(model, data, wanted)
    assert explained.opened.worst < 1e-9
    agree(model, explained, offers(400, seed=1))
    agree(model, explained, near_cuts(explained, offers(300, seed=2), ("price", "weight")))


@pytest.mark.parametrize("loss", ["MultiClass", "MultiClassOneVsAll"])
def test_several_classes(loss):
    data = offers()
    wanted = pd.cut(value(data), 4, labels=list("wxyz")).astype(str)
    model = catboost.CatBoostClassifier(loss_function=loss, **SMALL).fit(data, wanted, cat_features=list(LEVELS))
    explained = wrapped(model, data, wanted)
    assert explained.opened.structure is not None, explained.opened.note
    if loss == "MultiClass":
        agree(model, explained, offers(300, seed=1))


def test_levels_it_was_not_fitted_on():
    data = offers()
    model = MODELS["symmetric"].fit(data, target_of(MODELS["symmetric"], data), cat_features=list(LEVELS))
    rows = offers(300, seed=1)
    rows.loc[::3, "letter"] = "z"
    rows.loc[1::3, "code"] = 7
    rows["size"] = rows["size"].cat.add_categories("xl")
    rows.loc[2::3, "size"] = "xl"
    agree(model, wrapped(model, data, target_of(model, data)), rows)


def test_whole_numbers_that_are_categories_between_and_beyond_those_of_the_background():
    data = offers()[["code", "price"]]
    wanted = (offers()["code"] == 4) ^ (offers()["price"] > 0)
    model = catboost.CatBoostClassifier(**SMALL).fit(data, wanted.astype(int), cat_features=["code"])
    explained = wrapped(model, data, wanted.astype(int))
    agree(model, explained, data.assign(code=np.resize([-4, -3, 0, 3, 4, 5, 6, 11, 12, 13, 10**9], len(data))))


@pytest.mark.parametrize(("number", "found"), [(90, True), (-200, True), (10**6, False)])
def test_whole_numbers_that_are_categories_which_the_background_lacks(number, found):
    data = offers()[["code", "price"]].replace({"code": {12: number}})
    wanted = (data["code"] == number) ^ (data["price"] > 0)
    model = catboost.CatBoostClassifier(**SMALL).fit(data, wanted.astype(int), cat_features=["code"])
    explained = wrapped(model, data[data["code"] != number], wanted.astype(int))
    if found:
        agree(model, explained, data)
    else:
        assert "categories of code, of which the background lacks some" in explained.opened.note


def test_a_model_fitted_on_an_array_takes_its_columns_by_position():
    data = offers()[["price", "weight", "count"]].astype(float)
    wanted = (value(offers()) > 1.5).astype(int)
    model = catboost.CatBoostClassifier(**SMALL).fit(data.to_numpy(), wanted)
    explained = wrapped(model, data, wanted)
    agree(model, explained, data)
    objects = offers()[["price", "letter"]]
    mixed = catboost.CatBoostClassifier(**SMALL).fit(objects.to_numpy(dtype=object), wanted, cat_features=[1])
    agree(mixed, wrapped(mixed, objects, wanted), offers(200, seed=1)[["price", "letter"]])


def test_trees_without_splits():
    data = offers()[["price"]]
    whole = {**SMALL, "grow_policy": "Depthwise", "min_data_in_leaf": 10**6}
    model = catboost.CatBoostRegressor(**whole).fit(data, value(offers()))
    explained = mlflow_cf.wrap(model, data, target=mlflow_cf.Target(low=1e6))
    assert explained.opened.note.startswith("15 trees, 15 leaves"), explained.opened.note
    facts = exported(catboost.CatBoostRegressor(**SMALL).fit(data, value(offers())))
    facts["oblivious_trees"][3] = {"splits": None, "leaf_values": [0.25]}
    forest = catboost_forest(facts, "identity")
    root = forest.roots[3]
    assert (forest.column[root], forest.value[root, 0], forest.roots[4]) == (-1, 0.25, root + 1)


def test_categories_behind_a_step_that_fills_gaps():
    data = offers()
    data.loc[::7, "letter"] = None
    steps = make_column_transformer(
        (SimpleImputer(strategy="constant", fill_value="none"), ["letter"]),
        (SimpleImputer(), ["price"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    model = make_pipeline(steps, catboost.CatBoostClassifier(cat_features=["letter", "size"], **SMALL))
    wanted = target_of(MODELS["symmetric"], data)
    model.fit(data, wanted)
    rows = offers(300, seed=1)
    rows.loc[::5, "letter"] = None
    agree(model, wrapped(model, data, wanted), rows)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict, pd.DataFrame, pd.DataFrame]:
    """Draw options of a model, and few rows of numbers with many ties, and of categories; and other rows."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    policy = draw(st.sampled_from(["SymmetricTree", "SymmetricTree", "Depthwise", "Lossguide"]))
    options = {
        "depth": draw(st.integers(1, 6)),
        "grow_policy": policy,
        "nan_mode": draw(st.sampled_from(["Min", "Max"])),
    }
    levels = draw(st.integers(2, 5))
    gaps = draw(st.booleans())

    def rows(count: int) -> pd.DataFrame:
        few = rng.integers(0, 4, count).astype(float)
        return pd.DataFrame(
            {
                "few": np.where(rng.random(count) < 0.2, np.nan, few) if gaps else few,
                "real": rng.normal(size=count),
                "level": rng.choice(list("abcde"[:levels]), count),
                "flag": rng.random(count) < 0.5,
            }
        )

    return options, rows(80), rows(200)


@dear(2)
@given(world=worlds(), goal=st.sampled_from(["two", "three", "value"]), seed=st.integers(0, 99))
def test_every_model_scores_as_catboost_does(world, goal, seed):
    options, data, rows = world
    rng = np.random.default_rng(seed)
    hidden = (
        data["few"].fillna(2) + 2 * (data["level"] == "b") + data["flag"] * data["real"] + rng.normal(size=len(data))
    )
    wanted = hidden if goal == "value" else pd.qcut(hidden, 2 if goal == "two" else 3, labels=False)
    kind = catboost.CatBoostRegressor if goal == "value" else catboost.CatBoostClassifier
    model = kind(**QUIET, **options, iterations=6, learning_rate=0.5, random_seed=seed)
    model.fit(data, wanted, cat_features=["level", "flag"])
    explained = wrapped(model, data, wanted)
    agree(model, explained, rows, 1e-9)


@dear(2)
@given(world=worlds(), seed=st.integers(0, 99))
def test_no_symmetric_tree_has_leaves_that_no_row_can_reach(world, seed):
    options, data, rows = world
    model = catboost.CatBoostRegressor(**QUIET, **{**options, "grow_policy": "SymmetricTree"}, iterations=6)
    model.fit(data, np.random.default_rng(seed).normal(size=len(data)), cat_features=["level", "flag"])
    explained = wrapped(model, data, model.predict(data))
    structure = explained.opened.structure
    assert isinstance(structure, TreeEnsemble)
    (leaves,) = structure.parts()
    assert explained.opened.note.startswith(f"{model.tree_count_} trees, {len(leaves.tree)} leaves")
    agree(model, explained, rows)


def test_hashes_are_those_of_the_trees():
    data = offers()
    model = catboost.CatBoostClassifier(**SMALL).fit(data, value(data) > 1.5, cat_features=list(LEVELS))
    words = sorted({*data["letter"], "s", "m", "l", "0", "1", *map(str, data["code"])})
    facts = exported(model, words)
    assert set(hashes(facts)) == set(words)
    known = set(hashes(facts).values())
    values = [set(one.get("values", ())) for one in facts["features_info"]["categorical_features"]]
    assert any(values)
    assert all(some <= known for some in values)


def test_words_with_one_hash_are_one_category():
    data = offers()[["letter", "price"]].replace({"letter": {"a": "135374", "b": "19771"}})
    wanted = (data["letter"] == "135374") ^ (data["price"] > 0)
    model = catboost.CatBoostClassifier(**SMALL).fit(data, wanted.astype(int), cat_features=["letter"])
    explained = wrapped(model, data, wanted.astype(int))
    agree(model, explained, data)
    same = data.replace({"letter": {"135374": "19771"}})
    np.testing.assert_array_equal(model.predict_proba(same), model.predict_proba(data))


def test_odd_words():
    odd = ["", " ", "a\tb", "a\nb", '"', "\\", "\x01", "ß☂", "nan", "None", "1.0", "a" * 300]
    data = offers()[["price"]].assign(word=np.resize(odd, 500))
    wanted = data["word"].isin(odd[::2]) ^ (data["price"] > 0)
    model = catboost.CatBoostClassifier(**SMALL).fit(data, wanted.astype(int), cat_features=["word"])
    agree(model, wrapped(model, data, wanted.astype(int)), data)


def test_no_file_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = offers()
    model = catboost.CatBoostClassifier(**SMALL).fit(data, value(data) > 1.5, cat_features=list(LEVELS))
    assert exported(model)["features_info"]["float_features"]
    assert not list(tmp_path.iterdir())


class TestNotOpened:
    """What the trees of a model test is no number and no one-hot category; it is scored, and the reason is told."""

    data = offers()[["price", "letter", "count"]]
    wanted = (value(offers()) > 1.5).astype(int)

    def reason(self, model, data):
        explained = mlflow_cf.wrap(model, data, target=1)
        assert explained.opened.structure is None
        rows = data[model.predict(data) == 0].head(3)
        assert {one.status for one in explained.explain(rows, max_evaluations=500)} == {"found"}
        return explained.describe()["structure"]

    def test_statistics_of_categories(self):
        model = catboost.CatBoostClassifier(**{**SMALL, "one_hot_max_size": 2})
        told = self.reason(model.fit(self.data, self.wanted, cat_features=["letter"]), self.data)
        assert "CatBoost's statistics of categories (CTR) of letter" in told
        assert "one_hot_max_size" in told

    def test_text(self):
        words = np.random.default_rng(0).choice(["good day", "bad day", "what a day"], len(self.data))
        data = self.data[["price", "count"]].assign(note=words)
        model = catboost.CatBoostClassifier(**SMALL).fit(data, self.wanted, text_features=["note"])
        assert "CatBoost's text features (note)" in self.reason(model, data)

    def test_exponents(self):
        model = catboost.CatBoostRegressor(loss_function="Poisson", **SMALL).fit(self.data[["price"]], self.wanted)
        explained = mlflow_cf.wrap(model, self.data[["price"]], target=mlflow_cf.Target(low=0.5))
        assert "CatBoost's objective Poisson" in explained.describe()["structure"]

    def test_no_trees(self):
        model = catboost.CatBoostRegressor(**SMALL).fit(self.data[["price"]], self.wanted)
        with pytest.raises(NotOpenedError, match="without trees"):
            catboost_forest({**exported(model), "oblivious_trees": []}, "identity")

    def test_splits_of_another_kind(self):
        model = catboost.CatBoostRegressor(**SMALL).fit(self.data[["price"]], self.wanted)
        facts = exported(model)
        facts["oblivious_trees"][0]["splits"][0]["split_type"] = "EstimatedFeature"
        with pytest.raises(NotOpenedError, match="splits of the kind EstimatedFeature"):
            catboost_forest(facts, "identity")
