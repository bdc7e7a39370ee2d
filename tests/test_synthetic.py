"""The synthetic classifiers of GeCo's paper, a short version: valid, near the optimum, in time."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from laws import THOROUGH

import mlflow_cf
from mlflow_cf.explainers import GeCo

BENCHMARK = Path(__file__).resolve().parent.parent / "example_projects" / "benchmark"
SIZES = (1, 2, 4, 8, 12) if THOROUGH else (2, 12)


@pytest.fixture(scope="module")
def synthetic() -> Iterator[Any]:
    """The benchmark's module; it is a script that imports others, so all leave again afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARK)
        yield importlib.import_module("parts.synthetic")
        for name in ("parts.synthetic", "parts", "cases.data_sets", "cases.generated", "cases.models", "cases"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def credit(data_file: Any) -> pd.DataFrame:
    table = pd.read_csv(data_file("credit.csv")).iloc[:, :-1]
    return table.sample(6_000, random_state=0).reset_index(drop=True)


@pytest.mark.parametrize(
    ("explainer", "limit"),
    [(GeCo(), 1.30), (GeCo(m_init=100, m_mut=25), 1.10), (GeCo(refine=False), 1.30),
     (GeCo(m_init=100, m_mut=25, refine=False), 1.10)],
    ids=["default", "more samples", "default as published", "more samples as published"],
)  # fmt: skip
def test_valid_and_near(synthetic: Any, credit: pd.DataFrame, explainer: GeCo, limit: float) -> None:
    ratios = []
    for k in SIZES:
        classifier = synthetic.Classifier(credit, k)
        figures = synthetic.measure(classifier, classifier.explained(), explainer, classifier.refused(4, seed=0))
        assert figures.invalid == 0
        assert (figures.ratios >= 1 - 1e-9).all()  # else the optimum is none
        ratios.append(figures.ratios.mean())
    assert np.mean(ratios) <= limit


def test_the_score_is_that_of_the_authors_code(synthetic: Any, credit: pd.DataFrame) -> None:
    """0.5 - (0.5 * distances + 0.5 * failed) / k, 1 where all hold; below 0 it goes, too."""
    classifier = synthetic.Classifier(credit, 2)  # MaxBill <= 1000, MostRecentPayment >= 150
    rows = credit.head(4).assign(
        MaxBillAmountOverLast6Months=[1000, 1001, 0, 50_000], MostRecentPaymentAmount=[150, 200, 149, 0]
    )
    bill, payment = (
        float(np.ptp(credit[name])) for name in credit[["MaxBillAmountOverLast6Months", "MostRecentPaymentAmount"]]
    )
    assert classifier.score(rows).tolist() == pytest.approx(
        [1.0, 0.5 - (0.5 / bill + 0.5) / 2, 0.5 - (0.5 / payment + 0.5) / 2,
         0.5 - (0.5 * (49_000 / bill + 150 / payment) + 1.0) / 2]
    )  # fmt: skip
    assert classifier.score(rows)[3] < -0.2


def test_the_optimum_is_the_best_of_all_rows(synthetic: Any, credit: pd.DataFrame) -> None:
    """Two conditions by brute force over every pair of known values."""
    classifier = synthetic.Classifier(credit, 2)
    x = classifier.refused(1, seed=3).iloc[0]
    names = ["MaxBillAmountOverLast6Months", "MostRecentPaymentAmount"]
    one, two = (np.unique(credit[name]) for name in names)
    grid = np.stack(np.meshgrid(one, two, indexing="ij"), axis=-1).reshape(-1, 2)
    rows = pd.DataFrame(np.tile(x.to_numpy(), (len(grid), 1)), columns=credit.columns)
    rows[names] = grid
    distance = sum(np.abs(grid[:, at] - x[name]) / float(np.ptp(credit[name])) for at, name in enumerate(names)) / 14
    assert classifier.optimum(x) == pytest.approx(distance[classifier.score(rows) > 0.5].min())


@pytest.mark.parametrize("k", [3, 12])
def test_as_a_function_with_a_column_for_each_label(synthetic: Any, credit: pd.DataFrame, k: int) -> None:
    """Scores beyond [0, 1] are taken for margins: squashed, so that the slope is flatter, and still climbed."""
    classifier = synthetic.Classifier(credit, k)
    explained = mlflow_cf.wrap(
        classifier.scores, credit, target=1, constraints=synthetic.CONSTRAINTS, distance=(0.0, 1.0, 0.0), output="score"
    )
    assert explained.model.score_kind == "margin"
    rows = classifier.refused(2, seed=0)
    for at in range(2):
        (found,) = explained.explain(rows.iloc[[at]])
        assert found.status == "found"
        assert found.evaluations < 50_000  # however many of the conditions must still be met
        row = found.counterfactuals[0].row
        assert classifier.score(pd.DataFrame([row]))[0] > 0.5
        assert found.counterfactuals[0].distance <= 1.30 * classifier.optimum(rows.iloc[at])
