"""Codecs of what has fields: dataclasses, TypedDicts, models of pydantic, and the parameters of a function."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .codec import ArgumentError, Codec, Schema, read_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .schema import Codecs

_wrappers = [  # of the fields of a TypedDict
    wrapper
    for module in ("typing", "typing_extensions")
    for name in ("Required", "NotRequired", "ReadOnly")
    if (wrapper := getattr(sys.modules.get(module), name, None)) is not None
]


_NONE = object()


@dataclass(frozen=True)
class Field:
    """A field of a record."""

    codec: Codec
    required: bool
    default: Any = _NONE


def object_of(fields: Mapping[str, Field], make: Callable[[dict[str, Any]], Any], others: Codec | None = None) -> Codec:
    """Returns the codec of an object with fields, and with others if they have a codec."""
    schema: Schema = {"type": "object"}
    if fields:
        schema["properties"] = {name: _with_default(field) for name, field in fields.items()}
    if required := [name for name, field in fields.items() if field.required]:
        schema["required"] = required
    if others is None:
        schema["additionalProperties"] = False
    elif others.schema:
        schema["additionalProperties"] = others.schema

    def read(value: Any, where: str) -> Any:
        values = {}
        for name, each in read_object(value, where).items():
            codec = fields[name].codec if name in fields else others
            at = f"{where}.{name}" if where else name
            if codec is None:
                raise ArgumentError(f"{at} is unknown")
            values[name] = codec.read(each, at)
        for name, field in fields.items():
            if field.required and name not in values:
                raise ArgumentError(f"{where}.{name} is missing" if where else f"{name} is missing")
        return make(values)

    return Codec(schema, read)


def _with_default(field: Field) -> Schema:
    default = field.default.value if isinstance(field.default, enum.Enum) else field.default
    try:
        json.dumps(default, allow_nan=False)
    except (TypeError, ValueError):
        return field.codec.schema  # none, or one that JSON does not have
    return {**field.codec.schema, "default": default}


def record(codecs: Codecs, annotation: Any) -> Codec | None:
    """Returns the codec of a class with fields, None if it has none."""
    if hasattr(annotation, "__pydantic_validator__") or hasattr(annotation, "__get_pydantic_core_schema__"):
        return _pydantic(codecs, annotation)
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return _dataclass(codecs, annotation)
    if typing.is_typeddict(annotation) or hasattr(annotation, "__required_keys__"):  # also of typing_extensions
        return _typed_dict(codecs, annotation)
    return None


def _dataclass(codecs: Codecs, annotation: type[Any]) -> Codec:
    hints = typing.get_type_hints(annotation, include_extras=True)
    fields = {}
    for field in dataclasses.fields(annotation):
        if not field.init:
            continue
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        fields[field.name] = Field(codecs.of(hints[field.name]), required, field.default)
    return object_of(fields, lambda values: annotation(**values))


def _typed_dict(codecs: Codecs, annotation: Any) -> Codec:
    fields = {}
    for name, hint in typing.get_type_hints(annotation, include_extras=True).items():
        required = name in annotation.__required_keys__
        while (wrapper := typing.get_origin(hint)) in _wrappers:
            # With postponed annotations, __required_keys__ does not know the wrappers.
            if "Required" in str(wrapper):
                required = "NotRequired" not in str(wrapper)
            (hint,) = typing.get_args(hint)
        fields[name] = Field(codecs.of(hint), required)
    return object_of(fields, lambda values: values)


def pydantic_field(codecs: Codecs, annotation: Any, metadata: list[Any]) -> Codec | None:
    """Returns the codec of an annotation with metadata of pydantic, such as Field(ge=1). None: it has none."""
    of_pydantic = ("pydantic", "pydantic_core", "annotated_types")
    if any(type(each).__module__.split(".")[0] in of_pydantic for each in metadata):
        return _pydantic(codecs, annotation)
    return None


def _pydantic(codecs: Codecs, annotation: Any) -> Codec:
    import pydantic  # which the annotation comes from, so it is installed

    adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(annotation)
    schema = adapter.json_schema()
    for name, definition in schema.pop("$defs", {}).items():
        codecs.define(name, definition)

    def read(value: Any, where: str) -> Any:
        try:
            return adapter.validate_python(value)
        except pydantic.ValidationError as error:
            problems = []
            for each in error.errors(include_url=False, include_context=False, include_input=False):
                problems.append(".".join([where, *map(str, each["loc"])]) + f": {each['msg']}")
            raise ArgumentError("; ".join(problems)) from error

    return Codec(schema, read)
