"""Random PLAF rules that are well typed, as text, and a table with every kind of column for them to speak of."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from properties.interpreter import Table
from worlds import table

from mlflow_cf.constraints import Constraints, Rule, compile_rules
from mlflow_cf.constraints.rules import recode
from mlflow_cf.features import FeatureSpace

RANKS = ("low", "mid", "high", "top")
FEATURES: dict[str, dict[str, Any]] = {
    name: {"kind": "ordinal", "levels": list(RANKS)} for name in ("grade", "final grade")
}
DAY = pd.Timestamp("2024-03-01")
DAYS = [DAY + pd.Timedelta(days=n) for n in (0, 1, 30, 60)]
MOMENTS = [day.tz_localize("UTC") + pd.Timedelta(hours=12) for day in DAYS]

# What a row may hold: values of the background, then others; None where a value may be missing.
KNOWN: dict[str, tuple[Any, ...]] = {
    "age": (20, 21, 23, 26),
    "income": (0.0, 0.5, 1.0, -2.5),
    "rooms": (1, 2, 4),
    "grade": RANKS[:3],
    "final grade": RANKS[:3],
    "job": ("a", "b", "c"),
    "home": ("b", "c", "d"),
    "member": (False, True),
    "if": (False, True),
    "start": tuple(DAYS),
    "end": tuple(MOMENTS),
}
ODD: dict[str, tuple[Any, ...]] = {
    "age": (22, 40),
    "income": (0.7, 9.5, None),
    "rooms": (3, 9, None),
    "grade": ("top", "odd", None),
    "final grade": ("odd", "even", None),
    "job": ("d", "z", None),
    "home": ("a", "z", None),
    "if": (None,),
    "start": (DAY - pd.Timedelta(days=400), None),
    "end": (DAYS[1].tz_localize("Europe/Berlin"), None),
}
TABLE = Table(
    levels={
        **dict.fromkeys(("grade", "final grade"), RANKS),
        **{name: KNOWN[name] for name in ("job", "home", "member", "if")},
    },
    dates=("start", "end"),
)


def background(rows: int = 16) -> pd.DataFrame:
    """Return a background in which every known value occurs."""
    frame = pd.DataFrame({name: [values[i % len(values)] for i in range(rows)] for name, values in KNOWN.items()})
    frame["job"] = pd.Categorical(frame["job"])
    frame["rooms"] = frame["rooms"].astype("Int64")
    frame["if"] = frame["if"].astype("boolean")
    frame["end"] = frame["end"].astype("datetime64[us, Europe/Berlin]")
    return frame


def draw_rows(seed: int, count: int) -> list[dict[str, Any]]:
    """Return a query row and rows that mix its values with others, known, odd and missing."""
    rng = np.random.default_rng(seed)

    def draw(name: str) -> Any:
        values = KNOWN[name] + (ODD.get(name, ()) if rng.random() < 0.5 else ())
        return values[rng.integers(len(values))]

    query = {name: draw(name) for name in KNOWN}
    rows = [{name: query[name] if rng.random() < 0.5 else draw(name) for name in KNOWN} for _ in range(count)]
    return [query, *rows]


def compiled(rules: Sequence[str], space: FeatureSpace) -> tuple[Rule, ...]:
    """Return rules as compiled one by one; warnings about unknown levels are expected here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* is not a level of ", UserWarning)
        return tuple(rule for text in rules for rule in compile_rules(Constraints(rules=(text,)), space))


def coded(
    rules: Sequence[str], rows: Sequence[Mapping[str, Any]], frame: pd.DataFrame
) -> tuple[tuple[Rule, ...], np.ndarray]:
    """Return rules that know the levels of `rows`, and the codes of the rows."""
    space = FeatureSpace.infer(frame, FEATURES)
    raw = table([dict(row) for row in rows], frame)
    wide = space.covering(raw)
    return tuple(recode(rule, wide.features) for rule in compiled(rules, space)), wide.encode(raw)


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def _refs(names: Sequence[str]) -> st.SearchStrategy[str]:
    texts = [f"{side}.{_quoted(name)}" for name in names for side in ("x", "x_cf", "x_cf")]
    return st.sampled_from(texts)


def _between(left: st.SearchStrategy[str], signs: Sequence[str], right: st.SearchStrategy[str]) -> Any:
    """Comparisons, either way round, with or without spaces."""
    return st.builds(
        lambda a, sign, b, turn, space: f"{b}{space}{sign}{space}{a}" if turn else f"{a}{space}{sign}{space}{b}",
        left, st.sampled_from(signs), right, st.booleans(), st.sampled_from([" ", "", "\n "]),
    )  # fmt: skip


ANY = ("=", "==", "!=", "<", "<=", ">", ">=")
EQUAL = ("=", "==", "!=")


def number_texts(names: Sequence[str]) -> st.SearchStrategy[str]:
    constants = st.sampled_from(["0", "1", "2", ".5", "2.5", "1e1", "20", "21.", "23", "3e-1"])
    return st.recursive(
        constants | _refs(names),
        lambda inner: st.one_of(
            st.builds(lambda a, sign, b: f"{a} {sign} {b}", inner, st.sampled_from("+-*/"), inner),
            inner.map("({})".format),
            inner.map("-{}".format),
        ),
        max_leaves=5,
    )


def _date_atoms(names: Sequence[str]) -> st.SearchStrategy[str]:
    refs, counts = _refs(names), st.sampled_from(["0", "1", "30", "0.5", "(2 * 15)", "-30"])
    moved = st.builds(lambda ref, sign, n: f"{ref} {sign} {n}", refs, st.sampled_from("+-"), counts)
    dates = refs | moved | st.builds("{1} + {0}".format, refs, counts)
    written = st.sampled_from(["'2024-03-02'", '"2024-03-31T12:00"', "'2024-03-01 12:00+01:00'", "'1999-12-31'"])
    return st.one_of(
        _between(dates, ANY, dates),
        _between(dates, ANY, written),
        _between(st.builds("({} - {})".format, refs, refs), ANY, counts),
    )


def comparisons(
    *,
    numbers: Sequence[str],
    ordinals: Sequence[str] = (),
    categories: Sequence[str] = (),
    booleans: Sequence[str] = (),
    dates: Sequence[str] = (),
) -> st.SearchStrategy[str]:
    """Return comparisons whose sides fit each other."""
    kinds = [_between(number_texts(numbers), ANY, number_texts(numbers)), _between(_refs(numbers), ANY, _refs(numbers))]
    kinds.append(st.sampled_from(["1 = 2", "2 > 1", "'a' = 'b'", '"a" != "b"', "true = TRUE", "True != false"]))
    if ordinals:
        ranks = st.sampled_from([f"'{level}'" for level in (*RANKS, "odd")])
        kinds += [_between(_refs(ordinals), ANY, _refs(ordinals)), _between(_refs(ordinals), ANY, ranks)]
    if categories:
        words = st.sampled_from([f'"{level}"' for level in ("a", "b", "c", "d", "zz")])
        kinds += [_between(_refs(categories), EQUAL, _refs(categories)), _between(_refs(categories), EQUAL, words)]
    if booleans:
        truths = st.sampled_from(["true", "FALSE", "True", "false"])
        kinds += [_between(_refs(booleans), EQUAL, _refs(booleans)), _between(_refs(booleans), EQUAL, truths)]
    if dates:
        kinds.append(_date_atoms(dates))
    return st.one_of(kinds)


@st.composite
def rule_texts(draw: Any, atoms: st.SearchStrategy[str]) -> str:
    """Draw one rule: spelled in any case, with comments, `&&` and line ends where they may stand."""
    when = draw(st.lists(atoms, max_size=3))
    space = draw(st.sampled_from([" ", "  ", "\n", " # 'why' not\n"]))
    text = draw(atoms)
    if when:
        both = draw(st.sampled_from([" and ", " AND ", "&&", " && "]))
        word, then = draw(st.sampled_from([("IF", "THEN"), ("if", "then"), ("If", "tHen")]))
        text = f"{word}{space}{both.join(when)}{space}{then} {text}"
    lead = draw(st.sampled_from(["", "", "PLAF ", "plaf\n"]))
    return lead + text + draw(st.sampled_from(["", "", ";", " ; ;", " # done"]))


def all_rules() -> st.SearchStrategy[str]:
    """Rules over every column of the table here."""
    atoms = comparisons(
        numbers=("age", "income", "rooms"),
        ordinals=("grade", "final grade"),
        categories=("job", "home"),
        booleans=("member", "if"),
        dates=("start", "end"),
    )
    return rule_texts(atoms)
