"""Parts E and F of CE-OCL's demonstration on German credit: the hull of the good rows, and a causal equation."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from sklearn.svm import LinearSVC

import mlflow_cf
from mlflow_cf import CEOCL
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.words.result import Explanation

NUMBERS = ["duration", "credit_amount", "installment_rate", "age"]
MU = 10_000.0
CAUSAL = {"causal": [{"child": "duration", "parents": ["credit_amount"], "model": "mlp"}]}


@dataclass(frozen=True)
class Demo:
    """The model, all rows with their labels, and what is actionable."""

    model: Any
    rows: pd.DataFrame
    labels: Any
    actionable: dict[str, Any]

    @property
    def rejected(self) -> pd.DataFrame:
        return self.rows.iloc[[775]]

    def explained(self, **constraints: Any) -> ExplainedModel:
        return mlflow_cf.wrap(
            self.model,
            self.rows,
            self.labels,
            target=1,
            values="continuous",
            features={name: {"kind": "real"} for name in NUMBERS},
            explainer=CEOCL(objective="l2", mu=MU, margin=0.0, manifold="hull", enlarge="penalty"),
            constraints={**self.actionable, **constraints},
        )


@pytest.fixture(scope="module")
def demo(data_file: Callable[[str], Path]) -> Demo:
    table = pd.read_csv(data_file("german.csv")).astype(dict.fromkeys(NUMBERS, "float64"))
    rows, labels = table.iloc[:, :-1], table.iloc[:, -1]
    train, _, wanted, _ = train_test_split(rows, labels, test_size=0.2, stratify=labels, random_state=0)
    encode = make_column_transformer(
        (MinMaxScaler(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
    )
    model = make_pipeline(encode, LinearSVC(C=0.1, dual=False, max_iter=100_000)).fit(train, wanted)
    actionable = yaml.safe_load(data_file("constraints/german.yaml").read_text(encoding="utf-8"))
    return Demo(model, rows, labels.to_numpy(), actionable)


def changes(answer: Explanation) -> dict[str, Any]:
    return {change.feature: change.new for change in answer.counterfactuals[0].changes}


def test_part_e_is_the_published_one_and_proved_over_the_hull(demo: Demo) -> None:
    (answer,) = demo.explained().explain(demo.rejected, time_limit_s=60)
    assert changes(answer) == {
        "checking_status": "no checking",
        "duration": pytest.approx(22, abs=0.01),
        "credit_amount": pytest.approx(1283.5, abs=1.6),
        "employment": "4<=X<7",
        "property": "life insurance",
    }
    assert answer.diagnostics["solver"] == "optimal"
    assert answer.diagnostics["bound"][0] == pytest.approx(answer.diagnostics["costs"][0], abs=1e-4)
    assert answer.diagnostics["costs"][0] == pytest.approx(5 * MU + 3 * 2 + 0.0009, abs=1e-4)
    assert answer.diagnostics["manifold"]["points"] == 700
    assert answer.diagnostics["manifold"]["apart"] == [pytest.approx(0, abs=1e-6)]


def test_part_f_leaves_the_hull_as_the_published_run_did(demo: Demo) -> None:
    """Three categories change, and nothing else: the amount stays, and so does the duration that follows it."""
    explained = demo.explained(**CAUSAL)
    (answer,) = explained.explain(demo.rejected, time_limit_s=60)
    assert changes(answer) == {
        "checking_status": "no checking",
        "employment": "4<=X<7",
        "property": "life insurance",
    }
    assert answer.diagnostics["manifold"]["enlarged"]
    assert 0 < answer.diagnostics["manifold"]["apart"][0] < 0.05
    assert explained.describe()["causal"][0]["r2"] == pytest.approx(0.43, abs=0.02)
    row = pd.DataFrame([answer.counterfactuals[0].row])[list(demo.rows)].astype(demo.rows.dtypes)
    (verification,) = explained.verify(demo.rejected, row)
    assert all(check.holds for check in verification.constraints if check.path.startswith("constraints.causal"))


def test_a_moved_amount_moves_the_duration(demo: Demo) -> None:
    explained = demo.explained(**CAUSAL)
    (answer,) = explained.explain(
        demo.rejected, constraints={"ranges": {"credit_amount": [2000, None]}}, time_limit_s=60,
        explainer=CEOCL(objective="l2", mu=MU, margin=0.0),
    )  # fmt: skip
    row = pd.DataFrame([answer.counterfactuals[0].row])[list(demo.rows)].astype(demo.rows.dtypes)
    (function,) = explained.setting.functions
    before, after = explained.space.encode(pd.concat([demo.rejected, row]))
    follows = function.values(after[None])[0] - function.values(before[None])[0]
    assert after[function.child] - before[function.child] == pytest.approx(follows, abs=1e-4)
    assert abs(follows) > 0.1
