"""Metrics of counterfactuals, one implementation each: plain functions of coded rows, and the table of them all."""

from mlflow_cf.metrics.catalog import (
    METRICS,
    Aggregate,
    Answers,
    Better,
    Measure,
    Summary,
    aggregate,
    constraint_satisfaction,
    coverage,
    measure,
    measure_all,
    measure_columns,
    summarize,
    validity,
)
from mlflow_cf.metrics.changes import Options, changed
from mlflow_cf.metrics.demands import (
    Steps,
    Wishes,
    actionability,
    actionable,
    discounted_cost,
    feasibility,
    relative_difference,
    sequence_cost,
    sequence_length,
)
from mlflow_cf.metrics.outliers import Inliers, plausibility
from mlflow_cf.metrics.proximity import (
    cat_diversity,
    cat_proximity,
    cont_diversity,
    cont_proximity,
    distances,
    diversity,
    diversity_cat,
    diversity_ratio,
    gower,
    jaccard,
    l0,
    l1,
    linf,
    mixed,
    n_changed,
    norm_diversity,
    norm_diversity_cat,
    prox_cat,
    prox_cont,
    prox_euc,
    prox_jac,
    sparsity_changed,
    sparsity_diversity,
    sparsity_unchanged,
)
from mlflow_cf.metrics.risk import Labelled, extraction_fidelity, membership_auc

__all__ = [
    "METRICS", "Aggregate", "Answers", "Better", "Inliers", "Labelled", "Measure", "Options", "Steps", "Summary",
    "Wishes", "actionability", "actionable", "aggregate", "cat_diversity", "cat_proximity", "changed",
    "constraint_satisfaction", "cont_diversity", "cont_proximity", "coverage", "discounted_cost", "distances",
    "diversity", "diversity_cat", "diversity_ratio", "extraction_fidelity", "feasibility", "gower", "jaccard", "l0",
    "l1", "linf", "measure", "measure_all", "measure_columns", "membership_auc", "mixed", "n_changed", "norm_diversity",
    "norm_diversity_cat", "plausibility", "prox_cat", "prox_cont", "prox_euc", "prox_jac", "relative_difference",
    "sequence_cost", "sequence_length", "sparsity_changed", "sparsity_diversity", "sparsity_unchanged", "summarize",
    "validity",
]  # fmt: skip
