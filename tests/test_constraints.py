"""Constraints as users write them: reading, errors with their nearest fix, and what each key lets pass."""

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from checker import Checker
from worlds import bind, row_dicts, table

from mlflow_cf.constraints import Constraints
from mlflow_cf.errors import InputError, InputErrors
from mlflow_cf.features import FeatureSpace
from mlflow_cf.policy import Distance
from mlflow_cf.problem import BoundPolicy, Problem

DEGREES = ["none", "bachelor", "master", "doctor"]
PEOPLE = pd.DataFrame(
    {
        "age": [22, 25, 30, 45, 60, 30],
        "income": [10.0, 20.0, np.nan, 80.0, 55.5, 20.0],
        "degree": ["none", "bachelor", "master", "master", None, "bachelor"],
        "gender": ["f", "m", "f", "m", "f", "f"],
        "member": [True, False, False, True, True, False],
    }
)
ANN = {"age": 30, "income": 20.0, "degree": "bachelor", "gender": "f", "member": False}


def bound_policy(constraints: dict[str, Any], values: Any = "observed") -> BoundPolicy:
    space = FeatureSpace.infer(PEOPLE, {"degree": {"kind": "ordinal", "levels": DEGREES}})
    return BoundPolicy.build(space, space.encode(PEOPLE), Constraints.read(constraints), Distance(), values)


def accepts(constraints: dict[str, Any], query: dict[str, Any], **moves: Any) -> bool:
    """Whether the package lets the query row move so; asserts that the independent checker agrees."""
    prepared = bound_policy(constraints)
    raw = table([query, {**query, **moves}], PEOPLE)
    codes = prepared.space.covering(raw).encode(raw)
    accepted = bool(prepared.accepts(codes[1:], codes[0])[0])
    checker = Checker(len, PEOPLE, [constraints], "yes", {"degree": DEGREES})
    assert accepted == checker.accepts(query, {**query, **moves})
    return accepted


def bound(constraints: dict[str, Any], query: dict[str, Any], values: Any = "observed") -> Problem:
    return bind(bound_policy(constraints, values), table([query], PEOPLE))


def tuples(problem: Problem, name: str) -> list[Any]:
    """Return what the group that starts with a feature may be proposed: levels, numbers, or tuples of them."""
    group = next(g for g in problem.groups if problem.space.names[g.columns[0]] == name)
    features = [problem.space.features[column] for column in group.columns]
    lines = [
        tuple(feature.value(code) for feature, code in zip(features, line, strict=True))
        for code, line in enumerate(group.actions)
        if code != group.own
    ]
    return [line[0] if len(line) == 1 else line for line in lines]


GAPS = pd.DataFrame({"a": [1.0, 2.0, np.nan, 4.0], "b": ["x", "y", "y", None], "c": [1, 2, 3, 4]})


@pytest.mark.parametrize(
    ("query", "moves", "fine"),
    [
        ({"a": 1.0, "b": "x", "c": 1}, {"a": 2.0, "b": "y"}, True),
        ({"a": 1.0, "b": "x", "c": 1}, {"a": np.nan, "b": "y"}, False),  # a tuple of the background, but missing
        ({"a": np.nan, "b": "x", "c": 1}, {"b": "y"}, True),  # the row's own missing value may stay
        ({"a": np.nan, "b": "x", "c": 1}, {"a": 4.0, "b": None}, False),
        ({"a": np.nan, "b": None, "c": 1}, {"a": 4.0}, True),
        ({"a": np.nan, "b": None, "c": 1}, {"b": "x"}, False),  # no such tuple
    ],
)
def test_missing_values_inside_groups(query: dict[str, Any], moves: dict[str, Any], *, fine: bool) -> None:
    space = FeatureSpace.infer(GAPS)
    constraints = Constraints.read({"groups": [["a", "b"]]})
    prepared = BoundPolicy.build(space, space.encode(GAPS), constraints, Distance(), "observed")
    codes = space.encode(pd.DataFrame([query, {**query, **moves}]).astype({"b": GAPS["b"].dtype}))
    assert prepared.accepts(codes[1:], codes[0]).tolist() == [fine]
    assert prepared.accepts(codes, np.stack([codes[0], codes[0]])).tolist() == [False, fine]  # in pairs


class TestKeys:
    """Every key alone; `accepts` compares each case with the independent checker."""

    def test_immutable(self) -> None:
        sealed = {"immutable": ["gender", "income"]}
        assert not accepts(sealed, ANN, gender="m")
        assert not accepts(sealed, ANN, income=80.0)
        assert accepts(sealed, ANN, age=45)

    def test_increasing_and_decreasing(self) -> None:
        assert accepts({"increasing": ["age"]}, ANN, age=45)
        assert not accepts({"increasing": ["age"]}, ANN, age=25)
        assert not accepts({"decreasing": ["age"]}, ANN, age=45)
        assert accepts({"decreasing": ["age"]}, ANN, age=25)

    def test_ordinals_go_by_rank(self) -> None:
        assert accepts({"increasing": ["degree"]}, ANN, degree="master")
        assert not accepts({"increasing": ["degree"]}, ANN, degree="none")
        assert accepts({"ranges": {"degree": ["bachelor", None]}}, ANN, degree="master")
        assert not accepts({"ranges": {"degree": ["bachelor", "bachelor"]}}, ANN, degree="master")

    @pytest.mark.parametrize(
        ("ends", "fine"),
        [([25, 45], True), ([45, None], True), ([None, 45], True), ([46, None], False), ([None, 44], False)],
    )
    def test_ranges_are_inclusive(self, ends: list[int | None], *, fine: bool) -> None:
        assert accepts({"ranges": {"age": ends}}, ANN, age=45) == fine

    @pytest.mark.parametrize(
        ("limits", "age", "fine"),
        [
            ({"up": 15}, 45, True),
            ({"up": 14}, 45, False),
            ({"up": 14}, 25, True),
            ({"down": 5}, 25, True),
            ({"down": 4}, 25, False),
            ({"up_percent": 50}, 45, True),
            ({"up_percent": 49}, 45, False),
            ({"down_percent": 20}, 25, True),
            ({"down_percent": 16}, 25, False),
            ({"up": 100, "up_percent": 10}, 45, False),
            ({"up": 0}, 25, True),
        ],
    )
    def test_relative(self, limits: dict[str, float], age: int, *, fine: bool) -> None:
        assert accepts({"relative": {"age": limits}}, ANN, age=age) == fine

    def test_percent_of_a_negative_number_goes_by_its_size(self) -> None:
        frame = pd.DataFrame({"debt": [-100.0, -90.0, -80.0, -111.0]})
        space = FeatureSpace.infer(frame)
        limits = Constraints.read({"relative": {"debt": {"up_percent": 10, "down_percent": 10}}})
        prepared = BoundPolicy.build(space, space.encode(frame), limits, Distance(), "observed")
        accepted = prepared.accepts(space.encode(frame), np.array([-100.0]))
        assert accepted.tolist() == [False, True, False, False]  # itself is no counterfactual

    def test_levels(self) -> None:
        only = {"levels": {"degree": ["master", "bachelor"], "age": [30, 45]}}
        assert accepts(only, ANN, degree="master")
        assert not accepts(only, ANN, degree="none")
        assert accepts(only, ANN, age=45)
        assert not accepts(only, ANN, age=60)

    def test_forbidden(self) -> None:
        pairs = {"forbidden": {"degree": [["bachelor", "none"]], "member": [[False, True]], "age": [[30, 45]]}}
        assert not accepts(pairs, ANN, degree="none")
        assert accepts(pairs, ANN, degree="master")
        assert accepts(pairs, {**ANN, "degree": "master"}, degree="none")
        assert not accepts(pairs, ANN, member=True)
        assert not accepts(pairs, ANN, age=45)
        assert accepts(pairs, ANN, age=60)

    def test_groups_keep_to_observed_combinations(self) -> None:
        pair = {"groups": [["income", "degree"]]}
        assert accepts(pair, ANN, income=10.0, degree="none")
        assert accepts(pair, ANN, income=80.0, degree="master")
        assert not accepts(pair, ANN, income=80.0)
        assert not accepts(pair, ANN, degree="master")
        assert accepts(pair, ANN, age=45)

    def test_groups_of_many_features(self) -> None:
        """More combinations than there are 64-bit numbers: still each of them is told from every other."""
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({f"f{number}": rng.permutation(256) for number in range(9)})
        space = FeatureSpace.infer(frame)
        prepared = BoundPolicy.build(
            space, space.encode(frame), Constraints(groups=(tuple(frame.columns),)), Distance(), "observed"
        )
        codes = space.encode(frame)
        mixed = codes.copy()
        mixed[:, 0] = np.roll(mixed[:, 0], 1)
        assert prepared.accepts(codes[1:], codes[0]).all()
        assert not prepared.accepts(mixed, codes[0]).any()

    @pytest.mark.parametrize(("most", "fine"), [(1, False), (2, False), (3, True)])
    def test_max_changes(self, most: int, *, fine: bool) -> None:
        assert accepts({"max_changes": most}, ANN, age=45, gender="m", member=True) == fine

    def test_max_changes_counts_groups(self) -> None:
        assert accepts({"max_changes": 1, "groups": [["income", "degree"]]}, ANN, income=10.0, degree="none")

    def test_nothing_changed_is_no_counterfactual(self) -> None:
        assert not accepts({}, ANN)

    def test_values_must_be_observed(self) -> None:
        assert not accepts({}, ANN, age=31)
        assert not accepts({}, ANN, degree="doctor")
        assert not accepts({}, ANN, gender="x")

    def test_together(self) -> None:
        everything = {
            "immutable": ["gender"],
            "increasing": ["age"],
            "ranges": {"income": [None, 60]},
            "relative": {"age": {"up": 20}},
            "forbidden": {"degree": [["bachelor", "none"]]},
            "max_changes": 2,
        }
        assert accepts(everything, ANN, age=45, income=55.5)
        assert not accepts(everything, ANN, age=45, income=80.0)
        assert not accepts(everything, ANN, age=60)
        assert not accepts(everything, ANN, age=45, income=55.5, member=True)


class TestMissing:
    HOLE: ClassVar = {**ANN, "income": None, "degree": None}

    @pytest.mark.parametrize("key", ["immutable", "increasing", "decreasing"])
    def test_may_stay(self, key: str) -> None:
        assert accepts({key: ["income", "degree"]}, self.HOLE, age=45)

    @pytest.mark.parametrize("key", ["immutable", "increasing", "decreasing"])
    def test_directions_refuse_to_fill_it_in(self, key: str) -> None:
        assert not accepts({key: ["income"]}, self.HOLE, income=20.0)
        assert not accepts({key: ["degree"]}, self.HOLE, degree="none")

    def test_is_never_proposed(self) -> None:
        assert not accepts({}, ANN, income=None)
        assert not accepts({}, ANN, degree=None)

    def test_may_be_filled_in(self) -> None:
        assert accepts({}, self.HOLE, income=20.0)

    def test_ranges_and_levels_hold_while_it_stays(self) -> None:
        limits = {"ranges": {"income": [50, 90], "degree": ["master", None]}, "levels": {"degree": ["master"]}}
        assert accepts(limits, self.HOLE, age=45)
        assert accepts(limits, self.HOLE, income=80.0)
        assert not accepts(limits, self.HOLE, income=20.0)
        assert not accepts(limits, self.HOLE, degree="bachelor")

    def test_relative_refuses_to_fill_it_in(self) -> None:
        assert not accepts({"relative": {"income": {"up_percent": 1000}}}, self.HOLE, income=20.0)
        assert accepts({"relative": {"income": {"up": 1}}}, self.HOLE, age=45)

    def test_forbidden_says_nothing_about_it(self) -> None:
        assert accepts({"forbidden": {"degree": [["none", "master"]]}}, self.HOLE, degree="master")

    def test_one_part_of_a_tuple_may_stay_missing(self) -> None:
        pair = {"groups": [["income", "age"]]}
        query = {**ANN, "income": None, "age": 22}
        assert accepts(pair, query, age=30)  # (missing, 30) is observed
        assert not accepts(pair, query, age=45)
        assert not accepts(pair, {**query, "income": 10.0}, income=None, age=30)


class TestUnseen:
    ODD: ClassVar = {**ANN, "degree": "licence", "gender": "x"}

    @pytest.mark.parametrize("key", ["immutable", "increasing", "decreasing"])
    def test_may_stay(self, key: str) -> None:
        assert accepts({key: ["degree"]}, self.ODD, age=45)

    @pytest.mark.parametrize("key", ["increasing", "decreasing"])
    def test_has_no_known_rank(self, key: str) -> None:
        assert not accepts({key: ["degree"]}, self.ODD, degree="master")

    def test_may_be_left_but_not_proposed(self) -> None:
        assert accepts({}, self.ODD, gender="f")
        assert not accepts({}, ANN, gender="x")

    def test_levels_and_ranges_make_it_change(self) -> None:
        assert not accepts({"levels": {"gender": ["f", "m"]}}, self.ODD, age=45)
        assert accepts({"levels": {"gender": ["f", "m"]}}, self.ODD, gender="m")
        assert not accepts({"ranges": {"degree": ["none", None]}}, self.ODD, age=45)
        assert accepts({"ranges": {"degree": ["none", None]}}, self.ODD, degree="none")

    def test_forbidden_lets_it_go(self) -> None:
        assert accepts({"forbidden": {"gender": [["f", "m"]]}}, self.ODD, gender="m")


class TestBinding:
    def test_papers_example(self) -> None:
        """GeCo section 3.3 without its rule across groups: gender fixed, age only up, education with income."""
        frame = pd.DataFrame(
            {
                "gender": ["female", "male", "female", "male", "female"],
                "age": [22, 20, 30, 26, 28],
                "education": [3, 3, 4, 4, 2],
                "income": [80000, 50000, 90000, 80000, 50000],
            }
        )
        space = FeatureSpace.infer(frame)
        constraints = Constraints(groups=(("education", "income"),), immutable=("gender",), increasing=("age",))
        prepared = BoundPolicy.build(space, space.encode(frame), constraints, Distance(), "observed")
        problem = bind(prepared, frame.iloc[[0]])
        assert tuples(problem, "gender") == []
        assert tuples(problem, "age") == [26, 28, 30]  # 22 is the row's own
        assert tuples(problem, "education") == [(2, 50000), (3, 50000), (4, 80000), (4, 90000)]
        assert all(group.own_allowed for group in problem.groups)

    def test_weights_are_frequencies(self) -> None:
        problem = bound({}, {**ANN, "age": 22})
        age = problem.groups[0]
        assert dict(zip(age.actions[:, 0], age.weights, strict=True)) == {22: 0, 25: 1, 30: 2, 45: 1, 60: 1}

    def test_a_value_out_of_range_must_change(self) -> None:
        problem = bound({"ranges": {"age": [None, 25]}}, ANN)
        assert tuples(problem, "age") == [22, 25]
        assert [group.own_allowed for group in problem.groups] == [False, True, True, True, True]

    def test_unseen_is_kept_and_never_proposed(self) -> None:
        problem = bound({}, {**ANN, "gender": "x"})
        assert tuples(problem, "gender") == ["f", "m"]
        gender = problem.groups[3]
        assert problem.space["gender"].value(gender.actions[gender.own, 0]) == "x"
        assert gender.own_allowed

    def test_a_missing_immutable_value_stays(self) -> None:
        problem = bound({"immutable": ["income"]}, {**ANN, "income": None})
        assert tuples(problem, "income") == []
        assert problem.groups[1].own_allowed

    def test_off_grid_values_are_kept(self) -> None:
        problem = bound({}, {**ANN, "age": 31, "income": 11.25})
        assert tuples(problem, "age") == [22, 25, 30, 45, 60]
        assert 11.25 in problem.groups[1].actions

    def test_grid(self) -> None:
        space = FeatureSpace.infer(PEOPLE, {"age": {"step": 10}, "income": {"step": 5}})
        prepared = BoundPolicy.build(space, space.encode(PEOPLE), Constraints(), Distance(), "grid")
        ages = prepared.domains[0].actions[:, 0]
        assert ages.tolist() == [22, 32, 42, 52]  # anchored at the smallest
        assert prepared.domains[1].actions[:, 0].tolist() == [10 + 5 * i for i in range(15)]
        assert prepared.domains[0].weights.tolist() == [1, 1, 1, 1]
        assert prepared.domains[3].actions[:, 0].tolist() == [0, 1]  # levels stay observed ones

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_grid_of_fractions_meets_the_background(self, dtype: str) -> None:
        frame = pd.DataFrame({"x": np.array([0.1, 0.3, 0.7, 0.4], dtype=dtype)})
        space = FeatureSpace.infer(frame, {"x": {"step": 0.1}})
        prepared = BoundPolicy.build(space, space.encode(frame), Constraints(), Distance(), "grid")
        grid = space.decode(prepared.domains[0].actions)["x"]
        assert grid.dtype == dtype
        assert grid.tolist() == np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7], dtype=dtype).tolist()
        assert (space.encode(grid.to_frame()) == prepared.domains[0].actions).all()

    @pytest.mark.parametrize(
        ("features", "message"),
        [
            ({}, r"features\.income\.step: values='grid' needs a step; declare features=\{'income'"),
            ({"income": {"step": 1e-6}}, r"features\.income\.step: its grid has 70,000,001 values"),
        ],
        ids=str,
    )
    def test_no_grid(self, features: dict[str, Any], message: str) -> None:
        space = FeatureSpace.infer(PEOPLE, features)
        with pytest.raises(InputError, match=message):
            BoundPolicy.build(space, space.encode(PEOPLE), Constraints(), Distance(), "grid")


class TestReading:
    RULES: ClassVar = {
        "immutable": ["a"],
        "ranges": {"b": [0, None]},
        "forbidden": {"c": [["x", "y"]]},
        "max_changes": 2,
    }

    def test_same_from_object_dict_yaml_json(self, tmp_path: Path) -> None:
        (tmp_path / "c.json").write_text(json.dumps(self.RULES), encoding="utf-8")
        (tmp_path / "c.yaml").write_text(
            "immutable: [a]\nranges: {b: [0, null]}\nforbidden:\n  c: [[x, y]]\nmax_changes: 2\n", encoding="utf-8"
        )
        read = Constraints.read(self.RULES)
        assert read == Constraints.read(tmp_path / "c.json") == Constraints.read(str(tmp_path / "c.yaml"))
        assert Constraints.read(read) is read
        assert Constraints.read(read.to_dict()) == read
        assert read.to_dict() == self.RULES

    def test_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "empty.yaml").write_text("# nothing yet\n", encoding="utf-8")
        assert Constraints.read(None) == Constraints.read({}) == Constraints.read(tmp_path / "empty.yaml")
        assert Constraints().to_dict() == {}

    def test_relative_keeps_only_what_is_set(self) -> None:
        assert Constraints.read({"relative": {"a": {"up": 3}}}).to_dict() == {"relative": {"a": {"up": 3}}}

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("gone.yaml", None, "constraints: no file at"),
            ("bad.json", "{", "constraints: bad.json is not valid JSON"),
            ("bad.yaml", "a: [", "constraints: bad.yaml is not valid YAML"),
            ("list.yaml", "[1, 2]", "constraints: list.yaml holds a list; write one mapping"),
            ("typo.yaml", "immutabel: [a]", "constraints.immutabel: not a known key; did you mean 'immutable'?"),
        ],
    )
    def test_bad_files(self, tmp_path: Path, name: str, text: str | None, message: str) -> None:
        if text is not None:
            (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(InputError) as error:
            Constraints.read(tmp_path / name)
        assert message in str(error.value)

    @pytest.mark.parametrize(
        ("data", "path"),
        [
            ({"immutabel": ["a"]}, "constraints.immutabel"),
            ({"immutable": "age"}, "constraints.immutable"),
            ({"immutable": [1]}, "constraints.immutable[0]"),
            ({"ranges": {"age": [1]}}, "constraints.ranges.age[1]"),
            ({"ranges": {"age": [1, 2, 3]}}, "constraints.ranges.age"),
            ({"ranges": {"age": 5}}, "constraints.ranges.age"),
            ({"ranges": {"age": [float("nan"), 2]}}, "constraints.ranges.age[0]"),
            ({"ranges": {"age": [0, float("inf")]}}, "constraints.ranges.age[1]"),
            ({"ranges": {"age": [True, 2]}}, "constraints.ranges.age[0]"),
            ({"ranges": {"age": [0, 10**400]}}, "constraints.ranges.age[1]"),
            ({"relative": {"age": {"up_percent": 10**400}}}, "constraints.relative.age.up_percent"),
            ({"ranges": [1]}, "constraints.ranges"),
            ({"relative": {"age": {"upp": 1}}}, "constraints.relative.age.upp"),
            ({"relative": {"age": {"up": -1}}}, "constraints.relative.age.up"),
            ({"relative": {"age": {"up": "3"}}}, "constraints.relative.age.up"),
            ({"levels": {"age": "x"}}, "constraints.levels.age"),
            ({"forbidden": {"age": [["a"]]}}, "constraints.forbidden.age[0][1]"),
            ({"groups": ["a", "b"]}, "constraints.groups[0]"),
            ({"max_changes": 0}, "constraints.max_changes"),
            ({"max_changes": 1.5}, "constraints.max_changes"),
            ({"max_changes": True}, "constraints.max_changes"),
            ({"max_changes": "2"}, "constraints.max_changes"),
        ],
        ids=str,
    )
    def test_wrong_forms_name_their_path(self, data: dict[str, Any], path: str) -> None:
        with pytest.raises(InputError) as error:
            Constraints.read(data)
        assert error.value.path == path
        assert str(error.value).startswith(f"{path}: ")

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({"immutable": "sex"}, "constraints.immutable: must be a list, got 'sex'; write [\"sex\"]"),
            ({"immutable": 5}, "constraints.immutable: must be a list, got 5"),
            ({"ranges": {"age": "20"}}, "constraints.ranges.age: must be a list, got '20'"),
            ({"ranges": {"age": [[1], 2]}}, "constraints.ranges.age[0]: must be a number or a text, got [1]"),
            ({"relative": {"age": {"up": "3"}}}, "constraints.relative.age.up: must be a number, got '3'"),
        ],
        ids=str,
    )
    def test_what_is_asked_for_is_said_in_plain_words(self, data: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            Constraints.read(data)
        assert str(error.value) == message

    def test_nested_typo_has_its_fix(self) -> None:
        with pytest.raises(InputError, match=r"relative\.age\.upp: not a known key; did you mean 'up'\?"):
            Constraints.read({"relative": {"age": {"upp": 1}}})

    def test_all_wrong_forms_at_once(self) -> None:
        with pytest.raises(InputErrors) as error:
            Constraints.read({"immutabel": [], "max_changes": 0, "ranges": {"age": [1, "x"], "b": 3}})
        paths = [found.path for found in error.value.errors]
        assert sorted(paths) == ["constraints.immutabel", "constraints.max_changes", "constraints.ranges.b"]
        assert len(str(error.value).splitlines()) == 3


class TestFit:
    """Constraints that do not fit the features."""

    @pytest.mark.parametrize(
        ("constraints", "message"),
        [
            ({"ranges": {"agee": [1, 2]}}, "constraints.ranges.agee: not a feature; did you mean 'age'?"),
            ({"immutable": ["gendre"]}, "constraints.immutable.gendre: not a feature; did you mean 'gender'?"),
            (
                {"immutable": ["zzz"]},
                "constraints.immutable.zzz: not a feature; features: 'age', 'income', 'degree', 'gender', 'member'",
            ),
            ({"groups": [["age", "agee"]]}, "constraints.groups[0].agee: not a feature; did you mean 'age'?"),
            (
                {"groups": [["age"], []]},
                "constraints.groups[1]: names no feature; list the features that change together",
            ),
            ({"increasing": ["gender"]}, "constraints.increasing.gender: a category has no order; declare it:"),
            ({"decreasing": ["member"]}, "constraints.decreasing.member: a boolean has no order"),
            ({"ranges": {"gender": ["f", "m"]}}, "constraints.ranges.gender: a category has no order"),
            ({"ranges": {"age": [5, 1]}}, "constraints.ranges.age: low 5 exceeds high 1; give [low, high]"),
            ({"ranges": {"age": ["5", 10]}}, "constraints.ranges.age: '5' is not a number"),
            ({"ranges": {"degree": ["mastre", None]}}, "constraints.ranges.degree: 'mastre' is not a level; did you"),
            ({"ranges": {"degree": [1, None]}}, "constraints.ranges.degree: 1 is not a level"),
            ({"ranges": {"degree": ["master", "none"]}}, "constraints.ranges.degree: low 'master' exceeds high 'none'"),
            ({"relative": {"degree": {"up": 1}}}, "constraints.relative.degree: an ordinal is no number"),
            ({"levels": {"gender": ["f", "q"]}}, "constraints.levels.gender: 'q' is not a level; levels: 'f', 'm'"),
            ({"levels": {"gender": []}}, "constraints.levels.gender: no level is allowed; list at least one"),
            ({"levels": {"member": [1]}}, "constraints.levels.member: 1 is not a level"),
            ({"forbidden": {"gender": [["f", "q"]]}}, "constraints.forbidden.gender[0]: 'q' is not a level"),
            (
                {"groups": [["age", "income"], ["income", "degree"]]},
                "constraints.groups[1].income: already in groups[0]",
            ),
            ({"groups": [["age", "age"]]}, "constraints.groups[0].age: already in groups[0]; groups may not overlap"),
        ],
        ids=str,
    )
    def test_is_refused_with_the_nearest_fix(self, constraints: dict[str, Any], message: str) -> None:
        with pytest.raises(InputError) as error:
            bound_policy(constraints)
        assert message in str(error.value)
        assert "\n" not in str(error.value)

    def test_all_at_once(self) -> None:
        with pytest.raises(InputErrors) as error:
            bound_policy({"ranges": {"agee": [1, 2]}, "increasing": ["gender"], "levels": {"gender": ["q"]}})
        assert len(error.value.errors) == 3
        assert str(error.value).count("constraints.") == 3
        assert error.value.error_code == "INVALID_PARAMETER_VALUE"


def test_row_dicts_give_plain_values() -> None:
    assert row_dicts(PEOPLE)[2] == {"age": 30, "income": None, "degree": "master", "gender": "f", "member": False}
