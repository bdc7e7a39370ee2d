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
}
