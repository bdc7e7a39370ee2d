"""Small random problems: a background with every kind of column, rows that fit it badly, constraints, models."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
from checker import Checker
from hypothesis import strategies as st

from mlflow_cf.constraints import Constraints
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace
from mlflow_cf.goal import BoundTarget
from mlflow_cf.model.judge import Judge, OpenModel, Outcome
from mlflow_cf.options import WrapOptions
from mlflow_cf.policy import Distance, Target
from mlflow_cf.problem import BoundPolicy, Problem
from mlflow_cf.wrapping import assemble

GRADES = ("low", "mid", "high", "top")
ORDERS = {"grade": GRADES}
FEATURES: dict[str, dict[str, Any]] = {"grade": {"kind": "ordinal", "levels": list(GRADES)}}
AGES = (20, 21, 23, 26)
INCOMES = (0.0, 0.5, 1.0, 2.5)
JOBS = ("a", "b", "c")
ROOMS = (1, 2, 4)
NAMES = ("age", "income", "grade", "job", "member", "rooms")
ORDERED = ("age", "income", "grade", "rooms")


def background(seed: int, rows: int = 14) -> pd.DataFrame:
    """Return a background with missing values in four of its six columns; no column is constant."""
    rng = np.random.default_rng(seed)

    def draw(values: tuple[Any, ...], gaps: float) -> list[Any]:
        drawn = [values[i] for i in rng.integers(len(values), size=rows)]
        drawn = [None if rng.random() < gaps else value for value in drawn]
        return [values[0], values[1], *drawn[2:]]

    return pd.DataFrame(
        {
            "age": np.array(draw(AGES, 0), dtype="int64"),
            "income": np.array([np.nan if v is None else v for v in draw(INCOMES, 0.15)], dtype="float64"),
            "grade": pd.array(draw(GRADES[:3], 0.1), dtype="str"),
            "job": pd.Categorical(draw(JOBS, 0.15), categories=list(JOBS)),
            "member": np.array(draw((False, True), 0), dtype="bool"),
            "rooms": pd.array(draw(ROOMS, 0.15), dtype="Int64"),
        }
    )


def stepped(seed: int, rows: int = 14) -> pd.DataFrame:
    """Return a background whose numbers span their whole range: age 20 to 26, income 0 to 2.5, rooms 1 to 4."""
    frame = background(seed, rows)
    income, rooms = frame["income"].tolist(), frame["rooms"].tolist()
    return frame.assign(
        age=[20, 26, *frame["age"][2:]],
        income=np.array([0.0, 2.5, *income[2:]]),
        rooms=pd.array([1, 4, *rooms[2:]], dtype="Int64"),
    )


# What rows may hold beyond the background: off-grid and out-of-range numbers, unseen levels, missing values.
WIDE: dict[str, tuple[Any, ...]] = {
    "age": (*AGES, 22, 40),
    "income": (*INCOMES, 0.7, 9.5, None),
    "grade": (*GRADES, "odd", None),
    "job": (*JOBS, "z", None),
    "member": (False, True),
    "rooms": (*ROOMS, 3, 9, None),
}


def table(rows: list[dict[str, Any]], like: pd.DataFrame) -> pd.DataFrame:
    """Return rows as a table; dtypes like the background's, levels it lacks included."""
    frame = pd.DataFrame(rows, columns=list(like.columns), dtype=object)
    for name in like.columns:
        dtype = like[name].dtype
        frame[name] = frame[name].astype("str" if isinstance(dtype, pd.CategoricalDtype) else dtype)
    return frame


def row_dicts(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as dicts of plain values, None where missing."""
    records = frame.astype(object).to_dict("records")
    return [{str(key): None if pd.isna(value) else _plain(value) for key, value in r.items()} for r in records]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


wide_rows = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in WIDE.items()})


def _some(names: tuple[str, ...], most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), unique=True, max_size=most)


def _dict(values: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict(values))


def _interval(values: tuple[Any, ...]) -> st.SearchStrategy[list[Any]]:
    ends = st.tuples(*[st.sampled_from(range(len(values)))] * 2).map(sorted)
    closed = ends.map(lambda pair: [values[pair[0]], values[pair[1]]])
    return st.tuples(closed, st.booleans(), st.booleans()).map(
        lambda drawn: [None if drawn[1] else drawn[0][0], None if drawn[2] else drawn[0][1]]
    )


def _pairs(values: tuple[Any, ...]) -> st.SearchStrategy[list[list[Any]]]:
    return st.lists(st.tuples(st.sampled_from(values), st.sampled_from(values)).map(list), min_size=1, max_size=2)


def _subset(values: tuple[Any, ...]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), unique=True, min_size=1)


_limits = _dict(
    {
        "up": st.sampled_from([0, 1, 2.5]),
        "down": st.sampled_from([0, 1, 3]),
        "up_percent": st.sampled_from([0, 10, 50]),
        "down_percent": st.sampled_from([5, 100]),
    }
)
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "immutable": _some(NAMES, 2),
    "increasing": _some(ORDERED, 2),
    "decreasing": _some(ORDERED, 2),
    "ranges": _dict({"age": _interval(AGES), "income": _interval(INCOMES), "grade": _interval(GRADES)}),
    "relative": _dict({"age": _limits, "income": _limits, "rooms": _limits}),
    "levels": _dict({"job": _subset(JOBS), "member": _subset((False, True)), "rooms": _subset(ROOMS)}),
    "forbidden": _dict({"job": _pairs(JOBS), "grade": _pairs(GRADES), "age": _pairs(AGES)}),
    "groups": st.sampled_from([[], [["income", "rooms"]], [["job", "grade"]], [["age", "member"], ["job", "income"]]]),
    "max_changes": st.integers(1, 4),
}
constraint_dicts = st.fixed_dictionaries({}, optional=KEYS)


def space_of(frame: pd.DataFrame) -> FeatureSpace:
    return FeatureSpace.infer(frame, FEATURES)


def setting_of(
    frame: pd.DataFrame, constraints: Mapping[str, Any], distance: Distance | None = None, values: Any = "observed"
) -> BoundPolicy:
    space = space_of(frame)
    return BoundPolicy.build(space, space.encode(frame), Constraints.read(constraints), distance or Distance(), values)


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or value != value  # noqa: PLR0124  NaN alone differs from itself


@dataclass(frozen=True)
class Lottery:
    """A model whose label is the noise of the row's values: no structure to lean on, deterministic, threadsafe."""

    seed: int
    share: float = 0.2

    def chances(self, rows: pd.DataFrame) -> np.ndarray:
        columns = [[None if _missing(value) else value for value in rows[name].tolist()] for name in rows.columns]
        keys = (repr((self.seed, *line)).encode() for line in zip(*columns, strict=True))
        return np.array([crc32(key) / 2**32 for key in keys])

    def decide(self, rows: pd.DataFrame) -> np.ndarray:
        return np.where(self.chances(rows) < self.share, "yes", "no")


def lottery(seed: int, share: float = 0.2) -> OpenModel:
    """Return a labels-only model with noise for a decision."""
    return OpenModel("test", ("no", "yes"), Lottery(seed, share).decide)


def explained(
    model: OpenModel, frame: pd.DataFrame, constraints: Mapping[str, Any] | None = None, **options: Any
) -> ExplainedModel:
    return assemble(
        model, frame, None, WrapOptions(target="yes", constraints=constraints, features=FEATURES, **options)
    )


def bind(
    bound_policy: BoundPolicy, query: pd.DataFrame, wrapped: ExplainedModel | None = None, count: int = 1
) -> Problem:
    """Return the search problem of a one-row table, as a request would bind it; without a model none may be asked."""
    space = bound_policy.space.covering(query)
    judge = Judge(OpenModel("test", ("no", "yes"), _nobody), argmax_decides=False) if wrapped is None else wrapped.judge
    own = -1 if wrapped is None else int(judge.verdict(query).codes[0])
    target = BoundTarget(Target(label="yes") if wrapped is None else wrapped.policy.target, judge.model, own)
    said = Outcome(np.zeros(len(bound_policy.background), dtype=np.intp)) if wrapped is None else wrapped.outcome
    return bound_policy.bind(
        space.encode(query)[0],
        space=space,
        count=count,
        rate=lambda Z: target.rate(judge.outcome(space.decode(Z))),
        rate_background=lambda: target.rate(said),
    )


def _nobody(rows: pd.DataFrame) -> np.ndarray:
    raise AssertionError(rows)


def problem_of(wrapped: ExplainedModel, query: pd.DataFrame, count: int = 1) -> Problem:
    return bind(wrapped.bound_policy, query, wrapped, count)


def checker_of(
    model: OpenModel, frame: pd.DataFrame, *constraints: Mapping[str, Any], values: str = "observed"
) -> Checker:
    return Checker(model.decide, frame, constraints, "yes", ORDERS, values)
