"""Tools, and how functions become tools."""

from __future__ import annotations

import inspect
import typing
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .call import Call, SyncCall
from .frames import encode, some
from .records import Field, object_of
from .schema import Codecs

if TYPE_CHECKING:
    from .codec import Codec, Schema
    from .threads import Threads

SecurityLevel = Literal["safe", "user_confirm", "admin_only"]
"""``user_confirm``: calls need approval; ``admin_only``: only for admins, never for models."""


class Hints(TypedDict, total=False):
    """The effects of a call, for people and models."""

    readOnlyHint: bool
    destructiveHint: bool
    idempotentHint: bool
    openWorldHint: bool


Effects = TypedDict(
    "Effects",
    {
        "class": Literal["read", "write", "external", "people"],
        "needs_foreground": bool,
        "permission": str,
        "cost": Literal["free", "metered", "high"],
        "typical_ms": int,
    },
    total=False,
)
"""What a tool declares about its calls: see docs/tools.md of the gateway."""


Job = Callable[[Call, "Threads"], Awaitable[Any]]
"""Runs a handler whose arguments are checked."""


@dataclass(frozen=True)
class Tool:
    """A tool with a JSON Schema from elsewhere. ``Device.tool`` makes tools of functions."""

    name: str
    """A letter, then letters, digits, ``_``, ``.`` or ``-``; at most 64 characters."""
    description: str
    """What the tool does, for a model. The gateway keeps 1,024 characters."""
    handler: Callable[[dict[str, Any], Call], Awaitable[Any]]
    """Answers a call. The gateway has checked the arguments."""
    parameters: Mapping[str, Any] | None = None
    """The JSON Schema of the arguments, which are an object. None: any arguments."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON Schema of the output. The gateway marks answers that break it."""
    timeout: float | None = None
    """Default timeout of callers, in seconds."""
    hints: Hints | None = None
    effects: Effects | None = None
    tags: Sequence[str] | None = None
    """Up to 16 short names by which callers filter tools."""
    security: SecurityLevel | None = None
    """Default: ``safe``."""


@dataclass(frozen=True)
class Offer:
    """A tool that is ready to be registered and called."""

    name: str
    definition: str
    """As register_tools has it, in JSON."""
    prepare: Callable[[dict[str, Any]], Job]
    """Checks the arguments of a call. It raises an ArgumentError if they are wrong."""


def offer(tool: Tool, prepare: Callable[[dict[str, Any]], Job] | None = None) -> Offer:
    """Makes an offer of a tool. ``prepare`` replaces its handler. It raises a ValueError if the tool is malformed."""
    if not _is_name(tool.name):
        raise ValueError(f"the tool name {tool.name!r} is malformed")
    definition = some(
        name=tool.name,
        description=tool.description,
        parameters=tool.parameters,
        output_schema=tool.output_schema,
        timeout_ms=None if tool.timeout is None else int(tool.timeout * 1000),
        annotations=tool.hints,
        effects=tool.effects,
        tags=None if tool.tags is None else list(tool.tags),
        security_level=tool.security,
    )
    run = prepare or (lambda args: lambda call, threads: tool.handler(args, call))
    return Offer(tool.name, encode(definition), run)


def offer_of(
    function: Callable[..., Any], *, name: str | None = None, description: str | None = None, **options: Any
) -> Offer:
    """Makes an offer of a function. It raises a TypeError if the function cannot be a tool; see ``Device.tool``."""
    label = getattr(function, "__name__", repr(function))
    about = inspect.cleandoc(description) if description else inspect.getdoc(function)
    if not about:
        raise TypeError(f"{label} needs a docstring, or a description: models choose tools by it")
    try:
        schema, codec, wants_call = _parameters(function)
    except (TypeError, NameError) as error:
        raise TypeError(f"{label}: {error}") from error
    plain = not inspect.iscoroutinefunction(function)

    def prepare(args: dict[str, Any]) -> Job:
        arguments = codec.read(args, "")

        async def run(call: Call, threads: Threads) -> Any:
            if wants_call:
                arguments[wants_call] = SyncCall(call) if plain else call
            if plain:
                return await threads.run(lambda: function(**arguments))
            return await function(**arguments)

        return run

    return offer(Tool(name or label, about, _unused, schema, **options), prepare)


async def _unused(args: dict[str, Any], call: Call) -> None:
    """Is the handler of a tool that is made of a function."""


def _parameters(function: Callable[..., Any]) -> tuple[Schema, Codec, str]:
    """Returns the schema of a function's parameters, their codec, and the name of the one that gets the call."""
    hints = typing.get_type_hints(function, include_extras=True)
    wanted = Call if inspect.iscoroutinefunction(function) else SyncCall
    codecs = Codecs()
    fields: dict[str, Field] = {}
    others: Codec | None = None
    wants_call = ""
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        if hint is Call or hint is SyncCall:
            if hint is not wanted:
                raise TypeError(
                    f"{parameter.name} must be a {wanted.__name__}: async functions get a Call, others a SyncCall"
                )
            wants_call = parameter.name
        elif parameter.kind is parameter.VAR_KEYWORD:
            others = codecs.of(hint)
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise TypeError(f"the parameter {parameter.name} has no name for callers")
        elif parameter.default is parameter.empty:
            fields[parameter.name] = Field(codecs.of(hint), required=True)
        else:
            fields[parameter.name] = Field(codecs.of(hint), required=False, default=parameter.default)
    codec = object_of(fields, dict, others)
    schema = codec.schema
    if codecs.definitions:
        schema = {**schema, "$defs": codecs.definitions}
    return schema, codec, wants_call


def _is_name(name: str) -> bool:
    """Whether a text can be a tool's name; the gateway checks the rest (docs/protocol.md)."""
    kinds = [unicodedata.category(character) for character in name]
    return (
        0 < len(name) <= 64
        and unicodedata.is_normalized("NFC", name)
        and (name[0] == "_" or kinds[0][0] == "L" or kinds[0] == "Nd")
        and all(c in "_.-" or kind[0] in "LM" or kind == "Nd" for c, kind in zip(name, kinds, strict=True))
    )
