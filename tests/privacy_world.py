"""A model with canaries in its background, and requests of every kind that could make it talk about them."""

import json
import logging
import re
import warnings
from contextlib import contextmanager
from functools import cache

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mlflow_cf
from mlflow_cf.artifact.served import ServedModel

ROWS = 240
JOBS = ("clerk", "gardener", "nurse", "plumber")
STREETS = tuple(f"{number} Willow Crescent" for number in range(101, 109))
CANARIES = {"income": 87654.3219, "age": 8191, "job": "falconer-4417", "street": "9 Canary Wharf", "member": "perhaps"}
MOST_EVALUATIONS = 1_500


def table(rows=ROWS, seed=11):
    """Return rows of four kinds of columns; the last one has a canary in each."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": rng.normal(30_000, 8_000, rows).round(4),
            "age": rng.integers(18, 80, rows),
            "job": rng.choice(JOBS, rows),
            "street": rng.choice(STREETS, rows),
            "member": rng.choice(["yes", "no"], rows),
        }
    )
    for name, value in CANARIES.items():
        frame.loc[rows - 1, name] = value
    return frame


TABLE = table()
ASKED = TABLE[TABLE["income"] < 25_000].head(6).reset_index(drop=True)


@cache
def fitted():
    encode = make_column_transformer(
        (StandardScaler(), ["income", "age"]), (OneHotEncoder(handle_unknown="ignore"), ["job", "street", "member"])
    )
    good = (TABLE["income"] + 4_000 * (TABLE["member"] == "yes") > 33_000).astype(int)
    return make_pipeline(encode, LogisticRegression()).fit(TABLE, good)


@cache
def served(sample="private"):
    """Return the model as requests meet it."""
    options = {"constraints": {"immutable": ["street"]}, "limits": {"max_evaluations": MOST_EVALUATIONS}}
    return ServedModel(mlflow_cf.wrap(fitted(), TABLE, privacy={"sample": sample}, **options))


def secrets():
    """Return every value of the background as a person could read it in a message."""
    numbers = {*TABLE["income"], CANARIES["age"]}
    texts = {*TABLE["job"], *TABLE["street"], "perhaps"}
    return {text for value in numbers for text in (repr(value), f"{value:,}", f"{value:,.6g}")} | texts


SECRETS = secrets()


def leaks(said, named):
    """Return the values of the background in what was said that nobody `named`."""
    words = set(re.findall(r"[0-9][0-9,.]*[0-9]", said))
    found = {secret for secret in SECRETS if secret in (words if secret[0].isdigit() and " " not in secret else said)}
    return {secret for secret in found if secret not in named and secret.replace(",", "") not in named}


@contextmanager
def listening():
    """Collect whatever is logged or warned of, at any level, in the text that `logging` makes of it."""
    heard = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(logging.Formatter().format(record))
    root = logging.getLogger("mlflow_cf")
    before, root.level = root.level, logging.DEBUG
    root.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield heard
        heard += [str(warning.message) for warning in warned]
    finally:
        root.removeHandler(handler)
        root.level = before


def ask(model, row, options):
    """Return everything that a request makes a model say beside counterfactuals, and the reply or None."""
    reply = None
    with listening() as heard:
        try:
            reply = model.predict(row, {"counterfactual": options}).to_dict("records")
        except mlflow_cf.InputError as error:
            heard.append(error.message)
        except Exception as error:
            raise AssertionError(f"{options} raised {type(error).__name__}") from error
    for one in reply or ():
        heard.append(json.dumps({key: value for key, value in one.items() if key != "counterfactuals"}))
    return "\n".join(heard), reply


def check(model, row, options):
    """Ask a model about one row of `ASKED`; what it says names nothing of the background that was not named.

    Returns the status, or "refused".
    """
    rows = ASKED.iloc[[row]]
    said, reply = ask(model, rows, options)
    named = json.dumps(options) + " ".join(map(str, rows.iloc[0]))
    found = leaks(said, named)
    assert not found, (found, said, options)
    return reply[0]["status"] if reply else "refused"


NAMES = st.sampled_from([*TABLE.columns, "incme", "jobs", "", "salary"])
WORDS = st.sampled_from(
    ["clerk", "clrk", "falconer", "falconer-441", "9 Canary Whar", "108 Willow", "perhap", "yes", "1", "", "2020-01-01"]
)
NUMBERS = st.one_of(st.integers(-5, 100), st.sampled_from([87654.3, 87654.32, 8190, 20_000, 40_000.5, 1e9, -1e9]))
VALUES = st.one_of(WORDS, NUMBERS, st.none(), st.booleans(), st.just([]))
ATOMS = st.builds(
    "{} {} {}".format,
    st.builds("{}.{}".format, st.sampled_from(["x", "x_cf"]), st.sampled_from([*TABLE.columns, "jobs"])),
    st.sampled_from(["==", "!=", "<", ">="]),
    st.one_of(WORDS.map(repr), NUMBERS.map(str), st.sampled_from(["x.income", "x.job", "x.street"])),
)
RULES = st.one_of(ATOMS, st.builds("IF {} THEN {}".format, ATOMS, ATOMS))


def _by_feature(values):
    return st.dictionaries(NAMES, values, max_size=3)


CONSTRAINTS = st.fixed_dictionaries(
    {},
    optional={
        "immutable": st.lists(NAMES, max_size=5),
        "increasing": st.lists(NAMES, max_size=2),
        "decreasing": st.lists(NAMES, max_size=2),
        "ranges": _by_feature(st.lists(VALUES, min_size=1, max_size=3)),
        "relative": _by_feature(st.dictionaries(st.sampled_from(["up", "down", "up_percent"]), VALUES, max_size=2)),
        "levels": _by_feature(st.lists(VALUES, max_size=3)),
        "forbidden": _by_feature(st.lists(st.lists(VALUES, min_size=2, max_size=2), max_size=2)),
        "groups": st.lists(st.lists(NAMES, max_size=3), max_size=2),
        "max_changes": st.sampled_from([0, 1, 2, -1, "1"]),
        "rules": st.lists(RULES, max_size=2),
        "rnges": st.just({}),
    },
)
EXPLAINERS = st.sampled_from(["geco", "exact", "nearest_row", "random_search", "gecko", {"name": "geco"}, {}, 3])
OPTIONS = st.fixed_dictionaries(
    {"constraints": CONSTRAINTS},
    optional={
        "explainer": EXPLAINERS,
        "target": st.sampled_from([1, 0, 2, "1", {"label": 1, "min_probability": 0.99999}, {"low": 3}]),
        "count": st.sampled_from([1, 2, 99]),
        "certify": st.booleans(),
        "explain": st.sampled_from(["all", "none", "some"]),
        "max_evaluations": st.sampled_from([1, 200, 10**9]),
    },
)
# constraints that are well-formed, so that reasons and advice are reached: most of the others end in an error
LAWFUL = st.fixed_dictionaries(
    {},
    optional={
        "immutable": st.lists(st.sampled_from(["income", "age", "job", "member"]), max_size=4, unique=True),
        "increasing": st.lists(st.sampled_from(["age", "income"]), max_size=1),
        "decreasing": st.just(["age"]),
        "ranges": st.fixed_dictionaries(
            {}, optional={"income": st.sampled_from([[None, 20_000], [87_000, 88_000], [5, 5]]), "age": st.just([0, 3])}
        ),
        "relative": st.just({"income": {"up": 10, "down_percent": 5}}),
        "levels": st.sampled_from([{"member": ["no"]}, {"job": ["clerk"]}]),
        "forbidden": st.just({"member": [["no", "yes"]]}),
        "groups": st.sampled_from([[["income", "age"]], [["income", "age", "job", "member"]], [["job", "member"]]]),
        "max_changes": st.sampled_from([1, 2]),
        "rules": st.lists(st.sampled_from(["x_cf.income <= x.income + 5", "x_cf.age == 30", "x_cf.job != 'clerk'"])),
    },
)
ANY = st.one_of(OPTIONS, st.fixed_dictionaries({"constraints": LAWFUL}, optional={"certify": st.booleans()}))
