"""All phrases of reasons: why a row has no answer, no proof, no region or no reasons, and what would help.

Written as those of sentences (`phrases.py`). Besides, ``!c`` lists by commas, ``!j`` by semicolons, ``!v`` tells a
value of a feature, and ``!f`` one of which no digit may be lost; lists are else joined by "and". In German, a
counterfactual is an *Alternative*.
"""

from __future__ import annotations

from typing import Final

from mlflow_cf.words.opening_phrases import OPENING_PHRASES
from mlflow_cf.words.phrases import Phrases
from mlflow_cf.words.proof_phrases import PROOF_PHRASES

_LIMITS: Final[Phrases] = {
    "stopped_by_clock": {
        "en": "stopped by the time limit after {used:,} evaluations",
        "de": "vom Zeitlimit nach {used:,} Auswertungen beendet",
    },
    "stopped_by_evaluations": {
        "en": "stopped by the evaluation limit after {used:,} evaluations",
        "de": "vom Limit der Auswertungen nach {used:,} Auswertungen beendet",
    },
    "still_learning": {
        "en": "stopped by the time limit while the explainer learned: the next request goes on from there, "
        "and a model logged with explainer={explainer!r} has learned already",
        "de": "vom Zeitlimit beendet, während das Verfahren lernte: die nächste Anfrage macht dort weiter, "
        "und ein mit explainer={explainer!r} gespeichertes Modell hat schon gelernt",
    },
    "more_time": {
        "en": "{stopped}; with more time there may be nearer ones",
        "de": "{stopped}; mit mehr Zeit finden sich vielleicht nähere",
    },
    "more_evaluations": {
        "en": "{stopped}; with more evaluations there may be nearer ones",
        "de": "{stopped}; mit mehr Auswertungen finden sich vielleicht nähere",
    },
    "time_needed": {
        "en": "{stopped}; a time_limit_s of about {seconds:.2g} would do for {rows:,} rows",
        "de": "{stopped}; für {rows:,} Zeilen würde ein time_limit_s von etwa {seconds:.2g} reichen",
    },
    "late_constraints": {
        "en": "stopped by the time limit while the constraints were read",
        "de": "vom Zeitlimit beendet, während die Bedingungen gelesen wurden",
    },
    "interrupted": {
        "en": "interrupted before this row was searched",
        "de": "unterbrochen, bevor diese Zeile durchsucht wurde",
    },
    "busy": {
        "en": "all places for explanations ({places}) are taken; the prediction stands, ask again in a moment",
        "de": "alle Plätze für Erklärungen ({places}) sind belegt; die Vorhersage gilt, bitte gleich nochmals fragen",
    },
    "beyond": {
        "en": "beyond the {most:,} rows that one request may have explained; send it in a request of its own",
        "de": "jenseits der {most:,} Zeilen, die eine Anfrage erklären lassen darf; bitte einzeln anfragen",
    },
    "failed": {"en": "the explanation failed ({kind})", "de": "die Erklärung schlug fehl ({kind})"},
    "unpredictable": {
        "en": "the model cannot predict this row ({kind})",
        "de": "das Modell kann diese Zeile nicht vorhersagen ({kind})",
    },
    "endpoint_late": {
        "en": "the time limit was over before the endpoint could be asked",
        "de": "das Zeitlimit war vorbei, bevor der Endpunkt gefragt werden konnte",
    },
    "endpoint_spent": {
        "en": "the calls of the endpoint that this may take are used up",
        "de": "die Aufrufe des Endpunkts, die das kosten darf, sind verbraucht",
    },
    "endpoint_fails": {
        "en": "the endpoint cannot be asked ({kind})",
        "de": "der Endpunkt kann nicht gefragt werden ({kind})",
    },
    "endpoint_stopped": {
        "en": "the endpoint is not asked for a while, after {failures} failures in a row; ask again in a moment",
        "de": "der Endpunkt wird nach {failures} Fehlern in Folge eine Weile nicht gefragt; "
        "bitte gleich nochmals fragen",
    },
    "endpoint_reply": {
        "en": "the endpoint answers something else than predictions ({fact})",
        "de": "der Endpunkt antwortet etwas anderes als Vorhersagen ({fact})",
    },
    "endpoint_variable": {
        "en": "the environment variable {name} is not set, which a header of the endpoint needs",
        "de": "die Umgebungsvariable {name} ist nicht gesetzt, die ein Header des Endpunkts braucht",
    },
    "endpoint_target": {
        "en": "no deployments target is named: pass `target`, or set the variable MLFLOW_DEPLOYMENTS_TARGET",
        "de": "kein Ziel für Deployments ist genannt: `target` angeben oder die Variable "
        "MLFLOW_DEPLOYMENTS_TARGET setzen",
    },
    "endpoint_client": {
        "en": "MLflow has no client for this deployments target ({kind})",
        "de": "MLflow hat für dieses Ziel von Deployments keinen Client ({kind})",
    },
    "endpoint_changed": {
        "en": "the endpoint answers other than when it was wrapped: another model may stand behind it; wrap it anew",
        "de": "der Endpunkt antwortet anders als beim Einpacken: vielleicht steht ein anderes Modell dahinter; "
        "bitte neu einpacken",
    },
    "misfit": {
        "en": "{feature}: {value} is no {noun} of type {dtype}",
        "de": "{feature}: {value} ist {noun} vom Typ {dtype}",
    },
    "exceeded": {
        "en": "{feature}: {value} is beyond ±{most:.16g}, and only numbers within that can be explained",
        "de": "{feature}: {value} liegt jenseits von ±{most:.16g}, und nur Zahlen dazwischen lassen sich erklären",
    },
    "finite_whole_number": {"en": "finite whole number", "de": "keine endliche ganze Zahl"},
    "finite_number": {"en": "finite number", "de": "keine endliche Zahl"},
    "ordinal": {"en": "ordinal", "de": "keine geordnete Ausprägung"},
    "category": {"en": "category", "de": "keine Ausprägung"},
    "boolean": {"en": "boolean", "de": "kein Wahrheitswert"},
}
_FOUND: Final[Phrases] = {
    "and": {"en": " and ", "de": " und "},
    "several": {"en": "{parts!j}", "de": "{parts!j}"},
    "fewer": {
        "en": "{found} of {asked} counterfactuals asked for: {why}",
        "de": "{found} von {asked} gewünschten Alternativen: {why}",
    },
    "no_other_levels_exist": {
        "en": "nothing else exists that differs by a level, or a number by {percent:g}% of its range more",
        "de": "es gibt keine weitere, die sich in einer Ausprägung oder in einer Zahl "
        "um {percent:g} % ihrer Spanne unterscheidet",
    },
    "no_other_levels_found": {
        "en": "nothing else was found that differs by a level, or a number by {percent:g}% of its range more",
        "de": "es fand sich keine weitere, die sich in einer Ausprägung oder in einer Zahl "
        "um {percent:g} % ihrer Spanne unterscheidet",
    },
    "no_other_sets_exist": {
        "en": "nothing else exists that changes other features, or a number by {percent:g}% of its range more",
        "de": "es gibt keine weitere, die andere Merkmale ändert oder eine Zahl um {percent:g} % ihrer Spanne",
    },
    "no_other_sets_found": {
        "en": "nothing else was found that changes other features, or a number by {percent:g}% of its range more",
        "de": "es fand sich keine weitere, die andere Merkmale ändert oder eine Zahl um {percent:g} % ihrer Spanne",
    },
    "not_found": {
        "en": "no counterfactual among {used:,} rows tried",
        "de": "keine Alternative unter {used:,} geprüften Zeilen",
    },
    "missed": {
        "en": "{reason}; by the opened model there is one: ask another explainer, such as exact",
        "de": "{reason}; nach dem geöffneten Modell gibt es eine: bitte mit einem anderen Verfahren fragen, etwa exact",
    },
    "missed_plan": {
        "en": "{reason}; some rows would be accepted, and the declared actions may not lead to them",
        "de": "{reason}; manche Zeilen würden angenommen, aber vielleicht führen die erklärten Schritte nicht dorthin",
    },
    "rung": {"en": "rung {number} ({target}): {reason}", "de": "Stufe {number} ({target}): {reason}"},
    "holds_already": {"en": "holds already", "de": "ist schon erreicht"},
    "probability": {"en": "probability {least:g}", "de": "Wahrscheinlichkeit {least:g}"},
    "from_to": {"en": "{low:g} to {high:g}", "de": "{low:g} bis {high:g}"},
    "or_more": {"en": "{low:g} or more", "de": "{low:g} oder mehr"},
    "or_less": {"en": "{high:g} or less", "de": "{high:g} oder weniger"},
}
_RULES: Final[Phrases] = {
    "must_not_change": {"en": "{feature} must not change", "de": "{feature} darf sich nicht ändern"},
    "must_not_decrease": {"en": "{feature} must not decrease", "de": "{feature} darf nicht sinken"},
    "must_not_increase": {"en": "{feature} must not increase", "de": "{feature} darf nicht steigen"},
    "up_by": {
        "en": "{feature} may go up by {most} at most",
        "de": "{feature} darf um höchstens {most} steigen",
    },
    "down_by": {
        "en": "{feature} may go down by {most} at most",
        "de": "{feature} darf um höchstens {most} sinken",
    },
    "up_by_percent": {
        "en": "{feature} may go up by {most} % at most",
        "de": "{feature} darf um höchstens {most} % steigen",
    },
    "down_by_percent": {
        "en": "{feature} may go down by {most} % at most",
        "de": "{feature} darf um höchstens {most} % sinken",
    },
    "one_of": {"en": "{feature} must be one of {levels!c}", "de": "{feature} muss eines von {levels!c} sein"},
    "forbidden": {
        "en": "{feature} must not go from {old} to {new}",
        "de": "{feature} darf nicht von {old} auf {new} wechseln",
    },
    "must_follow": {"en": "{feature} must follow {parents}", "de": "{feature} muss {parents} folgen"},
    "at_most_one": {"en": "at most {most} change", "de": "höchstens {most} Änderung"},
    "at_most": {"en": "at most {most} changes", "de": "höchstens {most} Änderungen"},
    "more": {"en": "{count} more", "de": "{count} weitere"},
}
_BLAME: Final[Phrases] = {
    "cannot_hold": {
        "en": "{path} cannot hold for this row ({rule})",
        "de": "{path} ist für diese Zeile nicht erfüllbar ({rule})",
    },
    "leaves_no_value": {
        "en": "{features} must change, but {causes} leaves no value for it",
        "de": "{features} muss sich ändern, aber {causes} lässt dafür keinen Wert",
    },
    "leave_no_value": {
        "en": "{features} must change, but {causes} leave no value for it",
        "de": "{features} muss sich ändern, aber {causes} lassen dafür keinen Wert",
    },
    "too_many": {
        "en": "{least} groups must change, more than {path} allows: {causes}",
        "de": "{least} Gruppen müssen sich ändern, mehr als {path} erlaubt: {causes}",
    },
    "nothing_may_change": {
        "en": "no feature may change: {causes}",
        "de": "kein Merkmal darf sich ändern: {causes}",
    },
    "no_wanted_row": {
        "en": "no background row is predicted as wanted",
        "de": "keine Zeile der Vergleichsdaten wird wie gewünscht vorhergesagt",
    },
    "no_lawful_row": {
        "en": "none of the background rows that are predicted as wanted meets {causes}",
        "de": "keine wie gewünscht vorhergesagte Zeile der Vergleichsdaten erfüllt {causes}",
    },
    "contradict": {"en": "{causes} contradict each other", "de": "{causes} widersprechen sich"},
    "combinations": {
        "en": "{sentence}, with the combinations of {groups} that may be proposed",
        "de": "{sentence}, mit den Kombinationen von {groups}, die vorgeschlagen werden dürfen",
    },
    "features": {"en": "{names}", "de": "{names}"},
    "and_of": {"en": "{first}, and of {last}", "de": "{first} und von {last}"},
    "rare": {"en": "{sentence}; {path} withholds rare ones", "de": "{sentence}; {path} hält seltene zurück"},
    "values": {"en": "the background's values", "de": "die Werte der Vergleichsdaten"},
    "of_kind": {"en": "{count} of {section} ({places!c})", "de": "{count} von {section} ({places!c})"},
    "features_of_kind": {
        "en": "{count} features of {section} ({places!c})",
        "de": "{count} Merkmale von {section} ({places!c})",
    },
    "few_share": {
        "en": "{sentence}; {path} withholds combinations of {groups} that few rows share",
        "de": "{sentence}; {path} hält Kombinationen von {groups} zurück, die wenige Zeilen gemeinsam haben",
    },
    "unwanted": {
        "en": "no row with values of the background is predicted as wanted, even without constraints (proved)",
        "de": "keine Zeile mit Werten der Vergleichsdaten wird wie gewünscht vorhergesagt, "
        "auch ohne Bedingungen (bewiesen)",
    },
    "unwanted_together": {
        "en": "no row with values of the background and with the combinations that {groups} may take is predicted as "
        "wanted, even without other constraints (proved)",
        "de": "keine Zeile mit Werten der Vergleichsdaten und mit den Kombinationen, die {groups} zulässt, wird wie "
        "gewünscht vorhergesagt, auch ohne andere Bedingungen (bewiesen)",
    },
    "part_of": {"en": "{causes}, or part of this", "de": "{causes}, oder ein Teil davon"},
    "part_of_them": {"en": "{causes}, or part of this,", "de": "{causes}, oder ein Teil davon,"},
    "all_of": {"en": "{causes}", "de": "{causes}"},
    "ruled_out": {"en": "{advice}; ruled out by {causes}", "de": "{advice}; ausgeschlossen durch {causes}"},
    "maybe_ruled_out": {
        "en": "{advice}; may be ruled out by {causes}",
        "de": "{advice}; vielleicht ausgeschlossen durch {causes}",
    },
    "rules_out": {
        "en": "{causes} rules out every counterfactual",
        "de": "{causes} schließt jede Alternative aus",
    },
    "rule_out": {
        "en": "{causes} rule out every counterfactual",
        "de": "{causes} schließen jede Alternative aus",
    },
    "may_rule_out": {
        "en": "{causes} may rule out every counterfactual",
        "de": "möglicherweise ist jede Alternative ausgeschlossen durch {causes}",
    },
    "one_is_not_enough": {
        "en": "{sentence}; to relax one of them alone is not enough",
        "de": "{sentence}; nur eine davon zu lockern reicht nicht",
    },
    "it_is_not_enough": {
        "en": "{sentence}; to relax it alone is not enough",
        "de": "{sentence}; nur das zu lockern reicht nicht",
    },
}
_ADVICE: Final[Phrases] = {
    "all_ways": {"en": "{ways}", "de": "{ways}"},
    "ask_probability": {
        "en": "ask for a probability of {reached} instead of {asked}",
        "de": "nach einer Wahrscheinlichkeit von {reached} statt {asked} fragen",
    },
    "ask_margin": {
        "en": "ask for a margin of {reached} instead of {asked}",
        "de": "nach einem Abstand (margin) von {reached} statt {asked} fragen",
    },
    "leave_out": {"en": "leave out {path}", "de": "{path} weglassen"},
    "leave_out_rule": {"en": "leave out {path} ({rule})", "de": "{path} weglassen ({rule})"},
    "allow_changes": {
        "en": "allow {changes} changes instead of {most}",
        "de": "{changes} Änderungen statt {most} erlauben",
    },
    "raise_from": {
        "en": "raise the limit of {feature} from {bound!f} to {value!f}",
        "de": "die Obergrenze von {feature} von {bound!f} auf {value!f} anheben",
    },
    "lower_from": {
        "en": "lower the limit of {feature} from {bound!f} to {value!f}",
        "de": "die Untergrenze von {feature} von {bound!f} auf {value!f} senken",
    },
    "raise": {
        "en": "raise the limit of {feature} ({rule})",
        "de": "die Obergrenze von {feature} anheben ({rule})",
    },
    "lower": {
        "en": "lower the limit of {feature} ({rule})",
        "de": "die Untergrenze von {feature} senken ({rule})",
    },
    "allow_level": {"en": "allow {feature} to be {value!f}", "de": "für {feature} auch {value!f} erlauben"},
    "allow_levels": {
        "en": "allow more levels of {feature}",
        "de": "mehr Ausprägungen von {feature} erlauben",
    },
    "let_go": {
        "en": "let {feature} go from {old!f} to {value!f}",
        "de": "erlauben, dass {feature} von {old!f} auf {value!f} wechselt",
    },
    "let_change": {"en": "let {feature} change", "de": "erlauben, dass {feature} sich ändert"},
    "let_rise": {"en": "let {feature} rise", "de": "erlauben, dass {feature} steigt"},
    "let_fall": {"en": "let {feature} fall", "de": "erlauben, dass {feature} sinkt"},
    "let_change_further": {"en": "let {feature} change further", "de": "erlauben, dass {feature} sich weiter ändert"},
    "let_rise_further": {"en": "let {feature} rise further", "de": "erlauben, dass {feature} weiter steigt"},
    "let_fall_further": {"en": "let {feature} fall further", "de": "erlauben, dass {feature} weiter sinkt"},
}
_REGIONS: Final[Phrases] = {
    "no_region": {"en": "no region: {fact}", "de": "kein Bereich: {fact}"},
    "no_time": {
        "en": "no region: the limits of the request left nothing for it",
        "de": "kein Bereich: die Limits der Anfrage ließen dafür nichts übrig",
    },
    "narrow": {
        "en": "no region: nothing around the answer could be proved",
        "de": "kein Bereich: im Umfeld der Antwort ließ sich nichts beweisen",
    },
    "widening_failed": {
        "en": "no region: widening failed ({kind})",
        "de": "kein Bereich: das Ausweiten schlug fehl ({kind})",
    },
}
_FACTORS: Final[Phrases] = {
    "decided_already": {
        "en": "the row is decided as wanted, so nothing speaks against it",
        "de": "über die Zeile wird wie gewünscht entschieden, also spricht nichts gegen sie",
    },
    "not_asked": {"en": "explanations were not asked for", "de": "nach Erklärungen wurde nicht gefragt"},
    "reasons_failed": {"en": "failed ({kind})", "de": "schlug fehl ({kind})"},
    "not_finite": {
        "en": "the scores of the row or of its references are no finite numbers",
        "de": "die Scores der Zeile oder ihrer Vergleichszeilen sind keine endlichen Zahlen",
    },
    "too_few": {
        "en": "the limits leave too few evaluations to sample contributions",
        "de": "die Limits lassen zu wenige Auswertungen, um Beiträge zu schätzen",
    },
    "median_refused": {
        "en": "the median of the favourable rows is itself refused; compare with 'approved'",
        "de": "der Median der günstigen Zeilen wird selbst abgelehnt; bitte mit 'approved' vergleichen",
    },
    "none_approved": {
        "en": "no background row is decided as wanted",
        "de": "über keine Zeile der Vergleichsdaten wird wie gewünscht entschieden",
    },
    "mean_of_one": {
        "en": "the mean of {rows:,} background row decided as wanted",
        "de": "das Mittel von {rows:,} wie gewünscht entschiedenen Zeile der Vergleichsdaten",
    },
    "mean_of": {
        "en": "the mean of {rows:,} background rows decided as wanted",
        "de": "das Mittel von {rows:,} wie gewünscht entschiedenen Zeilen der Vergleichsdaten",
    },
    "mean_of_sample": {
        "en": "the mean of a sample of {chosen:,} of {rows:,} background rows decided as wanted",
        "de": "das Mittel einer Stichprobe von {chosen:,} der {rows:,} wie gewünscht entschiedenen Zeilen "
        "der Vergleichsdaten",
    },
    "median_of_one": {
        "en": "the median of {rows:,} background row decided as wanted",
        "de": "der Median von {rows:,} wie gewünscht entschiedenen Zeile der Vergleichsdaten",
    },
    "median_of": {
        "en": "the median of {rows:,} background rows decided as wanted",
        "de": "der Median von {rows:,} wie gewünscht entschiedenen Zeilen der Vergleichsdaten",
    },
    "given_row": {"en": "the given row", "de": "die angegebene Zeile"},
    "of_which": {"en": "{told}, of which {rows:,} were used", "de": "{told}, von denen {rows:,} benutzt wurden"},
}
_NOTICES: Final[Phrases] = {
    "no_change_allowed": {
        "en": "No change that the policy allows would have led to another decision (proved).",
        "de": "Keine Änderung, die die Richtlinie erlaubt, hätte zu einer anderen Entscheidung geführt (bewiesen).",
    },
    "no_change_needed": {
        "en": "Nothing: the decision is as wanted.",
        "de": "Nichts: die Entscheidung ist wie gewünscht.",
    },
    "no_change_found": {
        "en": "No change was found that would have led to another decision.",
        "de": "Es wurde keine Änderung gefunden, die zu einer anderen Entscheidung geführt hätte.",
    },
    "label": {"en": "{label!v}", "de": "{label!v}"},
    "other_decision": {"en": "any other decision", "de": "jede andere Entscheidung"},
    "within": {"en": "from {low!v} to {high!v}", "de": "von {low!v} bis {high!v}"},
    "at_least": {"en": "at least {low!v}", "de": "mindestens {low!v}"},
    "not_above": {"en": "at most {high!v}", "de": "höchstens {high!v}"},
}

REASON_PHRASES: Final[Phrases] = {
    **PROOF_PHRASES, **OPENING_PHRASES, **_LIMITS, **_FOUND, **_RULES,
    **_BLAME, **_ADVICE, **_REGIONS, **_FACTORS, **_NOTICES,
}  # fmt: skip
