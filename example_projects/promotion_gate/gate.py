"""Train a model a year, compare the registered versions, and promote the new one only if old advice holds under it."""

from __future__ import annotations

import argparse
import logging
import os
import sys

import mlflow
import pandas as pd
from loans import CONSTRAINTS, FIRST_YEAR, REPAID, loans
from mlflow import MlflowClient
from mlflow.models import MetricThreshold
from mlflow.models.evaluation.validation import ModelValidationFailedException
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

import mlflow_cf

ALIAS = "champion"
MOST_EVALUATIONS = 20_000  # a row; to prove that there is no answer under two models can take many more


def options() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--rows", type=int, default=4_000, metavar="N", help="applications of a year to learn from (default: 4,000)")
    add("--rows-to-explain", type=int, default=200, metavar="N", help="applications to compare on (default: 200)")
    add("--registered-name", default="loans", metavar="NAME", help="registered model (default: loans)")
    add(
        "--least-survival", type=float, default=0.9, metavar="SHARE", help="of old advice that must hold (default: 0.9)"
    )
    add("--seed", type=int, default=0, help="for applications, models and explainer (default: 0)")
    add("--no-remedies", action="store_true", help="leave out what makes advice hold under a later version")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the whole story; return 1 if the new version was not promoted."""
    chosen = options().parse_args(arguments)
    if "MLFLOW_RUN_ID" not in os.environ:  # a run that `mlflow run` has started belongs to an experiment already
        mlflow.set_experiment("promotion_gate")
    asked = loans(chosen.rows_to_explain, FIRST_YEAR + 1, chosen.seed + 1)
    with mlflow.start_run():
        for year in (FIRST_YEAR, FIRST_YEAR + 1):
            version = _register(chosen, year)
        promoted = _gate(chosen, asked, version)
        if not chosen.no_remedies:
            print(_table_of_remedies(chosen, asked).to_string(float_format="{:.3f}".format))
    return 0 if promoted else 1


def fitted(table: pd.DataFrame, seed: int) -> Pipeline:
    """Return a boosting model fitted on a year's table."""
    columns = make_column_transformer((OneHotEncoder(sparse_output=False), ["sex"]), remainder="passthrough")
    model = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=6, min_samples_leaf=40, random_state=seed)
    return make_pipeline(columns, model).fit(table.drop(columns=REPAID), table[REPAID])


def _register(chosen: argparse.Namespace, year: int) -> str:
    """Fit a year's model, log it with its explainer, register it, and return the number of the version."""
    table = loans(chosen.rows, year, chosen.seed)
    info = mlflow_cf.log_model(
        fitted(table, chosen.seed),
        f"loans_{year}",
        table.drop(columns=REPAID),
        target=1,
        constraints=CONSTRAINTS,
        registered_model_name=chosen.registered_name,
    )
    print(f"version {info.registered_model_version}: learned from {len(table):,} applications of {year}")
    return str(info.registered_model_version)


def _gate(chosen: argparse.Namespace, asked: pd.DataFrame, version: str) -> bool:
    """Compare the two newest versions, and make the last one the champion if it meets the thresholds."""
    found = mlflow_cf.compare(
        chosen.registered_name, asked, versions=[int(version) - 1, version], labels=REPAID, groups="sex"
    )
    print(found)
    thresholds = {
        "cf/coverage": MetricThreshold(threshold=0.8, greater_is_better=True),
        "cf/survival": MetricThreshold(threshold=chosen.least_survival, greater_is_better=True),
    }
    try:
        found.validate(thresholds)
    except ModelValidationFailedException as error:
        print(f"NOT PROMOTED\n{error.message}")
        return False
    MlflowClient().set_registered_model_alias(chosen.registered_name, ALIAS, version)
    print(f"PROMOTED: version {version} of {chosen.registered_name!r} is now the {ALIAS}")
    return True


def _table_of_remedies(chosen: argparse.Namespace, asked: pd.DataFrame) -> pd.DataFrame:
    """Return what makes the second year's advice hold under the third year's model, which nobody knows yet."""
    first, second, third = (loans(chosen.rows, FIRST_YEAR + later, chosen.seed) for later in range(3))
    model, data = fitted(second, chosen.seed), second.drop(columns=REPAID)
    before = fitted(first, chosen.seed)
    remedies = {
        "plain": mlflow_cf.wrap(model, data, target=1, constraints=CONSTRAINTS),
        "margin=0.1": mlflow_cf.wrap(model, data, target=1, constraints=CONSTRAINTS, margin=0.1),
        "robust_to": mlflow_cf.wrap(model, data, target=1, constraints=CONSTRAINTS, robust_to=[before]),
        "both": mlflow_cf.wrap(model, data, target=1, constraints=CONSTRAINTS, robust_to=[before], margin=0.1),
    }
    with mlflow.start_run(run_name="remedies", nested=True):
        models = {**remedies, "third year": fitted(third, chosen.seed)}
        found = mlflow_cf.compare(models, asked, max_evaluations=MOST_EVALUATIONS)
    under_third = found.survival.query("group == '' and judged == 'third year'").set_index("issued")
    figures = found.to_frame().droplevel("explainer")[["coverage", "mixed", "n_changed"]]
    return figures.join(under_third[["survival", "probability_lost"]]).drop(index="third year").rename_axis("answers")


if __name__ == "__main__":
    os.environ["MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"] = "false"
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    logging.getLogger("mlflow_cf.artifact.publish.requirements").setLevel(
        logging.ERROR
    )  # no package index is needed here
    sys.exit(main())
