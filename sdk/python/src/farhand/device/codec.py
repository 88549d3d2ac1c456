"""Codecs of single values: their JSON Schemas, and what arguments become."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

Schema = dict[str, Any]
"""A JSON Schema (2020-12)."""


class ArgumentError(ValueError):
    """An argument that the annotation of its parameter does not allow."""


class Keywords:
    """Keywords of a JSON Schema, for ``Annotated[int, Keywords(minimum=1, maximum=10)]``. The gateway checks them."""

    def __init__(self, **keywords: Any) -> None:
        self.schema: Schema = keywords


@dataclass(frozen=True)
class Codec:
    """The JSON Schema of a type, and how a JSON value becomes one of it.

    ``read`` gets the value, and where it stands in the arguments, for an :class:`ArgumentError`.
    """

    schema: Schema
    read: Callable[[Any, str], Any]


def read_object(value: Any, where: str) -> dict[str, Any]:
    """Returns a value that must be an object."""
    if not isinstance(value, dict):
        refuse(where, "an object", value)
    return value


def refuse(where: str, wanted: str, value: object) -> NoReturn:
    """Raises the error of a value that has another type."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    raise ArgumentError(f"{where} is {names.get(type(value), 'a number')}, not {wanted}")


def _read_null(value: Any, where: str) -> None:
    if value is not None:
        refuse(where, "null", value)


def _read_str(value: Any, where: str) -> str:
    return value if isinstance(value, str) else refuse(where, "a string", value)


def _read_bool(value: Any, where: str) -> bool:
    return value if isinstance(value, bool) else refuse(where, "a boolean", value)


def _read_int(value: Any, where: str) -> int:
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 1.0 is an integer of JSON Schema
    return value if isinstance(value, int) and not isinstance(value, bool) else refuse(where, "an integer", value)


def _read_float(value: Any, where: str) -> float:
    try:
        return (
            float(value)
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else refuse(where, "a number", value)
        )
    except OverflowError:
        refuse(where, "a number of double precision", value)


def _read_datetime(value: Any, where: str) -> datetime:
    try:
        return datetime.fromisoformat(_read_str(value, where).replace("Z", "+00:00"))
    except ValueError:
        refuse(where, "a date and time as RFC 3339 has it", value)


def _read_date(value: Any, where: str) -> date:
    try:
        return date.fromisoformat(_read_str(value, where))
    except ValueError:
        refuse(where, "a date such as 2026-01-31", value)


def scalar(annotation: Any) -> Codec | None:
    """Returns the codec of a type without members, None if it is none."""
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        values = choice(tuple(member.value for member in annotation))
        return Codec(values.schema, lambda value, where: annotation(values.read(value, where)))
    return next((codec for kind, codec in _scalars if kind is annotation), None)


_scalars: list[tuple[type, Codec]] = [
    (str, Codec({"type": "string"}, _read_str)),
    (bool, Codec({"type": "boolean"}, _read_bool)),
    (int, Codec({"type": "integer"}, _read_int)),
    (float, Codec({"type": "number"}, _read_float)),
    (type(None), Codec({"type": "null"}, _read_null)),
    (datetime, Codec({"type": "string", "format": "date-time"}, _read_datetime)),
    (date, Codec({"type": "string", "format": "date"}, _read_date)),
]


def choice(values: tuple[Any, ...]) -> Codec:
    """Returns the codec of a Literal or an Enum."""
    kinds = {str: "string", bool: "boolean", int: "integer", type(None): "null"}
    used = {type(value) for value in values}
    if not used <= kinds.keys():
        raise TypeError(f"the values {values!r} are not all strings, integers, booleans or None")
    schema: Schema = {"enum": list(values)}
    if len(used) == 1:
        schema = {"type": kinds[used.pop()], **schema}

    def read(value: Any, where: str) -> Any:
        for each in values:
            if type(each) is type(value) and each == value:
                return each
        raise ArgumentError(f"{where} is none of {', '.join(map(str, values))}")

    return Codec(schema, read)
