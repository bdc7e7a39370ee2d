"""Types that skops may restore from a model we write, one group per supported estimator.

skops refuses every type it does not know. These hold fitted numbers or settings of the named estimators and run no
code of a model's author when they are restored. The table is fixed here and is never read from a model file.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

TRUSTED_TYPES: Final = MappingProxyType(
    {
        "trees, forests, gradient boosting, AdaBoost": ("sklearn.tree._tree.Tree",),
        "HistGradientBoosting": (
            "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
            # Encoders of columns of pandas' category dtype check their input with partial(check_array, ...).
            "functools.partial",
            "sklearn.utils.validation.check_array",
        ),
        "MLP": (
            "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
            "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        ),
        "nearest neighbours": (
            "sklearn.metrics._dist_metrics.BrayCurtisDistance64",
            "sklearn.metrics._dist_metrics.CanberraDistance64",
            "sklearn.metrics._dist_metrics.ChebyshevDistance64",
            "sklearn.metrics._dist_metrics.EuclideanDistance64",
            "sklearn.metrics._dist_metrics.HammingDistance64",
            "sklearn.metrics._dist_metrics.ManhattanDistance64",
            "sklearn.metrics._dist_metrics.MinkowskiDistance64",
            "sklearn.metrics._dist_metrics.SEuclideanDistance64",
            "sklearn.neighbors._ball_tree.BallTree",
            "sklearn.neighbors._kd_tree.KDTree",
        ),
        "CalibratedClassifierCV": (
            "sklearn.calibration._CalibratedClassifier",
            "sklearn.calibration._SigmoidCalibration",
            "sklearn.calibration._TemperatureScaling",
        ),
        "voting, stacking": ("sklearn.utils._bunch.Bunch",),
        "generalized linear models": (
            "sklearn._loss.loss.HalfTweedieLoss",
            "sklearn._loss.loss.HalfTweedieLossIdentity",
        ),
        "SimpleImputer, KBinsDiscretizer": ("numpy.dtype",),
        # A spline keeps its knots and coefficients, and the function that made arrays of them.
        "SplineTransformer": (
            "scipy._lib.array_api_compat.numpy._aliases.asarray",
            "scipy.interpolate._bsplines.BSpline",
        ),
        "ColumnTransformer": ("numpy.number", "sklearn.compose._column_transformer.make_column_selector"),
        "feature selection": (
            "sklearn.feature_selection._mutual_info.mutual_info_classif",
            "sklearn.feature_selection._mutual_info.mutual_info_regression",
            "sklearn.feature_selection._univariate_selection.chi2",
            "sklearn.feature_selection._univariate_selection.f_classif",
            "sklearn.feature_selection._univariate_selection.f_regression",
        ),
        "cross-validated searches and thresholds": (
            "sklearn.metrics._classification.accuracy_score",
            "sklearn.metrics._classification.balanced_accuracy_score",
            "sklearn.metrics._classification.brier_score_loss",
            "sklearn.metrics._classification.f1_score",
            "sklearn.metrics._classification.log_loss",
            "sklearn.metrics._classification.precision_score",
            "sklearn.metrics._classification.recall_score",
            "sklearn.metrics._ranking.average_precision_score",
            "sklearn.metrics._ranking.roc_auc_score",
            "sklearn.metrics._regression.mean_absolute_error",
            "sklearn.metrics._regression.mean_squared_error",
            "sklearn.metrics._regression.r2_score",
            "sklearn.metrics._regression.root_mean_squared_error",
            "sklearn.metrics._scorer._CurveScorer",
            "sklearn.metrics._scorer._PassthroughScorer",
            "sklearn.metrics._scorer._Scorer",
            "sklearn.model_selection._split.KFold",
            "sklearn.model_selection._split.StratifiedKFold",
            "sklearn.utils._metadata_requests.MetadataRequest",
            "sklearn.utils._metadata_requests.MethodMetadataRequest",
        ),
        "xgboost": (
            "xgboost.core.Booster",
            "xgboost.sklearn.XGBClassifier",
            "xgboost.sklearn.XGBRFClassifier",
            "xgboost.sklearn.XGBRFRegressor",
            "xgboost.sklearn.XGBRegressor",
        ),
        "lightgbm": (
            "collections.OrderedDict",
            "lightgbm.basic.Booster",
            "lightgbm.sklearn.LGBMClassifier",
            "lightgbm.sklearn.LGBMRegressor",
        ),
        "catboost": (
            "catboost.core.CatBoostClassifier",
            "catboost.core.CatBoostRegressor",
        ),
        "interpret": (
            "interpret.glassbox._ebm._ebm.ExplainableBoostingClassifier",
            "interpret.glassbox._ebm._ebm.ExplainableBoostingRegressor",
        ),
    }
)

ALL_TRUSTED: Final = frozenset(name for names in TRUSTED_TYPES.values() for name in names)
