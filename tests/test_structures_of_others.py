"""Structures and flavors of other packages: four questions are enough, and what stands in the way is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf import CEOCL, Exact, GeCo
from mlflow_cf.errors import InputError
from mlflow_cf.model import OpenModel, flavors
from mlflow_cf.model.flavors import open_native
from mlflow_cf.model.versions import open_versions
from mlflow_cf.options import WrapOptions
from mlflow_cf.structures.capabilities import lacking
from mlflow_cf.structures.joined import Joined
from mlflow_cf.structures.layers.columns import NotOpenedError
from mlflow_cf.structures.structure import Link, Structure
from mlflow_cf.wrapping import OtherModels, assemble

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"age": RNG.integers(20, 60, 80), "income": RNG.integers(0, 40, 80)})
WANTED = (TABLE["income"] > 20).astype(int)
NAMES = [name for name in vars(Structure) if not name.startswith("_")]


class Earlier:
    """The structure of a model without some of its members."""

    def __init__(self, whole: Any, without: set[str]) -> None:
        for name in set(NAMES) - without:
            setattr(self, name, getattr(whole, name))


def opened(change: Callable[[Any], Any]) -> OpenModel:
    model = open_native(LogisticRegression().fit(TABLE, WANTED), rows=TABLE)
    compiled: Any = model.compile
    return replace(model, compile=lambda space, rows: change(compiled(space, rows)))


def note(change: Callable[[Any], Any]) -> str:
    return assemble(opened(change), TABLE, None, WrapOptions()).opened.note


@pytest.mark.parametrize("without", [{"outputs"}, {"sweep", "bounds"}, set(NAMES) - {"sums", "encode"}])
def test_members_that_are_missing_are_named(without: set[str]) -> None:
    lost = [name for name in NAMES if name in without]
    expected = f"not opened, its structure lacks {', '.join(lost)}: it was written for another mlflow-cf"
    assert expected in note(lambda whole: Earlier(whole, without))


def test_parameters_that_are_missing_are_named() -> None:
    def older(whole: Any) -> Any:
        earlier: Any = Earlier(whole, {"sweep"})

        def sweep(rows: Any, values: Any) -> Any:
            return whole.sweep(rows, values)

        earlier.sweep = sweep
        return earlier

    assert "its structure lacks the parameter 'wanted' of sweep" in note(older)


def no_weights(values: Any, dimension: Any) -> Any:
    return values[dimension]


def test_parameters_of_capabilities_are_named_too() -> None:
    def older(whole: Any) -> Any:
        earlier: Any = Earlier(whole, set())
        earlier.product = no_weights
        return earlier

    assert "its structure lacks the parameter 'weights' of product" in note(older)


def test_an_error_says_which_name_there_was_not() -> None:
    def raising(whole: Any) -> Any:
        return whole.layers_of_before

    assert "opening it failed (AttributeError: " in note(raising)
    assert "has no layers_of_before)" in note(raising)

    def values(whole: Any) -> Any:
        raise ValueError(f"{TABLE['income'].iloc[0]} is not known")

    assert "opening it failed (ValueError)" in note(values)  # its message may quote values


@pytest.mark.parametrize("model", [LogisticRegression(), DecisionTreeClassifier(max_depth=3)], ids=["linear", "tree"])
def test_ours_lack_nothing(model: Any) -> None:
    explained = mlflow_cf.wrap(model.fit(TABLE, WANTED), TABLE)
    assert explained.opened.structure is not None
    assert lacking(explained.opened.structure) == []


def test_a_flavor_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("scorecard", "mlflow_cf.judge_of_before", flavors.ENTRY_POINTS)
    monkeypatch.setattr(flavors, "entry_points", lambda **_: [point])
    with pytest.raises(InputError) as error:
        mlflow_cf.wrap(object(), TABLE)
    assert error.value.message.startswith(
        "model: the module of the installed flavor 'scorecard' cannot be imported "
        "(No module named 'mlflow_cf.judge_of_before'); install what it needs"
    )


class FourQuestions:
    """A linear model of two classes over numbers that answers the four questions and nothing else."""

    def __init__(self, weights: Any, bias: float) -> None:
        self.weights, self.bias = np.asarray(weights, dtype=float), bias

    @property
    def kind(self) -> str:
        return "points per unit"

    @property
    def link(self) -> Link:
        return "sigmoid"

    @property
    def outputs(self) -> int:
        return 1

    def encode(self, column: int, codes: Any) -> Any:
        del column
        return codes

    def sums(self, rows: Any) -> Any:
        return (np.column_stack(rows) @ self.weights + self.bias)[:, None]

    def restrict(self, row: Any, changed: Any) -> FourQuestions:
        fixed = [column for column in range(len(row)) if column not in changed]
        bias = self.bias + float(sum(row[column] * self.weights[column] for column in fixed))
        return FourQuestions(self.weights[list(changed)], bias)

    def sweep(self, rows: Any, values: Any, wanted: Any = None) -> Any:
        del wanted

        def swept(column: int, some: Any) -> Any:
            change = (some[None] - rows[column][:, None]) * self.weights[column]
            return (self.sums(rows) + change)[:, :, None]

        return [None if some is None else swept(column, some) for column, some in enumerate(values)]

    def bounds(self, allowed: Any) -> Any:
        added = [some * weight for some, weight in zip(allowed, self.weights, strict=True)]
        slack = 1e-9 * (1 + abs(self.bias) + sum(np.abs(some).max() for some in added))
        low, high = (self.bias + sum(map(end, added)) for end in (np.min, np.max))
        return np.array([low - slack]), np.array([high + slack])


MANY = TABLE.assign(debt=RNG.integers(0, 30, 80), rate=RNG.normal(5, 2, 80).round(1), years=RNG.integers(0, 10, 80))
LINEAR = LogisticRegression(max_iter=1000).fit(MANY, MANY["income"] + MANY["years"] * 2 - MANY["debt"] > 15)
REFUSED = MANY[LINEAR.predict(MANY) == 0].head(8)


def explained_by(structure: Any, explainer: Any, **given: Any) -> mlflow_cf.ExplainedModel:
    model = open_native(LINEAR, rows=MANY)
    if structure is not None:
        model = replace(model, compile=lambda *_: structure)
    options = WrapOptions(explainer=explainer, **given)
    return assemble(model, MANY, None, options, OtherModels(open_versions(options.versions, MANY)))


THEIRS = FourQuestions(LINEAR.coef_[0], float(LINEAR.intercept_[0]))


def answers(explained: mlflow_cf.ExplainedModel, **options: Any) -> list[Any]:
    found: list[Any] = []
    for one in explained.explain(REFUSED, **options):
        assert one.status == "found"
        found += [(f.distance, f.proof, f.bound, [(c.feature, c.new) for c in f.changes]) for f in one.counterfactuals]
    return found


@pytest.mark.parametrize("explainer", [GeCo(), Exact(), CEOCL(engine="best_first")], ids=["geco", "exact", "ceocl"])
@pytest.mark.parametrize("options", [{}, {"count": 3}, {"count": 3, "diversity": "near"}], ids=["one", "sets", "near"])
def test_four_questions_are_enough(explainer: Any, options: Any) -> None:
    ours, theirs = (explained_by(structure, explainer) for structure in (None, THEIRS))
    assert theirs.opened.structure is THEIRS
    assert answers(theirs, **options) == answers(ours, **options)
    certified = answers(theirs, certify=True, **options)
    assert certified == answers(ours, certify=True, **options)
    assert {proof for _, proof, _, _ in certified} == {"optimal"}


def test_four_questions_are_enough_beside_other_models() -> None:
    """Joined with trees, which offer everything, and with layers."""
    columns = ["income", "years"]
    trees = DecisionTreeClassifier(max_depth=3, random_state=0).fit(MANY, MANY["income"] + MANY["years"] > 20)
    other = LogisticRegression(max_iter=1000).fit(MANY, MANY[columns].sum(axis=1) > 15)
    for beside in (trees, other):
        ours, theirs = (explained_by(structure, GeCo(), robust_to=[beside]) for structure in (None, THEIRS))
        assert answers(theirs, certify=True) == answers(ours, certify=True)


def test_what_keeps_it_out_of_programs_is_named() -> None:
    theirs = explained_by(THEIRS, GeCo())
    assert theirs.opened.note.endswith("its structure has no `parts`, so no program can express it")
    assert theirs.opened.note in theirs.describe()["structure"]
    with pytest.raises(InputError, match=r"a program cannot express points per unit, which is not known as one sum"):
        explained_by(THEIRS, CEOCL(engine="milp"))
    both = Joined.of([THEIRS, THEIRS], len(theirs.space))
    with pytest.raises(NotOpenedError, match="points per unit"):
        both.parts()


def test_continuous_numbers_are_found_alike_and_what_keeps_them_from_proofs_is_named() -> None:
    ours, theirs = (explained_by(structure, GeCo(), values="continuous") for structure in (None, THEIRS))
    assert answers(theirs) == answers(ours)
    for one in theirs.explain(REFUSED, certify=True):
        assert one.reason.endswith(
            "not searched exactly (points per unit, which is not known as one sum of trees or layers)"
        )
