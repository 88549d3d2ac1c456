"""The frames of docs/protocol.md, as far as a device reads them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any

PROTOCOL_VERSION = 1
"""The version of the protocol, which the device states when it connects."""

Frame = dict[str, Any]
"""A frame of the gateway. Its ``type`` says which fields it has."""

_DAY = 24 * 60 * 60.0


@dataclass(frozen=True)
class Limits:
    """What a gateway announces with session_start. The defaults are those of a gateway that announces nothing."""

    frame_bytes: float = 1 << 20
    output_bytes: float = 1 << 20
    frames_per_second: float = 500
    frame_burst: float = 1000

    @classmethod
    def announced(cls, value: object) -> Limits:
        """Returns the limits of a frame. What is missing or no positive number keeps its default."""
        given = value if isinstance(value, dict) else {}
        limits = {field.name: number(given.get(field.name)) for field in fields(cls)}
        return cls(**{name: limit for name, limit in limits.items() if limit > 0})


@dataclass(frozen=True)
class Rejection:
    """A tool that the gateway does not offer, and why."""

    name: str
    reason: str


def parse(message: str | bytes) -> Frame | None:
    """Returns the frame of a message, None if it is none."""
    if isinstance(message, bytes):
        return None
    try:
        frame = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return frame if isinstance(frame, dict) and isinstance(frame.get("type"), str) else None


def encode(frame: object) -> str:
    """Returns the JSON of a value, which can be sent: lone surrogates, as in odd file names, are escaped."""
    whole = json.dumps(frame, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        whole.encode()
    except UnicodeEncodeError:
        return json.dumps(frame, separators=(",", ":"), allow_nan=False)
    return whole


def some(**members: Any) -> Frame:
    """Returns an object without the members that are None."""
    return {name: value for name, value in members.items() if value is not None}


def text(value: object) -> str:
    """Returns a string; "" for what is none."""
    return value if isinstance(value, str) else ""


def number(value: object, otherwise: float = 0.0) -> float:
    """Returns a finite number; ``otherwise`` for what is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return otherwise
    try:
        return float(value) if math.isfinite(value) else otherwise
    except OverflowError:
        return otherwise


def items(value: object) -> list[Any]:
    """Returns a list; an empty one for what is none."""
    return value if isinstance(value, list) else []


def seconds(milliseconds: object, otherwise: float = 0.0) -> float:
    """Returns a time to wait in seconds, at least nothing and at most a day. ``otherwise`` is in seconds, too."""
    return min(max(number(milliseconds, otherwise * 1000) / 1000, 0.0), _DAY)


def size(value: str) -> int:
    """Returns the length of a text in bytes."""
    return len(value.encode(errors="surrogatepass"))


def cut(value: str, most: float) -> str:
    """Returns the beginning of a text that has at most so many bytes, whole characters only."""
    return value.encode(errors="replace")[: max(0, int(most))].decode(errors="ignore")
