"""Turn pydantic's findings into our errors: path, fact, nearest fix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, Field, StrictFloat, StrictInt, ValidationError

from mlflow_cf.errors import InputError, InputErrors, did_you_mean

LARGEST = 1e150  # beyond, sums of squares overflow
Number = (
    Annotated[StrictInt, Field(ge=-int(LARGEST), le=int(LARGEST))]
    | Annotated[StrictFloat, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
)


def input_errors(error: ValidationError, path: str, model: type[BaseModel], data: object) -> InputError:
    """Return one error (or several in one) for everything pydantic found wrong with `data`, below `path`."""
    found: dict[str, InputError] = {}
    for item in error.errors(include_url=False, include_context=True, include_input=True):
        names = _location(item["loc"], data)
        where = ".".join([path, *names]) if path else ".".join(names)
        fix = ""
        if item["type"] == "extra_forbidden":
            fact = "not a known key"
            fix = did_you_mean(names[-1], _fields_at(model, names[:-1]), "keys")
        else:
            fact = f"{item['msg'][0].lower()}{item['msg'][1:]}, got {_shown(item.get('input'))}"
        found.setdefault(where, InputError(where, fact, fix))
    errors = list(found.values())
    return errors[0] if len(errors) == 1 else InputErrors(errors)


def _location(loc: tuple[int | str, ...], data: object) -> list[str]:
    """Keep the parts of `loc` that are places in `data`; pydantic mixes in the names of a union's members."""
    names: list[str] = []
    for last, part in enumerate(loc, start=1 - len(loc)):
        if isinstance(data, Mapping) and (part in data or (last == 0 and isinstance(part, str))):
            names.append(str(part))
            data = data.get(part)
        elif isinstance(part, int) and isinstance(data, Sequence) and not isinstance(data, str):
            names[-1:] = [f"{names[-1]}[{part}]"] if names else [f"[{part}]"]
            data = data[part] if part < len(data) else None
    return names


def _fields_at(model: type[BaseModel], names: list[str]) -> list[str]:
    """Return the keys known at a place: those of `model`, or of the nested model its field holds."""
    for name in names:
        field = model.model_fields.get(name.split("[")[0])
        nested = field.annotation if field else None
        candidates = [nested, *getattr(nested, "__args__", ())]
        inner = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
        if inner is not None:
            model = inner
    return list(model.model_fields)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
