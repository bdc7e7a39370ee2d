"""All phrases of sentences, a line per phrase and language; what stands in braces is filled in.

A language is added by one more entry in each phrase, and in `MARKS`. A phrase names the same things in all languages.
"""

from __future__ import annotations

from typing import Final, Literal

Language = Literal["en", "de"]
Phrases = dict[str, dict[Language, str]]  # by key and language

# What stands between thousands, and before decimals.
MARKS: Final[dict[Language, tuple[str, str]]] = {"en": (",", "."), "de": (".", ",")}

PHRASES: Final[Phrases] = {
    # values
    "missing": {"en": "missing", "de": "keine Angabe"},
    "yes": {"en": "yes", "de": "ja"},
    "no": {"en": "no", "de": "nein"},
    # one change
    "rises": {
        "en": "{feature} rises from {old} to {new}",
        "de": "{feature} steigt von {old} auf {new}",
    },
    "falls": {
        "en": "{feature} falls from {old} to {new}",
        "de": "{feature} sinkt von {old} auf {new}",
    },
    "later": {
        "en": "{feature} moves later, from {old} to {new}",
        "de": "{feature} wird später, von {old} auf {new}",
    },
    "earlier": {
        "en": "{feature} moves earlier, from {old} to {new}",
        "de": "{feature} wird früher, von {old} auf {new}",
    },
    "changes": {
        "en": "{feature} changes from {old} to {new}",
        "de": "{feature} wechselt von {old} zu {new}",
    },
    # several of something, and what comes of it
    "and": {"en": "{first} and {last}", "de": "{first} und {last}"},
    "or": {"en": "{first} or {last}", "de": "{first} oder {last}"},
    "answer": {"en": "{changes}: {outcome}", "de": "{changes}: {outcome}"},
    "prediction": {"en": "the prediction becomes {label}", "de": "die Vorhersage wird {label}"},
    "survives": {
        "en": "after a retraining it holds with probability {holds} (at least {at_least} with confidence {confidence}: "
        "{agreeing} of {models} retrained models agree)",
        "de": "nach erneutem Training gilt es mit Wahrscheinlichkeit {holds} (mindestens {at_least} mit Vertrauen "
        "{confidence}: {agreeing} von {models} neu trainierten Modellen stimmen zu)",
    },
    # plans
    "step": {
        "en": "{number}. {action}: {changes} ({facts})",
        "de": "{number}. {action}: {changes} ({facts})",
    },
    "nothing": {"en": "nothing changes", "de": "nichts ändert sich"},
    "effort": {"en": "effort {effort}", "de": "Aufwand {effort}"},
    "discounted": {
        "en": "effort {effort} x {discount} = {left}",
        "de": "Aufwand {effort} x {discount} = {left}",
    },
    "likely": {"en": "probability {probability}", "de": "Wahrscheinlichkeit {probability}"},
    "below": {"en": "below {probability}", "de": "unter {probability}"},
    "above": {"en": "above {probability}", "de": "über {probability}"},
    "total": {"en": "in all {effort}", "de": "zusammen {effort}"},
    # regions
    "region": {"en": "it holds while {sides}", "de": "das gilt, solange {sides}"},
    "side": {"en": "{feature} is {values}", "de": "für {feature} gilt: {values}"},
    "or_less": {"en": "{high} or less", "de": "{high} oder weniger"},
    "or_more": {"en": "{low} or more", "de": "{low} oder mehr"},
    "or_earlier": {"en": "{high} or earlier", "de": "{high} oder früher"},
    "or_later": {"en": "{low} or later", "de": "{low} oder später"},
    "between": {"en": "from {low} to {high}", "de": "von {low} bis {high}"},
    "others": {"en": "{levels} or one of {count} more", "de": "{levels} oder einer von {count} weiteren"},
    # what came of a row, on its card
    "found": {"en": "a change exists", "de": "Änderung gefunden"},
    "already": {"en": "as wanted already", "de": "schon wie gewünscht"},
    "infeasible": {"en": "no change exists (proved)", "de": "es gibt keine Änderung (bewiesen)"},
    "not_found": {"en": "no change found", "de": "keine Änderung gefunden"},
    "budget": {"en": "the search was cut short", "de": "die Suche wurde abgebrochen"},
    "busy": {"en": "not searched: too many requests", "de": "nicht gesucht: zu viele Anfragen"},
    "skipped": {"en": "not asked for", "de": "nicht gefragt"},
    "invalid": {"en": "cannot be explained", "de": "nicht erklärbar"},
    "predicted": {"en": "prediction {label}", "de": "Vorhersage {label}"},
    "likely_now": {
        "en": "probability of what is wanted {probability}",
        "de": "Wunsch-Wahrscheinlichkeit {probability}",
    },
    "likely_then": {"en": "probability {before} → {after}", "de": "Wahrscheinlichkeit {before} → {after}"},
    "distance": {"en": "distance {distance}", "de": "Abstand {distance}"},
    "more_changes": {"en": "and {count} more changes", "de": "und {count} weitere Änderungen"},
    "rung": {"en": "rung {rung} of the ladder", "de": "Stufe {rung} der Leiter"},
    # tables of explained rows
    "column_row": {"en": "row", "de": "Zeile"},
    "column_others": {"en": "other changes", "de": "weitere Änderungen"},
    "column_distance": {"en": "distance", "de": "Abstand"},
    "column_likely": {"en": "probability", "de": "Wahrscheinlichkeit"},
    "column_proof": {"en": "proof", "de": "Beweis"},
    "more_rows": {"en": "and {count} more", "de": "und {count} weitere"},
    # what is proved of an answer
    "optimal": {"en": "proved nearest", "de": "bewiesen: die nächste"},
    "bounded": {"en": "proved: nothing nearer than {bound}", "de": "bewiesen: nichts näher als {bound}"},
    "none": {"en": "checked", "de": "geprüft"},
    "cheapest": {"en": "proved cheapest plan", "de": "bewiesen: der billigste Plan"},
    "no_cheaper": {
        "en": "proved: no plan costs less than {bound}",
        "de": "bewiesen: kein Plan kostet weniger als {bound}",
    },
    "least": {"en": "proved least {objective}", "de": "bewiesen: am kleinsten in {objective}"},
    # other parts of a card
    "reasons": {"en": "Why it was decided so", "de": "Warum so entschieden wurde"},
    "alarm": {"en": "protected and of weight: {features}", "de": "geschützt und von Gewicht: {features}"},
    "levers": {"en": "What can do it alone", "de": "Was allein genügt"},
    "no_levers": {"en": "nothing by itself", "de": "nichts für sich allein"},
    "not_alone": {"en": "{count} other sets cannot (proved)", "de": "{count} andere Mengen nicht (bewiesen)"},
    "unknown_levers": {"en": "{count} sets are not known", "de": "{count} Mengen sind offen"},
    "share": {
        "en": "{share} of the lawful changes of {features} turn the decision",
        "de": "{share} der erlaubten Änderungen von {features} ändern die Entscheidung",
    },
    "unresponsive": {
        "en": "no lawful action turns the decision (proved)",
        "de": "keine erlaubte Handlung ändert die Entscheidung (bewiesen)",
    },
}
