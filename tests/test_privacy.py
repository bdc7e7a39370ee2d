"""What requests see of the background: nothing in words, rows of it only where the owner allows it."""

import json
import logging
from functools import partial

import membership
import mlflow
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import many
from membership import BACKGROUND, MODEL
from privacy_world import ANY, ASKED, CANARIES, JOBS, TABLE, ask, check, fitted, leaks, served

import mlflow_cf
from mlflow_cf import InputError
from mlflow_cf.policy import Query

ONE = ASKED.iloc[[0]]
FEW = 20  # candidates where an advantage is 0 or 1
SAYING_TOO_MUCH = {
    "levels": {"levels": {"job": ["falconer"]}},
    "levels of a sealed feature": {"levels": {"street": ["9 Canary Whar"]}},
    "forbidden": {"forbidden": {"job": [["falconer", "clerk"]]}},
    "rules": {"rules": ["x_cf.job == 'falconer-441'"]},
    "rules of numbers": {"rules": ["x_cf.job == 3 + 4"]},
    "advice": {"relative": {"income": {"up": 10, "down": 10}}, "immutable": ["age", "job", "member"]},
    "advice on levels": {"levels": {"member": ["no"]}, "immutable": ["age", "job", "income"]},
    "advice on ranges": {"ranges": {"income": [None, 20_000]}, "immutable": ["age", "job", "member"]},
}


class TestWords:
    @pytest.mark.parametrize("options", SAYING_TOO_MUCH.values(), ids=SAYING_TOO_MUCH)
    def test_what_the_owner_may_be_told_and_requests_may_not(self, options):
        said, _ = ask(served(), ONE, {"constraints": options})
        named = json.dumps(options) + " ".join(map(str, ONE.iloc[0]))
        assert not leaks(said, named)
        shown, _ = ask(served("shown"), ONE, {"constraints": options})
        assert leaks(shown, named)

    def test_the_owner_is_told_in_python(self):
        explained = served().explained
        with pytest.raises(InputError, match=r"did you mean 'gardener'\?"):
            explained.explain(ONE, constraints={"levels": {"job": ["gardner"]}})
        with pytest.warns(UserWarning, match=r"did you mean 'gardener'\?"):
            explained.explain(ONE, constraints={"rules": ["x_cf.job != 'gardner'"]})

    def test_names_that_are_no_values_are_suggested(self):
        said, _ = ask(served(), ONE, {"constraints": {"immutable": ["incme"]}})
        assert said == "constraints.immutable.incme: not a feature; did you mean 'income'?"

    @given(row=st.integers(0, len(ASKED) - 1), options=ANY)
    def test_no_request_is_told_a_value(self, row, options):
        check(served(), row, options)

    def test_the_canaries_would_be_found(self):
        for name, canary in CANARIES.items():
            assert leaks(f"{name} is {canary}; ", "") == {str(canary)}
            assert not leaks(f"{name} is {canary}; ", f"{canary}")

    def test_a_failing_search_leaves_no_value_in_the_log(self, caplog):
        class Failing:
            name, polish = "failing", False

            def search(self, *_):
                raise ValueError(f"cannot use {CANARIES['job']}")

        caplog.set_level(logging.DEBUG)
        explained = mlflow_cf.wrap(fitted(), TABLE, explainer=Failing())
        assert explained.predict(ONE)["status"].tolist() == ["invalid"]
        assert CANARIES["job"] not in caplog.text
        assert "test_privacy.py" in caplog.text  # where it happened is told
        explained.explain(ONE)
        assert CANARIES["job"] in caplog.text


class TestExplainers:
    @pytest.mark.parametrize("name", ["nearest_row", "random_search", "nobody"])
    def test_others_answer_only_if_they_are_allowed(self, name):
        with pytest.raises(InputError) as error:
            served().predict(ONE, {"counterfactual": {"explainer": name}})
        fact = f"explainer: {name!r} does not answer requests to this model"
        assert error.value.message == f"{fact}; ask for 'geco' or 'exact', or leave it out"

    @pytest.mark.parametrize(
        ("options", "asked"),
        [
            ({}, "geco"),
            ({}, "exact"),
            ({"explainer": "nearest_row"}, "nearest_row"),
            ({"explainer": "nearest_row"}, "geco"),
            ({"explainer": "nearest_row", "privacy": {"explainers": []}}, "nearest_row"),
            ({"privacy": {"explainers": ["random_search"]}}, "random_search"),
            ({"privacy": {"sample": "shown"}}, "random_search"),
        ],
        ids=str,
    )
    def test_the_logged_one_and_those_that_are_named(self, options, asked):
        explained = mlflow_cf.wrap(fitted(), TABLE, **options)
        reply = explained.predict(ONE, {"counterfactual": {"explainer": asked, "max_evaluations": 500}})
        assert reply["explainer"].tolist() == [asked]

    def test_a_list_leaves_out_what_it_does_not_name(self):
        explained = mlflow_cf.wrap(fitted(), TABLE, privacy={"sample": "shown", "explainers": ["random_search"]})
        with pytest.raises(InputError, match="ask for 'geco' or 'random_search', or leave it out"):
            explained.predict(ONE, {"counterfactual": {"explainer": "exact"}})

    def test_the_owner_asks_for_any(self):
        (answer,) = served().explained.explain(ONE, explainer="nearest_row")
        assert answer.explainer == "nearest_row"


class TestGroups:
    def test_a_combination_says_nothing_of_who_is_in_the_background(self):
        assert membership.advantage(membership.serving(), groups=True) <= 0.05

    def test_the_attack_works_where_the_sample_is_shown(self):
        shown = membership.serving(privacy={"sample": "shown"})
        assert membership.advantage(shown, groups=True, candidates=FEW) >= 0.95

    def test_single_values_tell_it_where_observed_ones_are_proposed_and_only_there(self):
        """What is left; SECURITY.md says so."""
        alone = partial(membership.advantage, groups=False, candidates=FEW)
        assert alone(membership.serving()) >= 0.95
        assert alone(membership.serving(values="continuous")) <= 0.05

    @pytest.mark.parametrize("by", ["policy", "request"])
    @pytest.mark.parametrize("k", [0, 1, 5, 10**6])
    def test_requests_get_shared_tuples_and_the_owner_all(self, by, k):
        groups = {"groups": [["children", "age"]]}
        data = BACKGROUND.assign(age=BACKGROUND["age"] // 4)
        shared = data.groupby(["children", "age"])["debt"].transform("size")
        policy, asked = (groups, {}) if by == "policy" else ({}, groups)
        explained = mlflow_cf.wrap(MODEL, data, constraints=policy, privacy={"k_anonymous": k})
        hidden = explained.bound_policy.for_requests(explained.policy.privacy).tightened(mlflow_cf.Constraints(**asked))
        (domain,) = [domain for domain in hidden.domains if len(domain.columns) == 2]
        assert len(domain.actions) == len(data[shared > k].groupby(["children", "age"]))
        assert (domain.weights > k).all()
        (every,) = [
            d for d in explained.bound_policy.tightened(mlflow_cf.Constraints(**asked)).domains if len(d.columns) == 2
        ]
        assert len(every.actions) == len(data.groupby(["children", "age"]))
        row = data[MODEL.predict(data) == 0].head(1)
        (reply,) = explained.predict(row, {"counterfactual": {"constraints": asked, "max_evaluations": 500}})["status"]
        assert reply in ("found", "not_found", "budget", "infeasible")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a model without rows; the one inside it was logged with some of them as its example."""
    folder = tmp_path_factory.mktemp("summary")
    mlflow.sklearn.save_model(fitted(), folder / "logged", input_example=TABLE.head(5))
    mlflow_cf.save_model(folder / "logged", folder / "m", TABLE, privacy={"sample": "summary"})
    return folder / "m"


class TestNotes:
    def test_groups_that_requests_never_change(self):
        alone = {"groups": [["income", "debt"]]}
        (lost,) = mlflow_cf.wrap(MODEL, BACKGROUND, constraints=alone).describe()["notes"]
        assert lost.startswith("requests never change the group income and debt: no tuple of it has more ")

    def test_values_that_tell(self):
        (note,) = mlflow_cf.wrap(MODEL, BACKGROUND).describe()["notes"]
        assert note.startswith("requests can learn whether a value of income, debt is in the background; not with")
        for options in ({"values": "continuous"}, {"privacy": {"sample": "shown"}}):
            assert not mlflow_cf.wrap(MODEL, BACKGROUND, **options).describe()["notes"]


class TestSummary:
    def test_no_row_is_in_any_file(self, folder):
        stored = mlflow_cf.load_model(folder)
        held = pq.read_table(folder / "counterfactual" / "background.parquet").to_pandas()
        rows = set(stored.space.decode(held.to_numpy()).itertuples(index=False, name=None))
        assert not rows & set(TABLE.itertuples(index=False, name=None))
        for name in TABLE:
            assert sorted(stored.background[name]) == sorted(TABLE[name])
        example = (folder / "input_example.json").read_text(encoding="utf-8")
        assert not any(all(json.dumps(value) in example for value in row) for row in TABLE.to_numpy().tolist())
        columns = {"features.json", "background.parquet", "input_example.json", "serving_input_example.json"}
        for path in folder.rglob("*"):
            if path.is_file() and path.name not in columns:
                assert not [value for value in TABLE["income"] if str(value).encode() in path.read_bytes()], path
        assert not list((folder / "model").rglob("*example*"))

    def test_it_answers_as_in_memory_and_serves(self, folder):
        wrapped = mlflow_cf.wrap(fitted(), TABLE, privacy={"sample": "summary"})
        params = {"counterfactual": {"count": 2, "max_evaluations": 2_000}}
        reply = mlflow.pyfunc.load_model(str(folder)).predict(ASKED, params)
        pd.testing.assert_frame_equal(reply, wrapped.predict(ASKED, params))
        assert "found" in set(reply["status"])

    def test_what_depends_on_columns_alone_is_exact(self, folder):
        stored, whole = mlflow_cf.load_model(folder), mlflow_cf.wrap(fitted(), TABLE)
        for one, other in zip(stored.space.features, whole.space.features, strict=True):
            assert one.to_dict() == other.to_dict()

    def test_what_needs_rows_is_refused(self):
        summary = {"sample": "summary"}
        with pytest.raises(
            InputError, match=r"explainer: 'nearest_row' needs rows of data, and .* keeps none; use ano"
        ):
            mlflow_cf.wrap(fitted(), TABLE, explainer="nearest_row", privacy=summary)
        with pytest.raises(
            InputError, match=r"constraints\.groups: .* keeps no rows, and so no combinations; write them"
        ):
            mlflow_cf.wrap(fitted(), TABLE, constraints={"groups": [["job", "age"]]}, privacy=summary)
        explained = mlflow_cf.wrap(fitted(), TABLE, privacy=summary)
        groups = {"groups": [["job", "age"]]}
        with pytest.raises(InputError, match=r"constraints\.groups"):
            explained.predict(ONE, {"counterfactual": {"constraints": groups}})
        with pytest.raises(InputError, match=r"constraints\.groups"):
            explained.explain(ONE, constraints=groups)
        with pytest.raises(InputError, match="explainer: 'nearest_row' needs rows"):
            explained.explain(ONE, explainer="nearest_row")

    def test_an_example_made_of_data_is_refused(self, tmp_path):
        privacy = {"sample": "summary"}
        with pytest.raises(InputError, match="input_example: has a row of data"):
            mlflow_cf.save_model(fitted(), tmp_path / "m", TABLE, privacy=privacy, input_example=TABLE.head(2))
        made = pd.DataFrame([[1.5, 20, JOBS[0], "108 Willow Crescent", "no"]], columns=TABLE.columns)
        mlflow_cf.save_model(fitted(), tmp_path / "m", TABLE, privacy=privacy, input_example=made)
        assert mlflow_cf.load_model(tmp_path / "m").policy.privacy.sample == "summary"

    @pytest.mark.parametrize("seed", range(many(3, 30)))
    def test_which_values_stood_beside_each_other_does_not_matter(self, seed):
        """The rows kept are the same for any shuffling of the columns: so they tell nothing about rows."""
        rng = np.random.default_rng(seed)
        shuffled = pd.DataFrame(
            {name: rng.permutation(TABLE[name].to_numpy()) for name in TABLE}, columns=TABLE.columns
        )
        kept = [mlflow_cf.wrap(fitted(), data, privacy={"sample": "summary"}) for data in (TABLE, shuffled)]
        pd.testing.assert_frame_equal(kept[0].background, kept[1].background)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, 1),
        ({"count": 3}, 3),
        ({"region": True}, 1 + 2 * 3),
        ({"levers": 2}, 1 + 3 + 3),
        ({"levers": [["age"], ["job"]]}, 3),
        ({"responsiveness": True}, 1 + 3),
        ({"target": {"label": 1, "ladder": [0.6, 0.7]}}, 2),
        ({"explain": "none", "count": 9}, 0),
    ],
)
def test_points_next_to_the_boundary_are_counted(asked, told):
    assert Query.read(asked).points(3) == told


def test_a_reply_that_could_tell_too_many_points_is_refused():
    explained = mlflow_cf.wrap(fitted(), TABLE, privacy={"points": 8})
    features = len(TABLE.columns)
    rows = TABLE.head(2)
    assert len(explained.predict(rows, {"counterfactual": {"count": 4}})) == 2
    told = f"could tell {2 * (1 + 2 * features):,} points"
    with pytest.raises(InputError, match=told):
        explained.predict(rows, {"counterfactual": {"region": True}})
    assert len(explained.explain(rows, region=True)) == 2  # the owner may
