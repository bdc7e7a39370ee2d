"""What is kept of one explained row: enough to find it, to read it, and to compute it again and compare."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal

import pandas as pd

from mlflow_cf.errors import InputError
from mlflow_cf.explained import ExplainedModel
from mlflow_cf.features import FeatureSpace, Rows
from mlflow_cf.policy import Trace
from mlflow_cf.records.document import canonical, digest
from mlflow_cf.words.result import Explanation

SCHEMA_VERSION: Final = 1
ATTRIBUTE: Final = "cf.record"  # of the span: everything that is neither its inputs nor its outputs
MOST_CHARS: Final = 65_536  # of a row, a query or an answer as JSON; what is longer is kept as its digest
FACTS: Final = ("prediction", "probability", "status", "explainer", "seed", "evaluations")  # no values of a row
MOST_TAG: Final = 4_000  # characters of a tag's value; MLflow keeps 4,096
FACTS_TAG: Final = "cf.facts"
UNTRACED_TAG: Final = "cf.untraced"
FACTS_OF_ONE: Final = ("prediction", "probability", "distance", "n_changed", "proof", "bound")  # of a counterfactual

Values = Mapping[str, Any]  # of JSON


@dataclass(frozen=True)
class AnsweredBy:
    """What answered.

    Attributes:
        model_id: MLflow's id of the logged model; "" for a folder that was saved without logging.
        manifest_sha256: digest of the manifest, and with it of everything the explained model consists of.
        versions: of the libraries that take part.
    """

    model_id: str
    manifest_sha256: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class AskedFor:
    """What a request asked for, as far as it holds for all its rows.

    Attributes:
        query: its options as JSON values; `read_query` reads them again.
        target: the wanted outcome, the policy's where the request named none.
        explainer: name and all options of what searched.
        max_evaluations: rows scored per explained row, at most.
        rows: how many rows the request had, explained or not.
    """

    query: Values
    target: Values
    explainer: Values
    max_evaluations: int
    rows: int


@dataclass(frozen=True)
class Record:
    """One explained row.

    Attributes:
        origin: what answered.
        asked: what it was asked for.
        position: number of the row in its request, from 0.
        row: its values by feature, None for a missing one; None where only the digest is kept.
        row_sha256: digest of its values.
        answer: the record of the reply; without any value of a row where `digested`.
        digested: whether the answer is kept by digests.
        cut: what ended the search early: "", ``evaluations`` or ``clock``.
        seconds: that the row took, on average over the rows that were explained with it.
    """

    origin: AnsweredBy
    asked: AskedFor
    position: int
    row: Values | None
    row_sha256: str
    answer: Values
    digested: bool
    cut: str
    seconds: float

    def inputs(self) -> dict[str, Any]:
        """Return what a trace shows as asked."""
        row = {"sha256": self.row_sha256} if self.row is None else {"row": self.row}
        return {**row, "query": self.asked.query}

    def facts(self) -> dict[str, Any]:
        """Return what is neither shown as asked nor as answered."""
        data = asdict(self)
        for key in ("row", "answer"):
            del data[key]
        del data["asked"]["query"]
        return {"schema_version": SCHEMA_VERSION, **data}

    def tags(self) -> dict[str, str]:
        """Return what traces are searched by."""
        cut = {"cf.cut": self.cut} if self.cut else {}
        return {
            "cf.status": str(self.answer["status"]),
            "cf.prediction": str(self.answer["prediction"])[:250],
            "cf.explainer": str(self.answer["explainer"])[:250],
            "cf.model_id": self.origin.model_id,
            "cf.row_sha256": self.row_sha256,
            FACTS_TAG: facts_of(self.answer, self.seconds),
            **cut,
        }

    @classmethod
    def read(cls, inputs: Any, outputs: Any, facts: Any) -> Record:
        """Rebuild a record from the inputs and outputs of a trace and from `facts`.

        Raises:
            InputError: no trace of ours, or one of an unknown version.
        """
        try:
            version = facts["schema_version"]
            if version == SCHEMA_VERSION:
                data = {field.name: facts[field.name] for field in fields(cls) if field.name not in ("row", "answer")}
                data["origin"] = AnsweredBy(**data["origin"])
                data["asked"] = AskedFor(query=dict(inputs["query"]), **data["asked"])
                answer = {key: outputs[key] for key in (*FACTS, "counterfactuals")} | outputs
                return cls(**data, row=inputs.get("row"), answer=answer)
        except (KeyError, TypeError, ValueError, AttributeError):
            fix = "pass the id of a trace whose tags have a cf.status"
            raise InputError("trace", "does not hold an explanation of a served model", fix) from None
        raise InputError("trace", f"is of version {version!r}, known is {SCHEMA_VERSION}", "install a newer mlflow-cf")


def row_values(space: FeatureSpace, rows: Rows, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the plain values of some rows of a request, by their number; those that cannot be coded have none."""
    table = space.read(rows).iloc[list(numbers)].reset_index(drop=True)
    covering, codes, faults = space.encode_covered(table)
    return {number: covering.values(codes[place]) for place, number in enumerate(numbers) if place not in faults}


def table_of(space: FeatureSpace, row: Values) -> pd.DataFrame:
    """Return the table (1, d) of one row's plain values, in the background's own types.

    Raises:
        InputError: values that are no row of this space.
    """
    try:
        table = space.from_values([dict(row)])
        same = row_values(space, table, [0]).get(0) == row
    except (KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise InputError("trace", "its row does not fit the features of the model", "name the model that answered it")
    return table


def record_of(
    explanation: Explanation, values: Values, position: int, origin: AnsweredBy, asked: AskedFor, mode: Trace
) -> Record:
    """Return what is kept of a row with these `values` and its explanation."""
    reply = explanation.to_dict()
    digested = mode == "digests" or _too_long(reply)
    # rows that were never searched were cut by the clock
    cut = explanation.diagnostics.get("cut") or ("clock" if explanation.status == "budget" else "")
    return Record(
        origin=origin,
        asked=asked,
        position=position,
        row=None if mode == "digests" or _too_long(values) else values,
        row_sha256=digest(values),
        answer=digested_answer(reply) if digested else reply,
        digested=digested,
        cut=str(cut),
        seconds=float(explanation.diagnostics.get("seconds", 0.0)),
    )


def digested_answer(reply: Values) -> dict[str, Any]:
    """Return the record of a reply with digests in place of all that repeats values of the row."""
    return {
        **{key: reply[key] for key in FACTS},
        "reason_sha256": digest(reply["reason"]),
        "counterfactuals": [
            {
                "changed": [change["feature"] for change in found["changes"]],
                **{key: found[key] for key in FACTS_OF_ONE},
                "sha256": digest(found),
            }
            for found in reply["counterfactuals"]
        ],
    }


def facts_of(answer: Values, seconds: float) -> str:
    """Return what monitoring needs of an answer, as JSON for a tag: so that nobody has to fetch spans for it.

    It has no value of a row: which features the nearest counterfactual changes, its distance and proof, and the seconds
    that the row took. Names of features that are too long for a tag are left out.
    """
    nearest = min(answer["counterfactuals"], key=lambda found: found["distance"], default=None)
    facts: dict[str, Any] = {"seconds": round(seconds, 6)}
    if nearest is not None:
        facts |= {name: nearest[name] for name in ("distance", "n_changed", "proof")}
        changed = nearest["changed"] if "changed" in nearest else [one["feature"] for one in nearest["changes"]]
        named = {**facts, "changed": changed}
        if len(canonical(named)) <= MOST_TAG:
            facts = named
    return canonical(facts)


def _too_long(value: Any) -> bool:
    return len(canonical(value)) > MOST_CHARS


Verdict = Literal["identical", "cut", "different"]
# The model's own numbers for the row, which libraries round otherwise in a table of another size.
OF_THE_TABLE: Final = ("prediction", "probability")
ABSENT: Final = "nothing"


@dataclass(frozen=True)
class Difference:
    """One value that is not what was answered: where it stands in the record of the reply, then and now."""

    path: str
    answered: Any
    computed: Any

    def __str__(self) -> str:
        return f"{self.path}: was {self.answered!r}, is {self.computed!r}"


@dataclass(frozen=True)
class Replay:
    """What came of computing an explanation again.

    Attributes:
        verdict: ``identical``; ``different``; ``cut`` where it differs and the clock had ended the search, so that it
            cannot be expected to be identical.
        differences: what differs.
        notes: what else is to be known: another artifact, other libraries.
    """

    verdict: Verdict
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "verdict": self.verdict,
            "differences": [asdict(difference) for difference in self.differences],
            "notes": list(self.notes),
        }


def replay(record: Record, explained: ExplainedModel, rows: Rows | None = None) -> Replay:
    """Compute a recorded explanation again.

    Query, seed and evaluations are those of the record. There is no clock, unless it was the clock that ended the
    search: then the same limit holds again.

    Args:
        record: what was answered.
        explained: the model that answered it, or another one to compare with.
        rows: the row among others, where the record holds its digest alone.

    Raises:
        InputError: the row is not at hand, does not fit the model, or the query goes beyond its policy.
    """
    table = _row(record, explained, rows)
    query = {**record.asked.query, "seed": record.answer["seed"], "max_evaluations": record.asked.max_evaluations}
    (again,) = explained.request(table, {"counterfactual": query}, timed=record.cut == "clock")
    computed = digested_answer(again.to_dict()) if record.digested else again.to_dict()
    tolerance = explained.model.tolerance if record.asked.rows > 1 else 0.0
    found = tuple(
        difference
        for difference in differences("", dict(record.answer), json.loads(json.dumps(computed)))
        if not (difference.path in OF_THE_TABLE and _near(difference, tolerance))
    )
    verdict: Verdict = "identical" if not found else "cut" if record.cut == "clock" else "different"
    return Replay(verdict, found)


def _row(record: Record, explained: ExplainedModel, rows: Rows | None) -> pd.DataFrame:
    """Return the table (1, d) of the recorded row, which must have the recorded digest."""
    space, row = explained.space, record.row
    if rows is not None:
        known = row_values(space, rows, range(len(rows))).values()
        row = next((values for values in known if digest(values) == record.row_sha256), None)
        if row is None:
            fact = f"none of {len(rows)} has the digest of the trace, {record.row_sha256[:12]}..."
            raise InputError("rows", fact, "pass the very row that was explained, with all its columns")
    elif row is None:
        fact = "it holds a digest of its row instead of the row"
        raise InputError("trace", fact, "pass the row, perhaps among others: --rows FILE")
    elif digest(row) != record.row_sha256:
        raise InputError("trace", "its row has another digest than was noted with it", "look for who changed it")
    return table_of(space, row)


def differences(path: str, old: Any, new: Any) -> Iterator[Difference]:
    """Yield where two JSON values differ, each at the deepest place; 1 and 1.0 are the same, 1 and true are not."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*old, *new)):
            yield from differences(f"{path}.{key}" if path else key, old.get(key, ABSENT), new.get(key, ABSENT))
    elif isinstance(old, list) and isinstance(new, list):
        for place in range(max(len(old), len(new))):
            pair = (both[place] if place < len(both) else ABSENT for both in (old, new))
            yield from differences(f"{path}[{place}]", *pair)
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield Difference(path, old, new)


def _near(difference: Difference, tolerance: float) -> bool:
    """Whether two numbers differ by rounding alone."""
    both = (difference.answered, difference.computed)
    if not all(isinstance(value, float) for value in both):
        return False
    return math.isclose(*both, rel_tol=tolerance, abs_tol=tolerance)
