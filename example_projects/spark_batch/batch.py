"""Explain a portfolio where it lies: a background counted by Spark, a model logged with it, every loan explained."""

from __future__ import annotations

import argparse
import os
import sys

import mlflow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import mlflow_cf
import mlflow_cf.spark

CONSTRAINTS = {"immutable": ["age"], "decreasing": ["debts"], "ranges": {"income": [0, 150_000]}, "max_changes": 2}
RULES = {"rules": ["x_cf.income <= 1.5 * x.income"]}


def loans(spark: SparkSession, rows: int, seed: int) -> DataFrame:
    """Return made-up loans with what became of them."""
    noise = (f.rand(seed + 4) - 0.5) * 30_000
    made = spark.range(rows).select(
        f.col("id").alias("loan"),
        (f.rand(seed) * 50 + 20).cast("long").alias("age"),
        (f.round(f.rand(seed + 1) * 80) * 1_000 + 15_000).alias("income"),
        (f.rand(seed + 2) * 5).cast("long").alias("debts"),
        f.element_at(f.array(*map(f.lit, ("clerk", "cook", "nurse"))), (f.rand(seed + 3) * 3).cast("int") + 1).alias(
            "job"
        ),
    )
    return made.withColumn("repaid", (f.col("income") - 8_000 * f.col("debts") + noise > 35_000).cast("long"))


def logged(portfolio: DataFrame, seed: int) -> str:
    """Log a model with its explainer; the whole portfolio is its background. Return its URI."""
    background = mlflow_cf.spark.background(portfolio.drop("loan"), labels="repaid", seed=seed)
    print(background)
    columns = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    model = make_pipeline(columns, HistGradientBoostingClassifier(max_iter=50, random_state=seed))
    model.fit(background.rows, background.labels)
    constraints = {**CONSTRAINTS, **RULES}
    with mlflow.start_run():
        info = mlflow_cf.log_model(
            model, "loans", background, target=1, constraints=constraints, pip_requirements=["scikit-learn"]
        )
    return str(info.model_uri)


def report(answers: DataFrame) -> None:
    """Print what Spark makes of the answers."""
    for row in answers.groupBy("status").count().orderBy("status").collect():
        print(f"{row['status']:12}{row['count']:>9,}")
    nearest = answers.select(f.explode("counterfactuals").alias("nearest"))  # one at most of each loan
    changes = nearest.select(f.explode("nearest.changes.feature").alias("feature"))
    for row in changes.groupBy("feature").count().orderBy(f.desc("count")).collect():
        print(f"{row['feature']:12}{row['count']:>9,} answers change it")


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=20_000, metavar="N", help="loans (default: 20,000)")
    parser.add_argument("--master", default="local[2]", help="Spark's master (default: local[2])")
    parser.add_argument("--output", default="answers", metavar="FOLDER", help="parquet files of answers")
    parser.add_argument("--seed", type=int, default=0, help="for loans, sample and model (default: 0)")
    asked = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what the driver runs
    spark = SparkSession.builder.master(asked.master).appName("spark_batch").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    portfolio = loans(spark, asked.rows, asked.seed).cache()
    uri = logged(portfolio, asked.seed)
    answers = mlflow_cf.spark.explain(portfolio, uri, {"counterfactual": {"count": 1}}, key="loan")
    answers.write.mode("overwrite").parquet(asked.output)
    report(spark.read.parquet(asked.output))
    spark.stop()


if __name__ == "__main__":
    main()
