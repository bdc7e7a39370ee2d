"""What would open what is not opened: one fix for each phrase that says why."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from mlflow_cf.words.statements import phrases_in

_ESTIMATORS: Final = (
    "linear models, networks (MLP), trees, forests and boosting (also of XGBoost, LightGBM, CatBoost and interpret) "
    "can be opened, and so can votes by probability, bags, stacks under a linear model, and calibrations of them"
)
_STEPS: Final = (
    "scalers, encoders (one-hot, ordinal, target), SimpleImputer, KBinsDiscretizer, selectors, and PCA before linear "
    "models can be opened"
)
_NUMBERS: Final = "turn it into numbers before, with an encoder such as OneHotEncoder"
FIXES: Final = MappingProxyType(
    {
        "closed": "wrap the fitted model itself, or log it with its own MLflow flavor, instead of a function or pyfunc",
        "labels_only": "use a model with probabilities or margins (votes by label have none: voting='soft')",
        "other_label_rule": "put the threshold into the target (min_probability) instead of into the model's predict",
        "other_version": "install a version of the flavor's package that is made for this mlflow-cf",
        "opening_failed": "report it, with the versions of the libraries",
        "scores_differ": "report it, with the versions of the libraries: its structure does not repeat its scores",
        "label_differs": "report it, with the versions of the libraries: its structure does not repeat its labels",
        "other_shape": "give one label, with a score per class, or one value per row",
        "many_tests": "fit fewer or shallower trees, or round this feature before they are fitted",
        "linear_trees": "fit it without linear_tree",
        "objective_of": "fit it with one of the library's plain objectives for labels or values",
        "own_objective": "fit it with one of the library's own objectives",
        "some_zeros": "fit it with zero_as_missing=False",
        "booster": "fit it with the booster gbtree, dart or gblinear",
        "several_labels": "wrap one model per label",
        "divided_shares": "use a classifier of several classes itself, or margins (decision_function) per class",
        "counted_labels": "use voting='soft'",
        "scores_no_sums": "combine models that have probabilities",
        "calibrated_by": "calibrate with method='sigmoid'",
        "some_classes": "fit every member on rows of all classes",
        "other_than_trees": "boost single trees",
        "median_of_others": "boost single trees",
        "target_by": "transform the target with a scaler, PowerTransformer, QuantileTransformer or numpy's log and exp",
        "target_by_function": "use numpy's own functions, such as func=np.log1p and inverse_func=np.expm1",
        "stacked_under": "use a linear final estimator, such as LogisticRegression or Ridge",
        "stacked_labels": "stack probabilities or margins (stack_method)",
        "estimator": _ESTIMATORS,
        "missing_number": "fit it with NaN for missing values, and leave missing= out",
        "huber": "fit it with loss='log_loss'",
        "mixed_columns": "put a linear model or a network behind what mixes columns, or leave it out before trees",
        "products": "leave products of several features out (interactions); trees find them by themselves",
        "curved_columns": "put a linear model or a network behind it, or leave it out before trees",
        "on_date": "turn the date into a number, such as days, before the model",
        "on_levels": _NUMBERS,
        "on_levels_of": _NUMBERS,
        "infinite": "leave out columns that are constant before it",
        "starts_from": "leave init out",
        "histogram_loss": "fit it with squared_error, absolute_error, quantile, poisson or gamma loss",
        "weighted_columns": "scale the columns by a step instead of transformer_weights",
        "columns_of": "fit the steps one after the other on the same columns",
        "imputer_of": "use NaN or None for missing values",
        "imputer_with": "fill numbers with a number",
        "step": _STEPS,
        "mixed_activations": "use ReLU and its like throughout, or Tanh and Sigmoid",
        "layer": "use linear layers, normalisations of batches and activations such as ReLU or Tanh",
        "no_chain": "leave out what goes around layers, so that each takes what the one before it answers",
        "no_calls": "log it by mlflow.pytorch with serialization_format='pt2', or pass the module itself",
        "precision": "convert it to float32 before it is logged",
        "unfilled_gaps": "fill missing values before the network, or begin it with torch.nan_to_num",
        "independent_scores": "end it in Softmax, or wrap one model per label",
        "infinite_weights": "fit it anew: weights that are not finite give no answer",
        "onnx_operator": "export steps that can be opened; do the others in the table that is given to the graph",
        "onnx_mode": "export it with the library's plain settings",
        "onnx_left_out": "fit every tree on rows of all classes",
        "onnx_two_votes": "export one score for two classes, or the model's values alone",
        "onnx_mixed": "put a linear model or a network behind what mixes columns, or leave it out before trees",
        "onnx_no_trees": "export the model anew: its trees are damaged",
        "onnx_no_scores": "export a model whose output is its own score, probability or value",
        "onnx_half": "export it with float32 numbers",
        "onnx_size": "export fewer or smaller layers, or fewer trees",
        "function_step": "do it before the model, in the table that is given to it, or use a step that can be opened",
    }
)


def fix_of(why: str) -> str | None:
    """Return what would open what a statement says is not opened; None if nothing is known that would."""
    return next((FIXES[phrase] for phrase in reversed(list(phrases_in(why))) if phrase in FIXES), None)
