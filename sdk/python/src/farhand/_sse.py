"""Server-sent events, decoded without I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ._effects import Unreachable

LONGEST_LINE = 16 << 20
"""Bytes of the longest line. A longer one is no stream of the gateway."""


@dataclass(frozen=True)
class Event:
    """One event."""

    id: str
    kind: str
    data: Any
    """The event's JSON."""


class Decoder:
    """Decodes a stream of server-sent events, however it is cut into pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._id = self._kind = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[Event]:
        """Return the events that a piece of the stream completes. What is no event stream is a failure of it."""
        self._rest += piece
        if b"\n" not in piece:
            if len(self._rest) > LONGEST_LINE:
                raise Unreachable("a line of the event stream is too long", sent=True)
            return []
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        return [event for event in (self._line(bytes(line)) for line in lines) if event is not None]

    def _line(self, raw: bytes) -> Event | None:
        line = raw.decode("utf-8", "replace").rstrip("\r")
        if not line:
            data, kind = "\n".join(self._data), self._kind
            self._data, self._kind = [], ""
            if not data:
                return None
            try:
                return Event(self._id, kind, json.loads(data))
            except ValueError:
                raise Unreachable("an event is not JSON", sent=True) from None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id":
            self._id = value
        return None
