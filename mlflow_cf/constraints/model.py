"""Constraints as users write them: Python objects, dicts, YAML or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    model_validator,
)

from mlflow_cf.constraints.actions import MAX_ACTIONS, MAX_RELATIONSHIPS, Action, Relationship, listed
from mlflow_cf.constraints.equations import CausalEquation, Names
from mlflow_cf.errors import InputError
from mlflow_cf.plaf import is_program, parse_program
from mlflow_cf.validation import Number, UserModel, validated

MAX_RULES = 256
MAX_EQUATIONS = 32
LevelValue = StrictBool | StrictStr | Number
Bound = Number | StrictStr | None


class Relative(BaseModel):
    """How far a number may move from the query row's own value, in its unit or in percent; None: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    up: Annotated[Number, Field(ge=0)] | None = None
    down: Annotated[Number, Field(ge=0)] | None = None
    up_percent: Annotated[Number, Field(ge=0)] | None = None
    down_percent: Annotated[Number, Field(ge=0)] | None = None


class Constraints(UserModel):
    """What a counterfactual must respect; all keys together, each compiled to rules.

    Attributes:
        immutable: features that keep the query row's value.
        increasing, decreasing: features that may only grow, or only shrink (numbers and ordinals).
        ranges: feature -> (low, high), inclusive; None leaves an end open; ordinals take their levels.
        relative: feature -> limits relative to the query row's own value.
        levels: feature -> the values it may take.
        forbidden: feature -> transitions (from, to) that are not allowed.
        groups: features that change together and only to combinations the background has.
        max_changes: largest number of changed groups (a feature in no group counts as one).
        rules: PLAF rules over several features, such as ``IF x_cf.degree > x.degree THEN x_cf.age >= x.age + 4``.
        causal: numbers that follow other features, and only these.
        actions: what can be done, each once; relationships: which features make it cheaper. They say nothing about
            which rows are counterfactuals: they make plans of them. In a request: those of the policy's actions that
            remain, by name and feature; it may narrow them, add conditions and raise efforts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    immutable: Names = ()
    increasing: Names = ()
    decreasing: Names = ()
    ranges: Mapping[StrictStr, tuple[Bound, Bound]] = Field(default_factory=dict)
    relative: Mapping[StrictStr, Relative] = Field(default_factory=dict)
    levels: Mapping[StrictStr, Annotated[tuple[LevelValue, ...], FailFast()]] = Field(default_factory=dict)
    forbidden: Mapping[StrictStr, Annotated[tuple[tuple[LevelValue, LevelValue], ...], FailFast()]] = Field(
        default_factory=dict
    )
    groups: Annotated[tuple[Names, ...], FailFast()] = ()
    max_changes: Annotated[StrictInt, Field(ge=1)] | None = None
    rules: tuple[StrictStr, ...] = Field(default=(), max_length=MAX_RULES)
    causal: Annotated[tuple[CausalEquation, ...], FailFast()] = Field(default=(), max_length=MAX_EQUATIONS)
    actions: Annotated[tuple[Action, ...], FailFast()] = Field(default=(), max_length=MAX_ACTIONS)
    relationships: Annotated[tuple[Relationship, ...], FailFast()] = Field(default=(), max_length=MAX_RELATIONSHIPS)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, data: Any) -> Any:
        """Let a null key count as left out, as it does among the options of a request."""
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}

    @classmethod
    def read(cls, source: ConstraintSource, path: str = "constraints") -> Constraints:
        """Return constraints from an object, a dict, a YAML or JSON file, PLAF text (or file), or None for none.

        Raises:
            InputError: an unknown key or a value of the wrong form; every error names its path.
        """
        if source is None:
            return cls()
        if isinstance(source, Constraints):
            return source
        data = dict(source) if isinstance(source, Mapping) else _read_text(source, path)
        if isinstance(edges := data.get("relationships"), Mapping):
            data["relationships"] = listed(edges, f"{path}.relationships")
        return validated(cls, data, path)

    def to_dict(self) -> dict[str, Any]:
        """Return the keys that are set, as plain JSON values; of a Python function its name alone."""
        return self.model_dump(mode="json", exclude_defaults=True, by_alias=True)


ConstraintSource = Constraints | Mapping[str, Any] | str | Path | None


def _read_text(source: str | Path, path: str) -> dict[str, Any]:
    if isinstance(source, str) and is_program(source):
        return _from_plaf(source, path)
    if Path(source).suffix == ".plaf" and _exists(Path(source)):
        return _from_plaf(Path(source).read_text(encoding="utf-8"), path)
    return _read_file(Path(source), path)


def _from_plaf(text: str, path: str) -> dict[str, Any]:
    program = parse_program(text, path)
    return {"groups": program.groups, "rules": tuple(map(str, program.rules))}


def _exists(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # text that is no name of a file at all, such as one that is too long
        return False


def _read_file(file: Path, path: str) -> dict[str, Any]:
    if not _exists(file):
        fix = "pass a dict, the path of a YAML or JSON file, or statements that start with PLAF or GROUP"
        raise InputError(path, f"no file at {str(file)[:60]!r}", fix)
    text = file.read_text(encoding="utf-8")
    try:
        data = json.loads(text) if file.suffix == ".json" else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError) as error:
        fact = f"{file.name} is not valid {'JSON' if file.suffix == '.json' else 'YAML'}"
        raise InputError(path, fact, str(error).replace("\n", " ")) from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InputError(path, f"{file.name} holds a {type(data).__name__}", "write one mapping of constraint keys")
    return data
