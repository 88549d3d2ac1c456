"""Images, sounds and files of a result."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import enum
import json
import mimetypes
import os
from dataclasses import dataclass, field
from datetime import date, datetime, time
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from .frames import some

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .frames import Limits

Data = bytes | bytearray | memoryview | str | os.PathLike[str]
"""Bytes, or the path of a file."""

_INLINE_BYTES = 1 << 20  # what the gateway takes within an answer, of all parts together


@dataclass(frozen=True)
class Part:
    """An image, a sound or a file of a result. Make it with :func:`image`, :func:`audio` or :func:`file`."""

    type: Literal["image", "audio", "file"]
    mime_type: str
    """Lower case, without parameters, such as ``image/png``."""
    data: bytes | Path = field(repr=False)
    name: str | None = None
    """Name of the file, for people."""
    url: str | None = None
    """Where it was uploaded to; None: it was not. Set by ``Call.upload``."""

    def measure(self) -> int:
        """Returns the length in bytes. It looks at the file, if the data is one."""
        return self.data.stat().st_size if isinstance(self.data, Path) else len(self.data)


@dataclass(frozen=True)
class Result:
    """A handler's result with parts, at most 16."""

    output: Any = None
    """As a handler returns it without parts."""
    parts: tuple[Part, ...] | list[Part] = ()


def image(data: Data, mime_type: str | None = None, name: str | None = None) -> Part:
    """Makes an image of a result. By default the name of the file says its MIME type."""
    return _part("image", data, mime_type, name)


def audio(data: Data, mime_type: str | None = None, name: str | None = None) -> Part:
    """Makes a sound of a result. By default the name of the file says its MIME type."""
    return _part("audio", data, mime_type, name)


def file(data: Data, mime_type: str | None = None, name: str | None = None) -> Part:
    """Makes a file of a result; also a video. A file on disk is not read into memory when it is uploaded."""
    return _part("file", data, mime_type, name)


def _part(kind: Literal["image", "audio", "file"], data: Data, mime_type: str | None, name: str | None) -> Part:
    content: bytes | Path
    if isinstance(data, (str, os.PathLike)):
        content = Path(data)
        name = name or content.name
    else:
        content = bytes(data)
    whole = mime_type or mimetypes.guess_type(name or "")[0] or ("application/octet-stream" if kind == "file" else "")
    mime = whole.split(";")[0].strip().lower()
    if "/" not in mime:
        raise ValueError(f"a part of the type {kind} needs a MIME type")
    return Part(kind, mime, content, name)


async def answer_of(returned: object, limits: Limits, upload: Callable[[Part], Awaitable[Part]]) -> dict[str, Any]:
    """Returns the fields output and parts of a tool_result. Parts that do not fit into it are uploaded."""
    result = Result("", (returned,)) if isinstance(returned, Part) else returned
    if not isinstance(result, Result):
        return {"output": _output(result)}
    room = min(_INLINE_BYTES, limits.output_bytes / 2)  # base64 takes four bytes for three
    parts = []
    for given in result.parts:
        size = await asyncio.to_thread(given.measure)
        part = given if given.url or size <= room else await upload(given)
        data = None
        if not part.url:
            room -= size
            content = part.data if isinstance(part.data, bytes) else await asyncio.to_thread(part.data.read_bytes)
            data = base64.b64encode(content).decode()
        parts.append(some(type=part.type, mime_type=part.mime_type, name=part.name, size=size, url=part.url, data=data))
    return {"output": _output(result.output), "parts": parts}


def _output(value: object) -> object:
    """Returns a value as JSON has it; "" for None."""
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value.value) if isinstance(value, enum.Enum) else value
    return json.loads(json.dumps(value, default=_plain, allow_nan=False))


def _plain(value: Any) -> object:
    """Returns the JSON of a value that the json package does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):  # of pydantic
        return value.model_dump(mode="json")
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (UUID, PurePath)):
        return str(value)
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, (bytes, bytearray, memoryview, Part)):
        raise TypeError("return bytes as an image, audio or file, several of them in a Result")
    raise TypeError(f"a {type(value).__name__} is no JSON value")
