"""A report as one HTML file: rows with their cards as far as they fit, and everything else about all rows."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from mlflow_cf.cards import Pictures, card, definitions
from mlflow_cf.cards import style as card_style
from mlflow_cf.files.output import whole
from mlflow_cf.reporting.data import NOT_ASKED, PROOFS, STATUSES, Findings, Material, obstacle
from mlflow_cf.reporting.groups import groups_of
from mlflow_cf.reporting.overview import overview
from mlflow_cf.reporting.shapes import percent, short
from mlflow_cf.version import VERSION
from mlflow_cf.words.phrases import Language
from mlflow_cf.words.result import Explanation

MOST_BYTES: Final = 1_300_000  # of all rows with their cards: the page stays below 1.5 MB
PAGE: Final = "en"  # the language of all words but those of cards
LONGEST: Final = 60  # characters of a name where there is little room
NAMED: Final = 4  # changed features in the line of a row
# what a line says where there is little room
CHIPS: Final = {
    "found": "answer",
    "already": "as wanted",
    "infeasible": "none exists",
    "not_found": "none found",
    "budget": "stopped",
    "invalid": "unreadable",
    "busy": "busy",
    "skipped": "not asked",
}
SURE: Final = {"optimal": "proved nearest", "bounded": "bound proved", "none": "checked"}


@dataclass(frozen=True)
class RowLine:
    """A row as the page lists it.

    Attributes:
        label: what the row is called; status, proof: keys.
        changed: what its nearest answer changes; more: how many features beside those.
        why: what stands in the way of an answer.
        before, after: the probability of the wanted outcome, if the model gives one.
        distance: of the nearest answer, as text; far: as a number to sort by.
        card: all that is known of it.
    """

    label: str
    status: str
    proof: str
    changed: tuple[str, ...]
    more: int
    why: str
    before: str
    after: str
    distance: str
    far: float | None
    card: Markup


def page(material: Material) -> str:
    """Return the report as HTML."""
    findings = Findings(material)
    environment = _environment()
    pictures = pictures_of(material)
    rows = list(_fitting(material, environment, pictures))
    named = sorted(
        {change.feature for one in material.shown.values() for cf in one.counterfactuals for change in cf.changes}
    )
    script, style = _text("report.js"), _text("report.css")
    values = {
        "title": material.title,
        "sections": _sections(findings),
        "findings": findings,
        "overview": overview(findings),
        "versions": material.versions,
        "common": material.common,
        "guarantee": material.guarantee,
        "notes": [*material.notes, *_notes(findings, len(rows))],
        "rows": [line for _, line in rows],
        "index": _index(findings, rows),
        "statuses": STATUSES,
        "proofs": PROOFS,
        "card_style": card_style(),
        "drawings": definitions(pictures, named),
        "style": Markup(style),  # noqa: S704  our own file
        "script": Markup(script),  # noqa: S704  our own file
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "version": VERSION,
    }
    return environment.get_template("report.html.jinja").render(values)


def write(path: Path, text: str) -> None:
    """Write a page to a file that is there as a whole or, should anything fail, as it was.

    Raises:
        InputError: the path is a folder, or cannot be written to.
    """
    with whole(path, "path") as part:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8", errors="replace", newline="\n")


@cache
def _environment() -> Environment:
    environment = Environment(
        auto_reload=False,
        loader=PackageLoader("mlflow_cf.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "short": short, "cut": cut}
    environment.globals |= {"chips": CHIPS, "sure": SURE}
    return environment


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text that is not longer than so many characters, with an ellipsis where it was."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _text(name: str) -> str:
    return files("mlflow_cf.reporting").joinpath("templates", name).read_text(encoding="utf-8")


def _fitting(material: Material, environment: Environment, pictures: Pictures) -> Iterator[tuple[int, RowLine]]:
    """Yield the rows that are shown, in order, with their places; of too many bytes a sample is left out."""
    template = environment.get_template("row.html.jinja").module
    known: dict[int, tuple[RowLine, int]] = {}
    for place, one in material.shown.items():
        line = _line(material, place, one, pictures)
        known[place] = line, len(str(template.row(line, 0)).encode("utf-8", "replace"))  # type: ignore[attr-defined]
    left, kept = MOST_BYTES, set[int]()
    for place in np.random.default_rng(material.seed or 0).permutation(list(known)).tolist():
        left -= known[place][1]
        if left < 0:
            break
        kept.add(place)
    yield from ((place, line) for place, (line, _) in known.items() if place in kept)


def _line(material: Material, place: int, one: Explanation, pictures: Pictures) -> RowLine:
    """Return the line of a row."""
    speaker = material.speaker
    nearest = min(one.counterfactuals, key=lambda found: found.distance, default=None)
    changed = [speaker.name(change.feature) for change in nearest.changes] if nearest else []
    return RowLine(
        label=str(material.own["row"].iloc[place]),
        status=one.status,
        proof=nearest.proof if nearest else "",
        changed=tuple(changed[:NAMED]),
        more=max(len(changed) - NAMED, 0),
        why="" if nearest or one.status in NOT_ASKED else obstacle(one.reason, speaker),
        before=_probability(one.probability),
        after=_probability(nearest.probability) if nearest else "",
        distance=short(nearest.distance) if nearest else "",
        far=nearest.distance if nearest else None,
        card=_card(one, pictures, material.explained.policy.language),
    )


def _card(one: Explanation, pictures: Pictures, language: Language) -> Markup:
    told = card(one.to_dict(), pictures, language)
    return told if language == PAGE else Markup('<div lang="{}">{}</div>').format(language, told)


def pictures_of(material: Material) -> Pictures:
    """Return the distributions that cards draw; of a background that is no secret all of it, else no rare values."""
    explained = material.explained
    return Pictures(explained.space.features, explained.policy.privacy.rare, shared=True)


def _probability(value: float | None) -> str:
    return "" if value is None else percent(value)


def _index(findings: Findings, shown: list[tuple[int, RowLine]]) -> Mapping[str, Any]:
    """Return what rows are filtered and sorted by, as plain values: names once, and their numbers for each row."""
    own = findings.material.own.iloc[[place for place, _ in shown]]
    names: dict[str, dict[str, int]] = {"status": {}, "proof": {}, "group": {}, "feature": {}}
    rows, speaker = [], findings.material.speaker

    def number(kind: str, name: str) -> int:
        return names[kind].setdefault(name, len(names[kind]))

    for line, (_, row) in zip(own.to_dict("records"), shown, strict=True):
        groups = [number("group", group) for group in groups_of(line, findings.columns)]
        changed = [number("feature", speaker.name(str(name))) for name in line["changed"]]
        proof = [number("proof", line["proof"])] if line["status"] == "found" else []
        rows.append([[number("status", line["status"])], proof, groups, changed, row.far])
    told = {"status": STATUSES, "proof": PROOFS}
    labels = {
        kind: [(told[kind].get(name, name) if kind in told else name) for name in known]
        for kind, known in names.items()
    }
    return {"names": labels, "rows": rows}


def _sections(findings: Findings) -> list[tuple[str, str, bool]]:
    """Return the sections: their ids, what they are called, and whether they are there."""
    material = findings.material
    return [
        ("overview", "Overview", True),
        ("versions", "Versions", material.versions is not None),
        ("rows", "Rows", True),
        ("why", "What stands in the way", bool(findings.blocked)),
        ("changes", "Changes", bool(findings.features)),
        ("groups", "Groups", findings.by_group is not None),
        ("explainers", "Explainers", findings.side_by_side is not None),
        ("common", "Common changes", material.common is not None),
    ]


def _notes(findings: Findings, shown: int) -> Iterator[str]:
    """Yield what is to be said of the page itself."""
    if shown < findings.rows:
        yield (
            f"Cards are shown of {shown:,} of {findings.rows:,} rows: a sample, of those that miss the target first. "
            "All figures are of all rows."
        )
