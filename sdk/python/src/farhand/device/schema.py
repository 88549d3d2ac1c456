"""Codecs of annotations."""

from __future__ import annotations

import collections.abc
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from .codec import ArgumentError, Codec, Keywords, Schema, choice, read_object, refuse, scalar
from .records import pydantic_field, record

if TYPE_CHECKING:
    from collections.abc import Callable


class Codecs:
    """Makes the codecs of one tool. ``definitions`` collects what their schemas refer to."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._open: list[object] = []  # records that are being made

    def of(self, annotation: Any) -> Codec:
        """Returns the codec of an annotation. It raises a TypeError if there is none."""
        if annotation is Any or annotation is object:
            return Codec({}, lambda value, _: value)
        if annotation is None:
            annotation = type(None)
        origin = typing.get_origin(annotation)
        if origin is Annotated:
            return self._annotated(annotation)
        if origin is Literal:
            return choice(typing.get_args(annotation))
        if origin in (Union, types.UnionType):
            return self._union(typing.get_args(annotation))
        if isinstance(annotation, typing.NewType):
            return self.of(annotation.__supertype__)
        made = scalar(annotation) or self._container(origin or annotation, typing.get_args(annotation))
        if made is not None:
            return made
        if annotation in self._open:
            raise TypeError(f"{annotation!r} contains itself: give the tool its JSON Schema as parameters")
        self._open.append(annotation)
        try:
            made = record(self, annotation)
        finally:
            self._open.pop()
        if made is None:
            raise TypeError(f"{annotation!r} has no JSON Schema: give the tool one as parameters")
        return made

    def define(self, name: str, schema: Schema) -> None:
        """Adds a definition, which schemas refer to as ``#/$defs/name``."""
        if self.definitions.setdefault(name, schema) != schema:
            raise TypeError(f"two different models have the name {name}")

    def _annotated(self, annotation: Any) -> Codec:
        inner, *metadata = typing.get_args(annotation)
        codec = pydantic_field(self, annotation, metadata) or self.of(inner)
        schema = dict(codec.schema)
        for each in metadata:
            if isinstance(each, str):
                schema["description"] = each
            elif isinstance(each, Keywords):
                schema.update(each.schema)
        return Codec(schema, codec.read)

    def _union(self, members: tuple[Any, ...]) -> Codec:
        codecs = [self.of(member) for member in members]

        def read(value: Any, where: str) -> Any:
            problems = []
            for codec in codecs:
                try:
                    return codec.read(value, where)
                except ArgumentError as problem:
                    problems.append(str(problem))
            raise ArgumentError(problems[0] if len(problems) < 3 else f"{where}: no type of the union takes the value")

        return Codec({"anyOf": [codec.schema for codec in codecs]}, read)

    def _container(self, kind: Any, of: tuple[Any, ...]) -> Codec | None:
        if kind is tuple and of and of[-1] is not Ellipsis:
            return self._tuple(of)
        if kind in (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable):
            make = kind if kind in (tuple, set, frozenset) else list
            return self._list(make, of[0] if of else Any)
        if kind in (dict, collections.abc.Mapping, collections.abc.MutableMapping):
            if of and of[0] is not str:
                raise TypeError(f"the keys of a dict are str, not {of[0]!r}")
            return self._dict(of[1] if of else Any)
        return None

    def _list(self, make: Callable[[list[Any]], Any], item: Any) -> Codec:
        codec = self.of(item)
        schema: Schema = {"type": "array", "items": codec.schema}
        if make in (set, frozenset):
            schema["uniqueItems"] = True

        def read(value: Any, where: str) -> Any:
            if not isinstance(value, list):
                refuse(where, "a list", value)
            return make([codec.read(each, f"{where}[{i}]") for i, each in enumerate(value)])

        return Codec(schema, read)

    def _tuple(self, members: tuple[Any, ...]) -> Codec:
        codecs = [self.of(member) for member in members]
        n = len(codecs)

        def read(value: Any, where: str) -> Any:
            if not isinstance(value, list) or len(value) != n:
                refuse(where, f"a list of {n}", value)
            return tuple(codec.read(value[i], f"{where}[{i}]") for i, codec in enumerate(codecs))

        schemas = [codec.schema for codec in codecs]
        return Codec({"type": "array", "prefixItems": schemas, "minItems": n, "maxItems": n}, read)

    def _dict(self, member: Any) -> Codec:
        codec = self.of(member)

        def read(value: Any, where: str) -> Any:
            return {name: codec.read(each, f"{where}.{name}") for name, each in read_object(value, where).items()}

        schema: Schema = {"type": "object"}
        return Codec({**schema, "additionalProperties": codec.schema} if codec.schema else schema, read)
