"""Counterfactual explanations for MLflow models: predictions, and what would have to change, in one reply."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlflow_cf.artifact.publish.log import load_model, log_model, save_model
from mlflow_cf.artifact.served import _load_pyfunc as _load_pyfunc  # MLflow calls it: this package is the loader module
from mlflow_cf.backgrounds import Background
from mlflow_cf.constraints import Constraints
from mlflow_cf.constraints.actions import Action, Relationship
from mlflow_cf.errors import ArtifactError, CounterfactualError, InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.explainers import (
    CEOCL,
    CERTIFAI,
    CSCF,
    FACE,
    MDPSO,
    SCF,
    UFCE,
    Exact,
    GeCo,
    GrowingSpheres,
    NearestRow,
    RandomSearch,
    SimCF,
)
from mlflow_cf.model.endpoint import Endpoint
from mlflow_cf.ordering import order
from mlflow_cf.policy import Distance, Limits, Privacy, Target
from mlflow_cf.policy.reasons import Wording
from mlflow_cf.reasons.notice import Letter, Notice
from mlflow_cf.version import VERSION
from mlflow_cf.words.changes import Change, Step
from mlflow_cf.words.explanations import Explanations, Interrupted
from mlflow_cf.words.factors import Factor, Reasons
from mlflow_cf.words.levers import Levers
from mlflow_cf.words.result import Counterfactual, Explanation, LeverSet, Optimum, Responsiveness, Share
from mlflow_cf.words.verification import Verification, Verifications
from mlflow_cf.wrapping import wrap

if TYPE_CHECKING:
    from mlflow_cf import plots as plots
    from mlflow_cf.autologging.autolog import autolog
    from mlflow_cf.evaluation.compare.comparison import Comparison
    from mlflow_cf.evaluation.compare.versions_compared import compare
    from mlflow_cf.evaluation.measure.evaluate import evaluate
    from mlflow_cf.evaluation.measure.result import Evaluation
    from mlflow_cf.evaluation.reported import report
    from mlflow_cf.gating.gate import Verdict, gate
    from mlflow_cf.gating.rules import GateRules
    from mlflow_cf.monitoring.monitor import monitor
    from mlflow_cf.monitoring.outcomes import Outcome, outcome
    from mlflow_cf.monitoring.result import Monitoring
    from mlflow_cf.suggest import Suggestion, Suggestions, suggest_constraints

__version__ = VERSION
# What a server has no use for is imported when it is asked for: it would take most of a second.
_LATER = {
    "Comparison": "evaluation.compare.comparison",
    "Evaluation": "evaluation.measure.result",
    "GateRules": "gating.rules",
    "Monitoring": "monitoring.result",
    "Outcome": "monitoring.outcomes",
    "Suggestion": "suggest",
    "Suggestions": "suggest",
    "Verdict": "gating.gate",
    "autolog": "autologging.autolog",
    "compare": "evaluation.compare.versions_compared",
    "evaluate": "evaluation.measure.evaluate",
    "gate": "gating.gate",
    "monitor": "monitoring.monitor",
    "outcome": "monitoring.outcomes",
    "report": "evaluation.reported",
    "suggest_constraints": "suggest",
}

__all__ = [
    "CEOCL",
    "CERTIFAI",
    "CSCF",
    "FACE",
    "MDPSO",
    "SCF",
    "UFCE",
    "Action",
    "ArtifactError",
    "Background",
    "Change",
    "Comparison",
    "Constraints",
    "Counterfactual",
    "CounterfactualError",
    "Distance",
    "Endpoint",
    "Evaluation",
    "Exact",
    "ExplainedModel",
    "Explanation",
    "Explanations",
    "Factor",
    "GateRules",
    "GeCo",
    "GrowingSpheres",
    "InputError",
    "Interrupted",
    "Letter",
    "LeverSet",
    "Levers",
    "Limits",
    "Monitoring",
    "NearestRow",
    "Notice",
    "Optimum",
    "Outcome",
    "Privacy",
    "RandomSearch",
    "Reasons",
    "Relationship",
    "Responsiveness",
    "Share",
    "SimCF",
    "Step",
    "Suggestion",
    "Suggestions",
    "Target",
    "Verdict",
    "Verification",
    "Verifications",
    "Wording",
    "autolog",
    "compare",
    "evaluate",
    "gate",
    "load_model",
    "log_model",
    "monitor",
    "order",
    "outcome",
    "report",
    "save_model",
    "suggest_constraints",
    "wrap",
]


def __getattr__(name: str) -> Any:
    """Import what evaluates and gates models, suggests constraints, or draws figures, when it is asked for."""
    if name == "plots":
        return import_module(f"{__name__}.plots")
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
