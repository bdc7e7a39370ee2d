"""Warnings that one thread does not want to hear are heard by all others, and by itself afterwards."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import mlflow_cf
from mlflow_cf.quiet import quietly


def test_only_the_categories_that_are_named_are_not_heard() -> None:
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with quietly(RuntimeWarning):
            warnings.warn("first", UserWarning, stacklevel=1)
            warnings.warn("second", RuntimeWarning, stacklevel=1)
            with quietly(UserWarning):
                warnings.warn("third", UserWarning, stacklevel=1)
                warnings.warn("fourth", RuntimeWarning, stacklevel=1)
        warnings.warn("fifth", RuntimeWarning, stacklevel=1)
    assert [str(one.message) for one in heard] == ["first", "fifth"]


def test_other_threads_hear_theirs() -> None:
    silent, done = threading.Event(), threading.Event()

    def hold() -> None:
        with quietly():
            silent.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    silent.wait()
    with pytest.warns(UserWarning, match="heard"):
        warnings.warn("heard", UserWarning, stacklevel=1)
    done.set()
    holder.join()


@pytest.mark.parametrize(
    "inside", [LogisticRegression(), LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1)], ids=str
)
def test_models_that_were_fitted_on_names_inside_others_miss_none(inside: Any) -> None:
    rows = pd.DataFrame(np.random.default_rng(0).random((80, 2)), columns=["a", "b"])
    model = VotingClassifier([("one", inside)], voting="soft").fit(rows, rows["a"] > rows["b"])
    found = mlflow_cf.wrap(model, rows, target=True).explain(rows.head(8))  # a warning would be an error
    assert {one.status for one in found} <= {"found", "already"}


def test_wrapping_in_threads_leaves_warnings_as_they_were() -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.random(80), "b": rng.random(80), "c": rng.choice(["x", "y"], 80)})
    labels = rows["a"] > rows["b"]
    plain = LogisticRegression().fit(rows[["a", "b"]], labels)
    voting = VotingClassifier([("one", LogisticRegression())]).fit(rows[["a", "b"]], labels)
    steps = make_column_transformer(
        (OneHotEncoder(drop="first", handle_unknown="ignore"), ["c"]), (StandardScaler(), ["a", "b"])
    )
    piped = make_pipeline(steps, LogisticRegression()).fit(rows, labels)
    wrapped = [(plain, rows[["a", "b"]]), (voting, rows[["a", "b"]]), (piped, rows)] * 6
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda one: mlflow_cf.wrap(*one, target=True), wrapped))
        applying = next(one for one in warnings.filters if issubclass(UserWarning, one[2]))
    assert applying[0] == "always"
