"""The phrases of proofs: that there is no answer, why none is certified, and why a model is not opened."""

from __future__ import annotations

from typing import Final

from mlflow_cf.words.phrases import Phrases

PROOF_PHRASES: Final[Phrases] = {
    "no_plan": {
        "en": "no plan of as many steps as are allowed leads to a row that is predicted as wanted (proved)",
        "de": "kein Plan mit höchstens so vielen Schritten führt zu einer Zeile mit gewünschter Vorhersage (bewiesen)",
    },
    "nothing_wanted": {
        "en": "no admissible row is predicted as wanted (proved)",
        "de": "keine zulässige Zeile wird wie gewünscht vorhergesagt (bewiesen)",
    },
    "nothing_left": {
        "en": "no row that the explainer's own restrictions leave is predicted as wanted (proved)",
        "de": "keine Zeile, die das Verfahren selbst zulässt, wird wie gewünscht vorhergesagt (bewiesen)",
    },
    "not_certified": {"en": "not certified: {fact}", "de": "nicht bewiesen: {fact}"},
    "in_detail": {"en": "{fact} ({detail})", "de": "{fact} ({detail})"},
    "unopened": {
        "en": "the model could not be opened for this row",
        "de": "das Modell ließ sich für diese Zeile nicht öffnen",
    },
    "requirement": {
        "en": "a further requirement could not be opened ({detail})",
        "de": "eine weitere Anforderung ließ sich nicht öffnen ({detail})",
    },
    "unseen_level": {
        "en": "the model could not be opened for this row (the background has no level {detail})",
        "de": "das Modell ließ sich für diese Zeile nicht öffnen (den Vergleichsdaten fehlt die Ausprägung {detail})",
    },
    "level_of": {"en": "{level} of {feature}", "de": "{level} von {feature}"},
    "note_of": {"en": "{path}: {note}", "de": "{path}: {note}"},
    "not_exact": {
        "en": "numbers between those of the background are not searched exactly",
        "de": "Zahlen zwischen denen der Vergleichsdaten werden nicht vollständig durchsucht",
    },
    "disagree": {
        "en": "the opened model and the logged one disagree on this row",
        "de": "das geöffnete und das gespeicherte Modell sind sich über diese Zeile nicht einig",
    },
    "ranked": {
        "en": "the explainer ranks its answers in another way than by distance",
        "de": "das Verfahren ordnet seine Antworten anders als nach dem Abstand",
    },
    "functions": {
        "en": "of what Python functions compute, nothing can be proved",
        "de": "über das, was Python-Funktionen berechnen, lässt sich nichts beweisen",
    },
    "steps": {
        "en": "the cheapest plan has more than {detail} steps, and proofs compare no such plans",
        "de": "der günstigste Plan hat mehr als {detail} Schritte, und solche Pläne vergleicht kein Beweis",
    },
    "longer": {
        "en": "certified among plans of up to {detail} steps",
        "de": "bewiesen unter Plänen mit bis zu {detail} Schritten",
    },
    "late": {
        "en": "the time limit left no time for it",
        "de": "das Zeitlimit ließ dafür keine Zeit",
    },
    "bends": {
        "en": "bounds leave out a causal function that is not piecewise linear ({detail}) in numbers of any value",
        "de": "Schranken lassen eine kausale Funktion aus, die nicht stückweise linear ist ({detail}), bei Zahlen "
        "mit beliebigen Werten",
    },
    # what linear constraints cannot express
    "percentiles": {
        "en": "changes in percentiles of numbers that may take any value",
        "de": "Änderungen in Perzentilen von Zahlen mit beliebigen Werten",
    },
    "closed_model": {"en": "a model that could not be opened", "de": "ein Modell, das sich nicht öffnen ließ"},
    "other_formula": {"en": "a formula of this kind", "de": "eine Formel dieser Art"},
    "undefined_formula": {
        "en": "a formula that is undefined in between",
        "de": "eine Formel, die dazwischen nicht definiert ist",
    },
    "quotient_by_zero": {"en": "a quotient by 0", "de": "eine Division durch 0"},
    "product_of_any": {
        "en": "a product or a quotient of what may take any value",
        "de": "ein Produkt oder ein Quotient von beliebigen Werten",
    },
    "function_of_any": {
        "en": "{function}() of what may take any value",
        "de": "{function}() von beliebigen Werten",
    },
    "membership": {
        "en": "membership of a number that may take any value",
        "de": "die Zugehörigkeit einer Zahl mit beliebigen Werten",
    },
    "near_equality": {"en": "an equality up to a tolerance", "de": "eine Gleichheit bis auf eine Toleranz"},
    "value_without_rank": {
        "en": "a value that may be missing or without a rank",
        "de": "ein Wert, der fehlen kann oder keinen Rang hat",
    },
    "bound_without_rank": {
        "en": "a bound that is missing or without a rank",
        "de": "eine Schranke, die fehlt oder keinen Rang hat",
    },
    "other_levels": {
        "en": "levels that the other feature lacks",
        "de": "Ausprägungen, die das andere Merkmal nicht hat",
    },
    "absolute": {
        "en": "an absolute value, or a number of changes",
        "de": "ein Betrag oder eine Anzahl von Änderungen",
    },
    "product_of_changes": {
        "en": "a product or a quotient of what may change",
        "de": "ein Produkt oder ein Quotient von Veränderlichem",
    },
    "several_classes": {
        "en": "a least probability among several classes of a model that is no tree",
        "de": "eine Mindestwahrscheinlichkeit unter mehreren Klassen eines Modells, das kein Baum ist",
    },
    "many_ways": {
        "en": "more than {most} ways of meeting the targets",
        "de": "mehr als {most} Arten, die Ziele zu erreichen",
    },
    "votes": {
        "en": "a number of models of which some must agree",
        "de": "eine Anzahl von Modellen, von denen einige zustimmen müssen",
    },
    "activation": {
        "en": "a network with {activation} between its layers",
        "de": "ein Netz mit {activation} zwischen seinen Schichten",
    },
    "many_leaves": {"en": "trees with more than {most:,} leaves", "de": "Bäume mit mehr als {most:,} Blättern"},
    # why a model is not opened
    "no_parts": {
        "en": "{kind}, which is not known as one sum of trees or layers",
        "de": "{kind}, was nicht als eine Summe von Bäumen oder Schichten bekannt ist",
    },
    "not_alike": {
        "en": "models whose scores are made in different ways",
        "de": "Modelle, deren Scores auf verschiedene Weise entstehen",
    },
    "not_merged": {"en": "a {kind}, which is no linear model", "de": "ein {kind}, das kein lineares Modell ist"},
    "no_formula": {
        "en": "a number that is transformed in a way that is no formula",
        "de": "eine Zahl, deren Umformung keine Formel ist",
    },
    "closed": {"en": "scored through the model itself", "de": "vom Modell selbst bewertet"},
    "labels_only": {
        "en": "scored through the model itself: it has labels only, no scores",
        "de": "vom Modell selbst bewertet: es hat nur Klassen, keine Scores",
    },
    "other_label_rule": {
        "en": "scored through the model itself: its label is not that of the largest score",
        "de": "vom Modell selbst bewertet: seine Klasse ist nicht die mit dem größten Score",
    },
    "other_version": {
        "en": "its structure lacks {lost!c}: it was written for another mlflow-cf than {version}",
        "de": "seiner Struktur fehlt {lost!c}: sie ist für ein anderes mlflow-cf als {version} geschrieben",
    },
    "not_opened": {
        "en": "scored through the model itself: not opened, {what}",
        "de": "vom Modell selbst bewertet: nicht geöffnet, {what}",
    },
    "opening_failed": {
        "en": "scored through the model itself: opening it failed ({kind})",
        "de": "vom Modell selbst bewertet: das Öffnen schlug fehl ({kind})",
    },
    "many_tests": {
        "en": "{tests:,} tests that tell {values:,} values apart",
        "de": "{tests:,} Tests, die {values:,} Werte unterscheiden",
    },
    "other_shape": {"en": "scores of another shape", "de": "Scores in anderer Anordnung"},
    "scores_differ": {"en": "scores differ by {worst:.1e}", "de": "Scores weichen um {worst:.1e} ab"},
    "label_differs": {"en": "a label differs", "de": "eine Klasse weicht ab"},
    # what bends in a causal function
    "product": {"en": "a product of what may change", "de": "ein Produkt von Veränderlichem"},
    "quotient": {"en": "a quotient by what may change", "de": "eine Division durch Veränderliches"},
}
