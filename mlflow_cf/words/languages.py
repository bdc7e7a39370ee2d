"""Answers in the language of their request: what was stated in English while they were found, told anew."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from mlflow_cf.words.explanations import Explanations, LazyExplanations
from mlflow_cf.words.factors import Reasons
from mlflow_cf.words.phrases import Language
from mlflow_cf.words.result import Counterfactual, Explanation, LeverSet
from mlflow_cf.words.statements import in_language


def answers_in(answers: Explanations, language: Language) -> Explanations:
    """Return answers whose statements are told in a language; those that are made are English."""
    if language == "en":
        return answers
    told = partial(_explanation_in, language=language)
    if isinstance(answers.items, LazyExplanations):
        return replace(answers, items=answers.items.told(told))
    return replace(answers, items=tuple(map(told, answers.items)))


def levers_in(levers: tuple[LeverSet, ...], language: Language) -> tuple[LeverSet, ...]:
    """Return what sets of levers can do, told in a language."""
    return tuple(replace(one, reason=in_language(one.reason, language)) for one in levers)


def reasons_in(reasons: Reasons, language: Language) -> Reasons:
    """Return reasons that are told in a language."""
    told = in_language(reasons.reason, language), in_language(reasons.reference, language)
    return replace(reasons, reason=told[0], reference=told[1])


def _explanation_in(one: Explanation, language: Language) -> Explanation:
    return replace(
        one,
        reason=in_language(one.reason, language),
        counterfactuals=tuple(_counterfactual_in(found, language) for found in one.counterfactuals),
        levers=levers_in(one.levers, language),
        responsiveness=replace(one.responsiveness, reason=in_language(one.responsiveness.reason, language)),
        reasons=reasons_in(one.reasons, language),
    )


def _counterfactual_in(found: Counterfactual, language: Language) -> Counterfactual:
    return replace(found, region_reason=in_language(found.region_reason, language))
