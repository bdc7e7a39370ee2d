"""The record of one answered row: a JSON document that carries a digest of its own content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt, StrictStr

from mlflow_cf.errors import InputError
from mlflow_cf.policy import Query, Target
from mlflow_cf.validation import validated

SCHEMA_VERSION: Final = 1
MOST_BYTES: Final = 4 * 1024**2
MOST_ANSWERS: Final = 1_000
_FIX: Final = 'write one with explained.record, or ask a server with "record": true'

Value = StrictBool | StrictInt | StrictFloat | StrictStr | None  # of a feature
Digest = Annotated[StrictStr, Field(pattern="^[0-9a-f]{64}$")]
Number = StrictInt | StrictFloat
RecordSource = Mapping[str, Any] | str | Path


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RecordedChange(_Part):
    """One feature that differs, its values as text; null is missing."""

    feature: StrictStr
    old: StrictStr | None = Field(alias="from")
    to: StrictStr | None


class RecordedSide(_Part):
    """The values that one feature may have in a region, as text."""

    feature: StrictStr
    low: StrictStr | None
    high: StrictStr | None
    levels: tuple[StrictStr, ...]
    maximal: StrictBool


class RecordedCounterfactual(_Part):
    """A counterfactual as it was answered.

    Attributes:
        row: every feature's value; changes: what differs from the row.
        prediction, probability, distance, n_changed: what was found out about it.
        proof, bound: what was proved of it.
        rung: of the target's ladder, from 1, if that has one.
        region: a box in which every admissible row is a counterfactual, if there is one.
        text: the sentence.
    """

    row: dict[StrictStr, Value]
    changes: tuple[RecordedChange, ...]
    prediction: Value
    probability: Number | None
    distance: Number
    n_changed: StrictInt
    proof: Literal["optimal", "bounded", "none"]
    bound: Number | None
    rung: Annotated[StrictInt, Field(ge=1)] | None
    region: tuple[RecordedSide, ...] | None
    text: StrictStr


class RecordedAnswer(_Part):
    """What was answered for the row: the model's prediction, the counterfactuals, and who searched."""

    prediction: Value
    probability: Number | None
    reason: StrictStr
    counterfactuals: Annotated[tuple[RecordedCounterfactual, ...], Field(max_length=MOST_ANSWERS)]
    evaluations: StrictInt


class RecordedProof(_Part):
    """What was claimed, and how it was found.

    Attributes:
        status: of the explanation; ``infeasible`` is proved, and so are ``optimal`` and ``bounded`` counterfactuals.
        way: the explainer that searched.
        certified: whether certificates were asked for.
    """

    status: Literal["found", "already", "infeasible", "not_found", "budget", "busy", "skipped", "invalid"]
    way: StrictStr
    certified: StrictBool


class Record(_Part):
    """The record of one answered row.

    Attributes:
        schema_version: of this format.
        mlflow_cf: the version that wrote it.
        model_sha256: digest of the model: its features, its labels, and what it says of the background.
        policy_sha256: digest of the policy's canonical JSON.
        query: the options of the request; those left out came from the policy.
        served: whether a request asked, which may see less of the background than the owner.
        seed: of the search.
        row: the row as given, by feature; null is missing.
        answer: what was answered.
        proof: what was claimed.
        sha256: digest of the canonical JSON (sorted keys, no spaces, UTF-8) of all the above.
    """

    schema_version: Literal[1]
    mlflow_cf: StrictStr
    model_sha256: Digest
    policy_sha256: Digest
    query: dict[StrictStr, Any]
    served: StrictBool
    seed: StrictInt
    row: dict[StrictStr, Value]
    answer: RecordedAnswer
    proof: RecordedProof
    sha256: Digest


def digest(value: Any) -> str:
    """Return the sha256 of a value's canonical JSON: sorted keys, no spaces, numbers as Python writes them."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()


def canonical(value: Any) -> str:
    """Return the canonical JSON of plain values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a record with the digest of it."""
    return {**content, "sha256": digest(content)}


def is_edited(document: Mapping[str, Any]) -> bool:
    """Whether the content of a document is another than its digest says."""
    try:
        return digest({key: value for key, value in document.items() if key != "sha256"}) != document.get("sha256")
    except (ValueError, TypeError, RecursionError):  # what JSON cannot hold
        return True


def read_document(source: RecordSource) -> dict[str, Any]:
    """Return the JSON object of a record: itself, of a text, or of the file at a path.

    Raises:
        InputError: no such file, too large, no JSON, no object, or of another schema version.
    """
    named = isinstance(source, str) and not source.lstrip().startswith(("{", "["))
    if isinstance(source, str) and named and _is_file(source):
        named, source = False, Path(source)
    if isinstance(source, Path):
        source = _text(source)
    if isinstance(source, str):
        if len(source) > MOST_BYTES:
            raise InputError("record", f"is larger than {MOST_BYTES:,} bytes", "pass a single record")
        try:
            source = json.loads(source, parse_constant=_no_number, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            fact = "is neither JSON nor the path of a file" if named else f"is not JSON ({error})"
            raise InputError("record", fact, _FIX) from None
    if not isinstance(source, Mapping):
        raise InputError("record", f"a {type(source).__name__} is not an object", _FIX)
    found = source.get("schema_version")
    if found is None:
        raise InputError("record.schema_version", "is missing", _FIX)
    if type(found) is not int or found < 1:
        raise InputError("record.schema_version", f"must be a number from 1, got {str(found)[:40]!r}", _FIX)
    if found > SCHEMA_VERSION:
        fact = f"{str(found)[:20]} is newer than {SCHEMA_VERSION}, which this version of mlflow-cf knows"
        raise InputError("record.schema_version", fact, "install a newer mlflow-cf")
    return dict(source)


def read_record(document: Mapping[str, Any]) -> Record:
    """Return the record of a document that was not edited.

    Raises:
        InputError: keys that are missing, unknown or of another form, each with its path.
    """
    return validated(Record, dict(document), "record")


def query_values(query: Query) -> dict[str, Any]:
    """Return the options of a request that were set, as JSON values; `Query.read` reads them again."""
    asked = {key: getattr(query, key) for key in query.model_fields_set}
    plain = query.model_dump(mode="json", include=set(asked) - {"constraints", "target"})
    if "constraints" in asked:
        plain["constraints"] = query.constraints.to_dict()
    if "target" in asked:
        plain["target"] = query.target.to_dict() if isinstance(query.target, Target) else query.target
    return plain


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # no path can be so long, or have such characters
        return False


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise InputError("record", f"is larger than {MOST_BYTES:,} bytes", "pass a single record")
        return raw.decode("utf-8")
    except OSError as error:
        fact = f"{str(path)!r} cannot be read ({error.strerror})"
        raise InputError("record", fact, "check the path") from None
    except UnicodeDecodeError:
        raise InputError("record", "is not UTF-8", _FIX) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice in one object")
    return found


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")
