"""The facts of an explained model as text for a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

import pandas as pd

from mlflow_cf.features import FeatureSpace
from mlflow_cf.words.sentences import counted, spoken

INDENT: Final = 13
WIDTH: Final = 100
CONSTANTS_SHOWN: Final = 12  # names of constant features
SCORES: Final = {"probability": "probabilities", "score": "scores", "margin": "margins", "none": "no scores"}

Facts = Mapping[str, Any]


class Description(dict[str, Any]):
    """The facts of an explained model: a dict for programs, text for a terminal, and a table for notebooks."""

    def __str__(self) -> str:
        return description(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the facts as a table, with a line per feature."""
        from mlflow_cf import cards  # noqa: PLC0415  templates that no server needs

        head, *lines = _rows(self["features"])
        features = pd.DataFrame(lines, columns=list(head))
        return cards.page(cards.facts(_blocks(self).items()), cards.table(features))


def description(facts: Facts) -> str:
    """Return what `ExplainedModel.describe` says as lines of text, one block per fact."""
    blocks = dict[str, Sequence[str]]()
    for name, block in _blocks(facts).items():
        blocks[name] = [*block, *_table(facts["features"])] if name == "background" else block
    return "\n".join(line for name, block in blocks.items() for line in _block(name, block))


def _blocks(facts: Facts) -> dict[str, Sequence[str]]:
    """Return what there is to say, line by line, by what it is about."""
    policy, limits, explainer = facts["policy"], facts["policy"]["limits"], facts["explainer"]
    options = _listed(explainer["options"])
    blocks: dict[str, Sequence[str]] = {
        "model": [_model(facts)],
        "structure": [facts["structure"]],
        "steps": list(_steps(facts)),
        "parity": [] if facts["parity"] is None else [_parity(facts["parity"])],
        "surrogate": [] if facts["surrogate"] is None else [_surrogate(facts["surrogate"])],
        "target": [_listed(policy["target"])],
        "constraints": list(constraints_told(policy["constraints"])) or ([] if facts["causal"] else ["none"]),
        "requirements": list(_requirements(facts)),
        "causal": [_causal(fact) for fact in facts["causal"]],
        "values": [policy["values"]],
        "distance": [_listed(policy["distance"])],
        "explainer": [f"{explainer['name']} ({options})" if options else str(explainer["name"])],
        "limits": [
            f"a row: {counted(limits['count'], 'counterfactual')}, {limits['max_evaluations']:,} evaluations",
            f"a request: {limits['time_limit_s']:g} s",
            f"at once: {counted(facts['explained_at_once'], 'request')}",
        ],
        "background": [f"{facts['background_rows']:,} rows"],
        "warnings": facts["warnings"],
        "notes": facts["notes"],
    }
    return {name: block for name, block in blocks.items() if block}


def summary(facts: Facts) -> str:
    """Return what is most worth knowing of an explained model on one line."""
    target, explainer = _listed(facts["policy"]["target"]), facts["explainer"]["name"]
    count = counted(len(facts["features"]), "feature")
    return f"{facts['flavor']}, {count}, target {target}, explainer {explainer}, {facts['structure']}"


def notes_on_constants(space: FeatureSpace) -> list[str]:
    """Return what is to be noted of features that have a single value, if there are some."""
    names = [feature.name for feature in space.features if feature.constant]
    shown = ", ".join(names[:CONSTANTS_SHOWN]) + (", ..." if len(names) > CONSTANTS_SHOWN else "")
    return [f"never proposed, because constant in the background ({len(names)}): {shown}"] if names else []


def _block(name: str, lines: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        head = (name if number == 0 else "").ljust(INDENT)
        if "  " in line:  # part of a table, or indented
            yield head + line
        else:
            yield from wrap(line, WIDTH, initial_indent=head, subsequent_indent=" " * INDENT, break_on_hyphens=False)


def _model(facts: Facts) -> str:
    if not facts["classes"]:
        return f"{facts['flavor']}, predicts a number"
    decides = ", the largest decides" if facts["largest_score_decides"] else ""
    return f"{facts['flavor']}, labels {_value(facts['classes'])}, {SCORES[facts['score']]}{decides}"


def _requirements(facts: Facts) -> Iterator[str]:
    """Yield under what else answers hold, and what is known of the models that say so."""
    for path, note in facts["requirements"].items():
        if path != "survival":
            yield f"{path}: {note}"
            continue
        survival = facts["policy"]["survival"]
        asked = "" if survival["required"] else ", where a request asks for it"
        share = f"{survival['holds']:.4g} of later models with confidence {survival['confidence']:.4g}"
        yield f"survival: {note}; answers hold under {share}{asked}"


def _steps(facts: Facts) -> Iterator[str]:
    """Yield the steps of a model, where there are several, or where one of them is not opened."""
    steps = facts["steps"]
    if len(steps) < 2 and facts["opened"]:
        return
    told = set()
    for step in steps:
        named = f"{step['step']} ({step['kind']})" if step["step"] else step["kind"]
        yield f"{named}: opened" if step["opened"] else f"{named}: not opened: {step['why']}"
        if step["fix"] is not None and step["why"] not in told:  # a whole fails for what is inside of it
            yield f"to open it: {step['fix']}"
        told.add(step["why"])


def _parity(parity: Facts) -> str:
    most = f"{parity['worst_difference']:.1e} ({parity['tolerance']:.0e} is allowed)"
    ties = parity["ties"]
    labels = f"{counted(ties, 'label')} differ by rounding alone" if ties else "no label differs"
    return f"on {parity['rows']:,} rows {labels}, and no score by more than {most}"


def _surrogate(surrogate: Facts) -> str:
    """Return what guides searches of a model that is not opened."""
    labels = surrogate["measure"] == "labels"
    told = f"gives {surrogate['agreement']:.1%} of them its label" if labels else f"R2 {surrogate['agreement']:.3f}"
    fitted = f"fitted to what the model says of {surrogate['rows']:,} background rows, {told}"
    return f"{surrogate['kind']}; {fitted}; proposes candidates, decides nothing"


def _causal(fact: Facts) -> str:
    if fact["r2"] is not None:
        fit = f"{fact['structure']}, R2 {fact['r2']:.2f}"
    else:
        fit = "given" if fact["structure"] == "linear" else f"given, {fact['structure']}"
    return f"{fact['child']} follows {' and '.join(fact['parents'])} ({fit})"


def constraint_blocks(constraints: Facts) -> dict[str, list[str]]:
    """Return constraints, as plain values, line by line, by their key."""
    blocks = dict[str, list[str]]()
    for line in constraints_told(constraints):
        key, _, rest = line.partition(":")
        if line.startswith("  "):
            blocks[next(reversed(blocks))].append(line.strip())
        else:
            blocks[key] = [rest.strip()] if rest else []
    causal = [f"{one['child']} follows {' and '.join(one['parents'])}" for one in constraints.get("causal", ())]
    return blocks | ({"causal": causal} if causal else {})


def constraints_told(constraints: Facts) -> Iterator[str]:
    """Yield the constraints of a policy, one or a few lines for each key."""
    for key, value in constraints.items():
        if key == "rules":
            yield "rules:"
            yield from (f"  {rule}" for rule in value)
        elif key == "actions":
            yield "actions:"
            yield from (f"  {action['name']} ({action['feature']})" for action in value)
        elif key == "relationships":
            helped = (f"{edge['from']} -> {edge['to']}" for edge in value)
            yield f"cheaper by: {', '.join(helped)}"
        elif key != "causal":  # told with what was learned
            yield f"{key}: {_value(value)}"


def _rows(features: Mapping[str, Facts]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield the names of columns, then what is known of each feature."""
    yield "feature", "kind", "values", "step", "missing"
    for name, fact in features.items():
        step = "" if fact["step"] is None or fact["constant"] else spoken(fact["step"])
        values = "constant" if fact["constant"] else spoken(fact["values"])
        yield name, fact["kind"], values, step, "yes" if fact["missing"] else ""


def _table(features: Mapping[str, Facts]) -> Iterator[str]:
    """Yield the features as the lines of a table; numbers are aligned to the right."""
    rows = list(_rows(features))
    name_width, kind_width, values_width, step_width, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
    for name, kind, values, step, missing in rows:
        cells = (name.ljust(name_width), kind.ljust(kind_width), values.rjust(values_width), step.rjust(step_width))
        yield "  ".join([*cells, missing]).rstrip()


def _listed(facts: Facts) -> str:
    return ", ".join(f"{key} {_value(value)}" for key, value in facts.items() if value is not None and value != {})


def _value(value: Any) -> str:
    """Return a value of a policy on one line, much as in a YAML file."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_inner(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_inner, value))
    return json.dumps(value) if value is None or isinstance(value, bool) else spoken(value)


def _inner(value: Any) -> str:
    return f"[{_value(value)}]" if isinstance(value, list) else _value(value)
