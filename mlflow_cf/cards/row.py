"""One explained row as a card."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from mlflow_cf.cards.pictures import Marked, Pictures
from mlflow_cf.cards.render import macros
from mlflow_cf.features.feature import Feature, Level
from mlflow_cf.words.changes import Change, written
from mlflow_cf.words.phrases import Language
from mlflow_cf.words.sentences import Speaker

Record = Mapping[str, Any]
LONGEST, LONGEST_TITLE, LONGEST_SENTENCE = 60, 300, 600  # characters
MOST_CHANGES: Final = 12  # of an answer; all are in its row
MOST_LISTED: Final = 5  # levers, and shares
PLANNERS: Final = ("cscf", "scf")  # their proofs are about what plans cost


class Text(NamedTuple):
    """A text as it is shown, and as much of the whole as is told on hovering; "" where all is shown."""

    short: str
    title: str = ""


class ChangeShown(NamedTuple):
    """One change of a card: what the feature is called, both values, and where they lie."""

    name: Text
    old: Text
    new: Text
    picture: Marked | None


class AnswerShown(NamedTuple):
    """One counterfactual of a card.

    Attributes:
        sentence: its changes in words, and what comes of them; region: in which values it holds; plan: a line a step.
        changes: each as from -> to; more: how many are left out, in words.
        likely: the probability before and after, in words; bar: both, from 0 to 100.
        proof: what is proved, in words; sure: ``optimal``, ``bounded`` or ``none``.
        facts: distance, and the rung of a ladder.
    """

    sentence: str
    region: str
    plan: tuple[str, ...]
    changes: tuple[ChangeShown, ...]
    more: str
    likely: str
    bar: tuple[float, float] | None
    proof: str
    sure: str
    facts: tuple[str, ...]


class Section(NamedTuple):
    """A list below the counterfactuals, with a heading."""

    heading: str
    lines: tuple[str, ...]


def card(record: Record, pictures: Pictures, language: Language = "en", *, heading: str = "") -> Markup:
    """Return an explained row as HTML: what came of it, its counterfactuals, the reasons and levers asked for.

    Args:
        record: of a reply, as `Explanation.to_dict` returns it.
        pictures: distributions that changes are drawn on, with the features' labels and units. Where they are shared,
            their `definitions` belong on the page once.
        language: of the words around sentences, which come with the record.
        heading: what the row is called, if something.
    """
    speaker = Speaker(language, pictures.known)
    shown = {
        "heading": heading,
        "shared": pictures.shared,
        "status": record["status"],
        "word": speaker.say(record["status"]),
        "facts": tuple(_facts(record, speaker)),
        "reason": cut(record["reason"], LONGEST_SENTENCE).short,
        "answers": [answer_of(record, found, pictures, speaker) for found in record["counterfactuals"]],
        "sections": [*_reasons(record["reasons"], speaker), *_levers(record, speaker)],
    }
    rendered: Markup = macros().card(shown)
    return rendered


def answers_of(record: Record, pictures: Pictures, language: Language = "en") -> list[Markup]:
    """Return each counterfactual of a record as HTML of its own, for pages that set them apart; see `card`."""
    speaker = Speaker(language, pictures.known)
    shown = (answer_of(record, found, pictures, speaker) for found in record["counterfactuals"])
    return [macros().answer(one, pictures.shared) for one in shown]


def definitions(pictures: Pictures, names: Sequence[str] | None = None) -> Markup:
    """Return the drawings that cards with shared pictures refer to, of all features or those named, once for a page."""
    rendered: Markup = macros().definitions(pictures.definitions(names))
    return rendered


def _facts(record: Record, speaker: Speaker) -> Iterator[str]:
    if record["prediction"] is not None:
        yield speaker.say("predicted", label=cut(speaker.value(record["prediction"])).short)
    if record["probability"] is not None:
        yield speaker.say("likely_now", probability=speaker.likely(record["probability"]))


def answer_of(record: Record, found: Record, pictures: Pictures, speaker: Speaker) -> AnswerShown:
    """Return what is to be shown of a counterfactual."""
    sentence, *more = found["text"].split("\n")
    region = more.pop(0) if found["region"] and more else found["region_reason"]
    before, after = record["probability"], found["probability"]
    known = before is not None and after is not None
    told = speaker.say("likely_then", before=speaker.likely(before), after=speaker.likely(after)) if known else ""
    left = len(found["changes"]) - MOST_CHANGES
    facts = [speaker.say("distance", distance=speaker.cost(found["distance"]))]
    if found["rung"] is not None:
        facts.append(speaker.say("rung", rung=found["rung"]))
    return AnswerShown(
        cut(sentence, LONGEST_SENTENCE).short,
        cut(region, LONGEST_SENTENCE).short,
        tuple(cut(line, LONGEST_SENTENCE).short for line in more),
        tuple(islice(_changes(found, pictures, speaker), MOST_CHANGES)),
        speaker.say("more_changes", count=left) if left > 0 else "",
        told,
        (round(100 * before, 1), round(100 * after, 1)) if known else None,
        proof_of(record, found, speaker),
        found["proof"],
        tuple(facts),
    )


def changes_of(found: Record, features: Mapping[str, Feature]) -> Iterator[Change]:
    """Yield the changes of a counterfactual of a reply, which tells values as text, with the values themselves."""
    for told in found["changes"]:
        name = told["feature"]
        yield Change(name, _value(told["from"], features.get(name)), found["row"].get(name))


def _changes(found: Record, pictures: Pictures, speaker: Speaker) -> Iterator[ChangeShown]:
    sides = {side["feature"]: side for side in found["region"] or ()}
    for change in changes_of(found, pictures.known):
        name = change.feature
        before, after = speaker.pair(change)
        allowed = _allowed(sides.get(name, {}), pictures.known.get(name))
        picture = pictures.marked(name, change.old, change.new, allowed)
        yield ChangeShown(cut(speaker.name(name)), cut(before), cut(after), picture)


def _allowed(side: Record, feature: Feature | None) -> dict[str, list[Level]]:
    told = {"levels": side.get("levels", ()), "ends": [side[end] for end in ("low", "high") if end in side]}
    values = {key: [_value(text, feature) for text in texts] for key, texts in told.items()}
    return {key: [value for value in some if value is not None] for key, some in values.items()}


def _value(text: str | None, feature: Feature | None) -> Level | None:
    """Return the value that a reply tells as text."""
    if text is None or feature is None or feature.kind == "date":
        return text
    if feature.numeric:
        try:
            return int(text) if feature.kind == "integer" else float(text)
        except ValueError:
            return text
    return next((level for level in feature.known if written(level) == text), text)


def proof_of(record: Record, found: Record, speaker: Speaker) -> str:
    """Return in words what is proved of a counterfactual."""
    solver, bound, plans = found["solver"], found["bound"], record["explainer"] in PLANNERS
    if solver is not None and solver["proof"] == "optimal":
        return speaker.say("least", objective=solver["objective"])
    if found["proof"] == "optimal":
        return speaker.say("cheapest" if plans else "optimal")
    if found["proof"] == "bounded" and bound is not None:
        return speaker.say("no_cheaper" if plans else "bounded", bound=speaker.cost(bound))
    return speaker.say("none")


def _reasons(told: Record, speaker: Speaker) -> Iterator[Section]:
    lines = [" ".join(filter(None, (factor["code"], _factor(factor, speaker)))) for factor in told["factors"]]
    if told["alarm"]:
        lines.append(speaker.say("alarm", features=", ".join(map(speaker.name, told["alarm"]))))
    if lines:
        yield Section(speaker.say("reasons"), tuple(cut(line, LONGEST_SENTENCE).short for line in lines))


def _factor(factor: Record, speaker: Speaker) -> str:
    values = ((one["feature"], _value(one["value"], speaker.features.get(one["feature"]))) for one in factor["values"])
    return factor["text"] or ", ".join(f"{speaker.name(name)}: {speaker.value(value, name)}" for name, value in values)


def _levers(record: Record, speaker: Speaker) -> Iterator[Section]:
    sets, told = record["levers"], record["responsiveness"]
    lines = [_named(one["features"], speaker) for one in sets if one["status"] == "found"]
    if sets and not lines:
        lines.append(speaker.say("no_levers"))
    more = {"not_alone": ("infeasible",), "unknown_levers": ("not_found", "budget")}
    counts = {phrase: sum(one["status"] in some for one in sets) for phrase, some in more.items()}
    lines = lines[:MOST_LISTED] + [speaker.say(phrase, count=count) for phrase, count in counts.items() if count]
    shares = sorted((one for one in told["shares"] if one["share"]), key=lambda one: -float(one["share"]))
    for one in shares[:MOST_LISTED]:
        share = f"{one['share']:.0%}" if one["share"] >= 0.005 else "< 1%"
        lines.append(speaker.say("share", share=share, features=_named(one["features"], speaker)))
    if told["responsive"] is False:
        lines.append(speaker.say("unresponsive"))
    if lines:
        yield Section(speaker.say("levers"), tuple(cut(line, LONGEST_SENTENCE).short for line in lines))


def _named(features: Sequence[str], speaker: Speaker) -> str:
    return " + ".join(map(speaker.name, features))


def cut(text: str, most: int = LONGEST) -> Text:
    """Return as much of a text as there is room for."""
    if len(text) <= most:
        return Text(text)
    return Text(f"{text[: most - 1]}…", text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 1]}…")
