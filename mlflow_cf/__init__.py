"""Counterfactual explanations for MLflow models: predictions, and what would have to change, in one reply."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from mlflow_cf.version import VERSION

if TYPE_CHECKING:
    from mlflow_cf import plots as plots
    from mlflow_cf.artifact.publish.log import load_model, log_model, save_model
    from mlflow_cf.artifact.served import _load_pyfunc as _load_pyfunc
    from mlflow_cf.autologging.autolog import autolog
    from mlflow_cf.backgrounds import Background
    from mlflow_cf.constraints import Constraints
    from mlflow_cf.constraints.actions import Action, Relationship
    from mlflow_cf.errors import ArtifactError, CounterfactualError, InputError
    from mlflow_cf.evaluation.compare.comparison import Comparison
    from mlflow_cf.evaluation.compare.versions_compared import compare
    from mlflow_cf.evaluation.measure.evaluate import evaluate
    from mlflow_cf.evaluation.measure.result import Evaluation
    from mlflow_cf.evaluation.reported import report
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
    from mlflow_cf.gating.gate import Verdict, gate
    from mlflow_cf.gating.rules import GateRules
    from mlflow_cf.model.endpoint import Endpoint
    from mlflow_cf.monitoring.monitor import monitor
    from mlflow_cf.monitoring.outcomes import Outcome, outcome
    from mlflow_cf.monitoring.result import Monitoring
    from mlflow_cf.ordering import order
    from mlflow_cf.policy import Distance, Limits, Privacy, Target
    from mlflow_cf.policy.reasons import Wording
    from mlflow_cf.reasons.notice import Letter, Notice
    from mlflow_cf.suggest import Suggestion, Suggestions, suggest_constraints
    from mlflow_cf.words.changes import Change, Step
    from mlflow_cf.words.explanations import Explanations, Interrupted
    from mlflow_cf.words.factors import Factor, Reasons
    from mlflow_cf.words.levers import Levers
    from mlflow_cf.words.result import Counterfactual, Explanation, LeverSet, Optimum, Responsiveness, Share
    from mlflow_cf.words.verification import Verification, Verifications
    from mlflow_cf.wrapping import wrap

__version__ = VERSION
# Where names are, which are imported when they are asked for: help at the command line, or a server that is to
# answer and not to evaluate, shall not wait for what it has no use for.
_PLACES: Final = {
    "Action": "constraints.actions",
    "ArtifactError": "errors",
    "Background": "backgrounds",
    "CEOCL": "explainers",
    "CERTIFAI": "explainers",
    "CSCF": "explainers",
    "Change": "words.changes",
    "Comparison": "evaluation.compare.comparison",
    "Constraints": "constraints",
    "Counterfactual": "words.result",
    "CounterfactualError": "errors",
    "Distance": "policy",
    "Endpoint": "model.endpoint",
    "Evaluation": "evaluation.measure.result",
    "Exact": "explainers",
    "ExplainedModel": "explained",
    "Explanation": "words.result",
    "Explanations": "words.explanations",
    "FACE": "explainers",
    "Factor": "words.factors",
    "GateRules": "gating.rules",
    "GeCo": "explainers",
    "GrowingSpheres": "explainers",
    "InputError": "errors",
    "Interrupted": "words.explanations",
    "Letter": "reasons.notice",
    "LeverSet": "words.result",
    "Levers": "words.levers",
    "Limits": "policy",
    "MDPSO": "explainers",
    "Monitoring": "monitoring.result",
    "NearestRow": "explainers",
    "Notice": "reasons.notice",
    "Optimum": "words.result",
    "Outcome": "monitoring.outcomes",
    "Privacy": "policy",
    "RandomSearch": "explainers",
    "Reasons": "words.factors",
    "Relationship": "constraints.actions",
    "Responsiveness": "words.result",
    "SCF": "explainers",
    "Share": "words.result",
    "SimCF": "explainers",
    "Step": "words.changes",
    "Suggestion": "suggest",
    "Suggestions": "suggest",
    "Target": "policy",
    "UFCE": "explainers",
    "Verdict": "gating.gate",
    "Verification": "words.verification",
    "Verifications": "words.verification",
    "Wording": "policy.reasons",
    "_load_pyfunc": "artifact.served",  # MLflow calls it: this package is the loader module
    "autolog": "autologging.autolog",
    "compare": "evaluation.compare.versions_compared",
    "evaluate": "evaluation.measure.evaluate",
    "gate": "gating.gate",
    "load_model": "artifact.publish.log",
    "log_model": "artifact.publish.log",
    "monitor": "monitoring.monitor",
    "order": "ordering",
    "outcome": "monitoring.outcomes",
    "report": "evaluation.reported",
    "save_model": "artifact.publish.log",
    "suggest_constraints": "suggest",
    "wrap": "wrapping",
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
    """Import a public name when it is asked for; once, for it is kept."""
    if name == "plots":
        return import_module(f"{__name__}.plots")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_PLACES[name]}")
    found = globals()[name] = getattr(module, name)
    return found


def __dir__() -> list[str]:
    """Return all public names, imported or not."""
    return sorted({*globals(), *__all__})
