"""A notice of one decision: its principal reasons, and apart from them what would change it, as text and HTML.

Owners replace either template by one of their own; it runs in Jinja2's sandbox, and HTML is escaped.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, Final

from jinja2 import StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from mlflow_cf.errors import InputError
from mlflow_cf.features import Level
from mlflow_cf.words.factors import Factor, Reasons
from mlflow_cf.words.phrases import Language
from mlflow_cf.words.result import Explanation
from mlflow_cf.words.sentences import Speaker
from mlflow_cf.words.statements import in_language, say

NO_CHANGES: Final = {"infeasible": say("no_change_allowed"), "already": say("no_change_needed")}
NONE_FOUND: Final = say("no_change_found")
SUFFIXES: Final[dict[Language, str]] = {"en": "", "de": ".de"}  # of the names of our templates


@dataclass(frozen=True)
class Notice:
    """A notice of one decision.

    Attributes:
        text, html: the rendered notice.
        digest: SHA-256 of all that it says of the decision, however a template renders it.
        record: what that is the digest of, as plain values of JSON.
        reasons: the reasons; explanation: what would change the decision.
    """

    text: str = field(repr=False)
    html: str = field(repr=False)
    digest: str
    record: Mapping[str, Any] = field(repr=False)
    reasons: Reasons = field(repr=False)
    explanation: Explanation = field(repr=False)

    @property
    def alarm(self) -> tuple[Factor, ...]:
        """The factors with protected features: for the owner, not for the letter."""
        return self.reasons.alarm

    def _repr_html_(self) -> str:
        """Return the notice in a frame of its own, whose styles and scripts cannot reach a notebook's."""
        source = html.escape(self.html, quote=True)
        return f'<iframe sandbox srcdoc="{source}" style="width: 100%; height: 30em; border: 1px solid #ccc"></iframe>'


@dataclass(frozen=True)
class Letter:
    """How a notice is rendered.

    Attributes:
        text, html: Jinja2 templates; None: ours, in the language of the notice.
        details: of the owner's, such as a name or a date: ``details`` in the templates.
    """

    text: str | None = None
    html: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def rendered(self, values: Mapping[str, Any], language: Language = "en") -> tuple[str, str]:
        """Return text and HTML of the `values` that templates may use, by name, in a `language`.

        Raises:
            InputError: a template that cannot be read, or fails.
        """
        given = {**values, "details": self.details}
        ours = f"notice{SUFFIXES[language]}"
        text = _rendered("text", self.text or _ours(f"{ours}.txt.jinja"), given, escape=False)
        return text, _rendered("html", self.html or _ours(f"{ours}.html.jinja"), given, escape=True)


def notice_of(
    explanation: Explanation,
    reasons: Reasons,
    wanted: str,
    answered: Mapping[str, Any],
    letter: Letter,
    language: Language = "en",
) -> Notice:
    """Return the notice of an explained row.

    Args:
        explanation: what would change the decision; reasons: what speaks against the row; both in the language.
        wanted: the wanted outcome in words.
        answered: the record of the explanation, with digests of model and policy; `ExplainedModel.check` verifies it.
        letter: how it is rendered; language: of its words.

    Raises:
        InputError: a template that cannot be read, or fails.
    """
    wanted = str(in_language(wanted, language))
    record = {"wanted": wanted, "answered": dict(answered), "reasons": reasons.to_dict()}
    digest = digest_of(record)
    known = () if explanation.space is None else explanation.space.features
    speaker = Speaker(language, {feature.name: feature for feature in known})
    changes = [speaker.changes(found.changes) for found in explanation.counterfactuals]
    values = {
        "decision": speaker.value(explanation.prediction),
        "wanted": wanted,
        "probability": explanation.probability,
        "reasons": [_worded(factor, speaker) for factor in reasons.factors],
        "no_reasons": reasons.reason,
        "changes": changes,
        "no_changes": in_language(NO_CHANGES.get(explanation.status, NONE_FOUND), language),
        "reference": reasons.reference,
        "scale": reasons.scale,
        "method": reasons.method,
        "digests": {"model": answered["model_sha256"], "policy": answered["policy_sha256"], "record": digest},
        "record": record,
    }
    return Notice(*letter.rendered(values, language), digest, record, reasons, explanation)


def _worded(factor: Factor, speaker: Speaker) -> SimpleNamespace:
    """Return what templates see of a reason; without a text of the owner's, it tells the row's values."""
    pairs = zip(factor.features, factor.values, strict=True)
    told = [f"{speaker.name(name)}: {speaker.value(_value(speaker, name, value), name)}" for name, value in pairs]
    return SimpleNamespace(**vars(factor), name=factor.name, told=factor.text or ", ".join(told))


def _value(speaker: Speaker, name: str, text: str | None) -> Level | None:
    """Return the value of a feature that a reply has as text."""
    feature = speaker.features.get(name)
    if text is None or feature is None:
        return text
    if feature.kind == "boolean":
        return text == "true"
    return float(text) if feature.kind == "real" else int(text) if feature.kind == "integer" else text


def digest_of(values: object) -> str:
    """Return the SHA-256 of plain values as JSON with sorted keys."""
    written = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(written.encode("utf-8", errors="surrogatepass")).hexdigest()


def _ours(name: str) -> str:
    return files("mlflow_cf.reasons").joinpath("templates", name).read_text(encoding="utf-8")


def _rendered(name: str, template: str, values: Mapping[str, Any], *, escape: bool) -> str:
    environment = SandboxedEnvironment(autoescape=escape, undefined=StrictUndefined, keep_trailing_newline=True)
    try:
        return environment.from_string(template).render(values)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        where = "" if line is None else f" in line {line}"
        fact = f"the template fails{where} ({type(error).__name__}: {error.message})"
        raise InputError(name, fact, "correct it, or leave it out for the one of mlflow-cf") from error
    except Exception as error:  # templates compute, and may fail like any program
        fact = f"the template fails ({type(error).__name__}: {error})"
        raise InputError(name, fact, "correct it, or leave it out for the one of mlflow-cf") from error
