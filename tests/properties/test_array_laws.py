"""Replies, tables and typed columns of answers in arrays are those of the explanations, to the last digit."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import many

from mlflow_cf.artifact.publish.signature import signature_of
from mlflow_cf.features import FeatureSpace
from mlflow_cf.files.answers import Lines, label_type
from mlflow_cf.files.typed import typed_replies
from mlflow_cf.model.judge import Label, OpenModel
from mlflow_cf.words.arrays import AnswerArrays
from mlflow_cf.words.changes import changes_between
from mlflow_cf.words.explanations import Explanations, LazyExplanations
from mlflow_cf.words.result import Counterfactual, Explanation, Survived, counterfactual_table
from mlflow_cf.words.sentences import Speaker

LABELS: dict[str, tuple[Label, ...]] = {
    "whole": (0, 1),
    "text": ("bad", "good"),
    "truth": (False, True),
    "mixed": (0, "good"),
    "value": (),
}
OVERRIDES: dict[str, dict[str, Any]] = {
    "rank": {"kind": "ordinal", "levels": ["low", "mid", "high"]},
    "price": {"unit": "$", "decimals": 1},
    "day": {"kind": "date"},
}


@cache
def space() -> FeatureSpace:
    """Return features of every kind, with and without missing values."""
    moments = pd.to_datetime(
        ["2020-01-02", "2021-03-04 05:06:07.000008", "2059-01-01", None, "1969-12-31"], format="ISO8601"
    )
    frame = pd.DataFrame(
        {
            "real": [0.1, 2.5, -3.25, 1e9, 7.0],
            "price": pd.Series([0.0, 0.1, 2.0, 1234.56, np.nan], dtype="float32"),
            "age": [20, 30, 41, 1234567, -1],
            "gaps": [1.0, 2.0, np.nan, 40_000.0, 5.0],
            "huge": [1.0, 1e30, -(2.0**53) - 2, 2.0**63, 0.0],
            "nullable": pd.array([1, None, 3, 2**40, 5], dtype="Int64"),
            "flag": [True, False, True, False, True],
            "maybe": pd.array([True, None, False, True, True], dtype="boolean"),
            "rank": pd.Categorical(["low", "high", "mid", None, "low"], ["low", "mid", "high"], ordered=True),
            "job": pd.Series(["cook", "clerk\nat sea", None, "ü", "cook"], dtype="str"),
            "mixed": pd.Series([1, "a", 0.5, "a", None], dtype=object),
            "sizes": pd.Categorical([1, 2, 3, 1, 2]),
            "day": pd.Series(["2020-01-02", "2021-03-04", None, "2022-05-06", "2020-01-02"], dtype=object),
            "moment": moments.as_unit("us"),
            "zoned": moments.as_unit("us").tz_localize("UTC").tz_convert("Europe/Berlin"),
        }
    )
    return FeatureSpace.infer(frame, OVERRIDES)


@cache
def domains() -> list[list[float]]:
    """Return codes of each feature: those of its domain, and a missing one where it can be."""
    codes: list[list[float]] = []
    for feature in space().features:
        known = list(feature.values) if feature.numeric else [float(code) for code in range(len(feature.levels))]
        more = [0.0, -0.0, 41.0] if feature.kind in ("real", "integer") else []
        if feature.kind == "date":
            more = [float(np.nextafter(known[0], np.inf))]  # no microsecond later
        codes.append([*known, *more, *([np.nan] if feature.missing else [])])
    return codes


@st.composite
def rows_of_codes(draw: st.DrawFn, count: int, like: np.ndarray | None = None) -> np.ndarray:
    """Return codes (count, d), some of them those of other rows."""
    rows = [[draw(st.sampled_from(some)) for some in domains()] for _ in range(count)]
    codes = np.array(rows, dtype=np.float64).reshape(count, len(domains()))
    if like is None:
        return codes
    kept = [[draw(st.integers(0, 3)) > 0 for _ in domains()] for _ in range(count)]
    return np.where(np.array(kept, dtype=bool).reshape(codes.shape) | (like == codes), like, codes)


survivals = st.builds(Survived, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 30), st.just(30))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[LazyExplanations, tuple[Label, ...]]:
    """Return explanations of which arrays hold some, and the labels of the model."""
    labels = LABELS[draw(st.sampled_from(sorted(LABELS)))]
    label = st.sampled_from(labels) if labels else st.floats(-1e6, 1e6)
    likely = st.none() if not labels else st.none() | st.floats(0, 1)
    counts = draw(st.lists(st.none() | st.integers(0, 2), min_size=1, max_size=6))  # None: no row of arrays
    speaker = Speaker(
        draw(st.sampled_from(["en", "de"])),
        {feature.name: feature for feature in space().features},
        draw(st.sampled_from(["", "the loan\nis approved"])),
    )
    bare = Explanation(draw(st.sampled_from(["already", "skipped"])), "", None, None, explainer="geco", seed=7)
    rows = np.flatnonzero([count is not None for count in counts])
    owner = np.repeat(np.arange(len(rows)), [counts[row] or 0 for row in rows])
    before = draw(rows_of_codes(len(rows)))[owner]
    probabilities = [draw(likely) for _ in rows]
    found = [draw(likely) for _ in owner]
    distance = np.array([draw(st.floats(0, 2)) for _ in owner])
    proofs = [draw(st.sampled_from(["optimal", "bounded", "none"])) for _ in owner]
    bounds = np.array([np.nan if proof == "none" else far / 2 for proof, far in zip(proofs, distance, strict=True)])
    arrays = AnswerArrays(
        rows=rows,
        predictions=[draw(label | st.none() if not labels else label) for _ in rows],
        probabilities=np.array(probabilities, dtype=np.float64),
        evaluations=np.array([draw(st.integers(0, 99)) for _ in rows], dtype=np.intp),
        owner=owner,
        before=before,
        codes=draw(rows_of_codes(len(owner), before)),
        outcomes=[draw(label) for _ in owner],
        likely=np.array(found, dtype=np.float64),
        distance=distance,
        proofs=proofs,
        bounds=bounds,
        survived=[draw(st.none() | survivals) for _ in owner],
        bare=bare,
        space=space(),
        speaker=speaker,
    )
    others = {row: draw(explanations(label)) for row, count in enumerate(counts) if count is None}
    made = {int(row): explanation(arrays, at) for at, row in enumerate(rows)} | others
    return LazyExplanations(made.__getitem__, len(counts), lambda: arrays), labels


@st.composite
def explanations(draw: st.DrawFn, label: st.SearchStrategy[Label]) -> Explanation:
    """Return an explanation that no array holds."""
    status: Any = draw(st.sampled_from(["found", "infeasible", "not_found", "budget", "busy", "invalid"]))
    if status != "found":
        return Explanation(status, "why not", None if status == "invalid" else draw(label), None, seed=7)
    counterfactuals = []
    for _ in range(draw(st.integers(1, 2))):
        (codes,) = draw(rows_of_codes(1))
        answer = Counterfactual(space().values(codes), (), draw(label), None, 0.5, 0, "none", text="told")
        counterfactuals.append(replace(answer, region_reason=draw(st.sampled_from(["", "none is known"]))))
    return Explanation("found", "", draw(label), None, tuple(counterfactuals), 9, "geco", 7)


def explanation(arrays: AnswerArrays, at: int) -> Explanation:
    """Return what is said of one row of arrays, as a search of it alone would say it."""
    found, speaker = [], arrays.speaker
    for place in np.flatnonzero(arrays.owner == at).tolist():
        old = space().values(arrays.before[place])
        new = space().values_beside(arrays.codes[place], arrays.before[place], old)
        changes, outcome = changes_between(old, new), arrays.outcomes[place]
        likely, bound = (None if np.isnan(one[place]) else float(one[place]) for one in (arrays.likely, arrays.bounds))
        proof: Any = arrays.proofs[place]
        far, text, survived = float(arrays.distance[place]), speaker.answer(changes, outcome), arrays.survived[place]
        if survived is not None:
            text = f"{text}\n{speaker.survives(survived)}"
        one = Counterfactual(new, changes, outcome, likely, far, len(changes), proof, bound, text=text)
        found.append(replace(one, survival=survived))
    likely = arrays.probabilities[at]
    return replace(
        arrays.bare,
        status="found" if found else arrays.bare.status,
        prediction=arrays.predictions[at],
        probability=None if np.isnan(likely) else float(likely),
        counterfactuals=tuple(found),
        evaluations=int(arrays.evaluations[at]),
    )


def both(world: LazyExplanations) -> tuple[Explanations, Explanations]:
    """Return the answers as arrays, and all of them as objects."""
    index = pd.Index([f"row {at}" for at in range(len(world))])
    return Explanations(world, index, space()), Explanations(tuple(world), index, space())


def text(values: Any) -> str:
    """Return values with all digits, -0.0 unlike 0.0, and the types of numbers."""
    return json.dumps(values, allow_nan=False)


@settings(max_examples=many(60, 2_000))
@given(worlds())
def test_replies_are_those_of_the_explanations(world: tuple[LazyExplanations, tuple[Label, ...]]) -> None:
    lazy, plain = both(world[0])
    records = lazy.to_records()
    assert text(records.to_dict("records")) == text(plain.to_dict()["predictions"])
    assert (records.index == lazy.index).all()
    assert set(records.dtypes) == {np.dtype(object)}
    assert lazy.statuses == [one.status for one in plain]
    assert lazy.summary == plain.summary
    parts = [part for reply in records.to_numpy().ravel() for part in changeable(reply)]
    assert len({id(part) for part in parts}) == len(parts)  # who changes one, changes no other


def changeable(value: Any) -> list[Any]:
    """Return all lists and objects of a value."""
    if isinstance(value, dict):
        return [value, *(part for one in value.values() for part in changeable(one))]
    return [value, *(part for one in value for part in changeable(one))] if isinstance(value, list) else []


@settings(max_examples=many(60, 2_000))
@given(worlds(), st.data())
def test_tables_are_those_of_the_explanations(world: tuple[LazyExplanations, tuple[Label, ...]], data: Any) -> None:
    lazy, plain = both(world[0])
    expected = counterfactual_table(space(), [one.counterfactuals for one in plain])
    found = lazy.to_frame()
    pd.testing.assert_frame_equal(found.reset_index(drop=True), expected, check_exact=True)
    assert found.index.tolist() == [
        label for label, one in zip(lazy.index, plain, strict=True) for _ in one.counterfactuals
    ]
    pd.testing.assert_frame_equal(found, plain.to_frame(), check_exact=True)
    places = data.draw(st.lists(st.integers(0, len(lazy) - 1)))
    pd.testing.assert_frame_equal(lazy.to_table(places), plain.to_table(places), check_exact=True)


@settings(max_examples=many(60, 2_000))
@given(worlds(), st.data())
def test_lines_of_files_are_those_of_the_explanations(
    world: tuple[LazyExplanations, tuple[Label, ...]], data: Any
) -> None:
    lazy, plain = both(world[0])
    explained: Any = SimpleNamespace(space=space(), model=SimpleNamespace(classes=world[1]))
    lines = Lines.of(explained, {}, pa.field("key", pa.string()))
    places = data.draw(st.lists(st.integers(0, len(lazy) - 1)))
    keys = pa.chunked_array([[f"k{at}" for at in range(len(lazy))]])
    found = lines.table(lazy.coded(), places, 1_000, keys)
    found.validate(full=True)
    assert found.equals(lines.table(plain.coded(), places, 1_000, keys))
    assert text(read(found)) == text(told(plain, places, world[1]))


def read(table: pa.Table) -> list[dict[str, Any]]:
    """Return the lines of a file, moments as text."""
    return json.loads(json.dumps(table.to_pylist(), default=lambda moment: moment.isoformat()))


def told(answers: Explanations, places: Sequence[int], labels: tuple[Label, ...]) -> list[dict[str, Any]]:
    """Return what the lines of a file are to say, line by line."""
    lines: list[dict[str, Any]] = []
    for place in places:
        one = answers[place]
        head = {"key": f"k{place}", "row": 1_000 + place, "status": one.status, "reason": one.reason}
        for number, found in enumerate(one.counterfactuals or (None,), start=1):
            row = {feature.name: None if found is None else held(feature, found) for feature in space().features}
            facts = dict.fromkeys(("counterfactual", "prediction", "probability", "distance", "n_changed", "proof"))
            if found is not None:
                facts = {"counterfactual": number} | {key: getattr(found, key) for key in list(facts)[1:]}
                if label_type(labels) == pa.string():
                    facts["prediction"] = str(found.prediction)
            lines.append(head | row | facts)
    return lines


def held(feature: Any, found: Counterfactual) -> Any:
    value = found.row[feature.name]
    if value is None:
        return None
    if feature.name in ("moment", "zoned"):
        zone = "Europe/Berlin" if feature.name == "zoned" else None
        moment = pd.Timestamp(value)
        return moment.isoformat() if zone is None else moment.tz_convert(zone).isoformat()
    if feature.name == "mixed":
        return value if isinstance(value, str) else repr(value)
    return float(value) if feature.kind == "real" or feature.name in ("gaps", "huge") else value


@settings(max_examples=many(60, 2_000))
@given(worlds())
def test_typed_columns_are_those_of_the_explanations(world: tuple[LazyExplanations, tuple[Label, ...]]) -> None:
    pytest.importorskip("pyspark")
    reply_columns = import_module("mlflow_cf.spark.columns").reply_columns
    model = OpenModel("callable", world[1], lambda rows: np.zeros(len(rows)))
    kinds = {name: kind for name, (_, kind) in reply_columns(signature_of(space(), model).outputs).items()}
    lazy, plain = both(world[0])
    found, expected = typed_replies(lazy, kinds), typed_replies(plain, kinds)
    for name, column in found.items():
        column.validate(full=True)
        assert column.type == kinds[name]
        assert text(column.to_pylist()) == text(expected[name].to_pylist()), name
