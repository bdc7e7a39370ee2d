"""Turn pydantic's findings into our errors: path, fact, nearest fix."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeVar

from pydantic import BaseModel, Field, StrictFloat, StrictInt, StrictStr, ValidationError
from pydantic_core import ErrorDetails

from mlflow_cf.errors import InputError, did_you_mean, joined

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)  # it has no public name

# what pydantic's errors about a type ask for
TYPES: Final = {
    "bool_type": "true or false",
    "string_type": "a text",
    "int_type": "a number",
    "float_type": "a number",
    "model_type": "an object",
    "dict_type": "an object",
    "mapping_type": "an object",
    "tuple_type": "a list",
    "none_required": "null",
}
MOST_READ: Final = 400  # findings of pydantic's, of which a message tells the first few
LARGEST = 1e150  # beyond, sums of squares overflow
Number = (
    Annotated[StrictInt, Field(ge=-int(LARGEST), le=int(LARGEST))]
    | Annotated[StrictFloat, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
)


Model = TypeVar("Model", bound=BaseModel)


class _Called(ModelMetaclass):
    """What happens when a class is called by its user; values inside of others are validated without a call."""

    def __call__(cls: type[Model], *given: Any, **values: Any) -> Model:  # type: ignore[misc]  # noqa: N805  a class
        """Return an object; what is wrong is told as with the dict in its place."""
        names: tuple[str, ...] = getattr(cls, "POSITIONAL", ())
        if twice := set(names[: len(given)]) & set(values):
            raise TypeError(f"{cls.__name__} got {min(twice)} twice")
        data = {**dict(zip(names, given, strict=False)), **values}
        try:
            made: Model = super().__call__(*given[len(names) :], **data)  # type: ignore[misc]
        except ValidationError as error:
            raise input_errors(error, cls.__name__.lower(), cls, data) from None
        return made


class UserModel(BaseModel, metaclass=_Called):
    """A model that users make themselves: its errors are `InputError`, below its name in lower case.

    Attributes:
        POSITIONAL: the fields that may be given without their names.
    """

    POSITIONAL: ClassVar[tuple[str, ...]] = ()


def validated(kind: type[Model], data: object, path: str) -> Model:
    """Return `data` as a model of this kind.

    Raises:
        InputError: everything that is wrong with it, below `path`.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise input_errors(error, path, kind, data) from None


def input_errors(error: ValidationError, path: str, model: type[BaseModel], data: object) -> InputError:
    """Return one error (or several in one) for everything pydantic found wrong with `data`, below `path`."""
    found: dict[tuple[str, ...], list[ErrorDetails]] = {}
    items = error.errors(include_url=False, include_context=True, include_input=True)
    for item in items[:MOST_READ]:
        found.setdefault(tuple(_location(item["loc"], data, missing=item["type"] == "missing")), []).append(item)
    outer = {names[:end] for names in found for end in range(len(names))}
    told = (
        InputError(".".join(filter(None, [path, *names])), *_told(items, model, list(names)))
        for names, items in found.items()
        # one member of a union fits, but for what is wrong inside of it
        if names not in outer or any(item["type"] not in TYPES for item in items)
    )
    return joined(told)


def _told(items: list[ErrorDetails], model: type[BaseModel], names: list[str]) -> tuple[str, str]:
    """Return fact and fix for what was found at one place: one error, or one per member of a union."""
    item = next((item for item in items if item["type"] not in TYPES), items[0])
    if item["type"] == "extra_forbidden":
        fields = _model_at(model, names[:-1]).model_fields
        return "not a known key", did_you_mean(
            names[-1], [field.alias or name for name, field in fields.items()], "keys"
        )
    got = _shown(item.get("input"))
    if item["type"] == "tuple_type":
        field = _model_at(model, names[:-1]).model_fields.get(names[-1]) if names else None
        texts = field is not None and field.annotation == tuple[StrictStr, ...] and isinstance(item["input"], str)
        return f"must be a list, got {got}", f"write {json.dumps([item['input']])}" if texts else ""
    if len(items) > 1 and item["type"] in TYPES:
        *others, last = dict.fromkeys(TYPES[each["type"]] for each in items)
        return f"must be {', '.join(others)}{' or ' if others else ''}{last}, got {got}", ""
    return f"{item['msg'][0].lower()}{item['msg'][1:]}, got {got}", ""


def _location(loc: tuple[int | str, ...], data: object, *, missing: bool) -> list[str]:
    """Keep the parts of `loc` that are places in `data`, or `missing` there; pydantic mixes in those of a union."""
    names: list[str] = []
    for last, part in enumerate(loc, start=1 - len(loc)):
        if isinstance(data, Mapping) and (part in data or (last == 0 and missing)):
            names.append(str(part))
            data = data.get(part)
        elif isinstance(part, int) and isinstance(data, Sequence) and not isinstance(data, str):
            names[-1:] = [f"{names[-1]}[{part}]"] if names else [f"[{part}]"]
            data = data[part] if part < len(data) else None
    return names


def _model_at(model: type[BaseModel], names: list[str]) -> type[BaseModel]:
    """Return the model of a place: `model`, or the nested one that its field holds."""
    for name in names:
        field = model.model_fields.get(name.split("[")[0])
        nested = field.annotation if field else None
        candidates = [nested, *getattr(nested, "__args__", ())]
        inner = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
        if inner is not None:
            model = inner
    return model


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
