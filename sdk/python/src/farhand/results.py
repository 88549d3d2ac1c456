"""What a call returns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from . import types
from .errors import FarhandError, ToolFailedError, error_of


@dataclass(frozen=True)
class Result:
    """The answer of a tool that ran and succeeded.

    ``farhand.read(part)`` returns the bytes of a part, also if the gateway stores them as a file.
    """

    call_id: str
    """The call's id. Its record is at ``farhand.record(call_id)``."""
    output: str
    """The tool's text."""
    structured: Any = None
    """The output as JSON, if the device sent JSON other than a string."""
    parts: list[types.Part] = field(default_factory=list)
    """Images, sounds and files."""
    session_id: str | None = None
    """The session that ran the tool. None: a tool of the gateway."""
    device_id: str | None = None
    """The device that ran the tool, if it named itself."""
    violations: list[types.OutputViolationsItem] = field(default_factory=list)
    """Where the output breaks the tool's output schema. The output is unchanged."""

    @property
    def images(self) -> list[types.Part]:
        """The parts that are images."""
        return [part for part in self.parts if part["type"] == "image"]

    def text(self) -> str:
        """Return the output, and a line for each part, as a language model that sees no parts should read it."""
        lines = [self.output] if self.output else []
        for part in self.parts:
            lines.append(f"[{part.get('name') or part['type']}: {part['mime_type']}, {part['size']} bytes]")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.output


@dataclass(frozen=True)
class DeviceResult:
    """What became of the call of one device of a group call."""

    state: str
    """``queued``: the call waits for its device, and there is neither a result nor an error."""
    call_id: str | None = None
    session_id: str | None = None
    device_id: str | None = None
    result: Result | None = None
    error: FarhandError | None = None
    """Why there is no result. A ToolFailedError: the tool ran and failed."""
    place: int | None = None
    """Of a queued call: its place in the queue of its device, from 1 on."""
    expires_at: str | None = None
    """When a queued call expires."""


def device_result(row: Mapping[str, Any]) -> DeviceResult:
    """Return the result of a device from its row."""
    result, error = None, None
    if "success" in row or "problem" in row:
        try:
            result = outcome(row)
        except FarhandError as failure:
            error = failure
    return DeviceResult(
        row["state"],
        row.get("call_id"),
        row.get("session_id"),
        row.get("device_id"),
        result=result,
        error=error,
        place=row.get("place"),
        expires_at=row.get("expires_at"),
    )


def outcome(record: Mapping[str, Any]) -> Result:
    """Return the result of a finished call from its record, or raise what the record says."""
    if "success" not in record:
        raise _failure(record)
    result = Result(
        call_id=record["call_id"],
        output=record.get("output", ""),
        structured=record.get("structured"),
        parts=list(record.get("parts", [])),
        session_id=record.get("session_id"),
        device_id=record.get("device_id"),
        violations=list(record.get("output_violations", [])),
    )
    if not record["success"]:
        raise ToolFailedError(record.get("error") or result.output or "The tool failed.", result)
    return result


def _failure(record: Mapping[str, Any]) -> FarhandError:
    problem = dict(record.get("problem") or {"code": record.get("state", ""), "detail": "The call has no result."})
    for name in ("call_id", "dispatched", "retryable"):
        if name in record:
            problem.setdefault(name, record[name])
    return error_of(problem)


def compact(value: Any) -> bytes:
    """Return a value as JSON. Numbers that JSON does not have are an error."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
