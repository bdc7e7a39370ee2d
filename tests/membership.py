"""An attacker who wants to know whether a row was in the background, and how well that goes."""

import re
from collections import Counter

import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeClassifier

import mlflow_cf
from mlflow_cf.artifact.served import ServedModel

CANDIDATES = 100


def drawn(rows, seed):
    """Return rows of one distribution: numbers with many digits, and with few."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "income": rng.normal(30_000, 8_000, rows).round(2),
            "debt": rng.gamma(2.0, 3_000, rows).round(2),
            "age": rng.integers(18, 80, rows),
            "children": rng.integers(0, 4, rows),
        }
    )


BACKGROUND, OTHERS = drawn(800, 1), drawn(800, 2)


def good(rows):
    return (rows["income"] - rows["debt"] > 22_000).astype(int)


MODEL = DecisionTreeClassifier(max_depth=6, random_state=0).fit(BACKGROUND, good(BACKGROUND))
REJECTED = BACKGROUND[MODEL.predict(BACKGROUND) == 0].head(1)


def serving(**options):
    """Return the model as requests meet it."""
    return ServedModel(mlflow_cf.wrap(MODEL, BACKGROUND, **options))


def pinned(row, groups):
    """Return constraints that leave a single row; `groups`: as one combination, or value by value."""
    wanted = {"ranges": {name: [row[name]] * 2 for name in BACKGROUND}}
    return wanted | ({"groups": [list(BACKGROUND)]} if groups else {})


def advantage(model, *, groups, candidates=CANDIDATES):
    """Return the best true less false positive rate that any rule over replies reaches: their total variation."""
    rows = {True: favourable(BACKGROUND, candidates), False: favourable(OTHERS, candidates)}
    told = {member: Counter(signal(model, row, groups) for row in some) for member, some in rows.items()}
    return sum(abs(told[True][one] - told[False][one]) for one in {*told[True], *told[False]}) / (2 * candidates)


def favourable(rows, candidates):
    """Return so many candidates, as dicts, that the model favours and that share no number with the row asked about."""
    unlike = (rows != REJECTED.iloc[0]).all(axis=1)
    return rows[(MODEL.predict(rows) == 1) & unlike].head(candidates).to_dict("records")


def signal(model, row, groups):
    """Return what a reply tells: its status and words, without the numbers that the attacker sent."""
    options = {"constraints": pinned(row, groups), "max_evaluations": 100}
    (reply,) = model.predict(REJECTED, {"counterfactual": options}).to_dict("records")
    return reply["status"], re.sub("[0-9.]+", "", reply["reason"])
