"""The error of connections, pairings, uploads and conversations."""

from __future__ import annotations

import json

from .frames import number, text

_DAY = 24 * 60 * 60.0


class DeviceError(Exception):
    """The error of a connection, a pairing, an upload or a conversation.

    ``code`` is the gateway's (of its problem documents, error frames, and reasons of close frames), or one of the
    SDK's: ``unreachable`` (no gateway answers), ``disconnected``, ``silent`` (a connection without a sign of life),
    ``slow`` (the gateway does not read), ``stopped``, ``cancelled``, ``rejected`` (a pairing), ``busy``, ``store``,
    ``in_use`` (another process has the file).
    """

    def __init__(self, code: str, message: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        """Status of the HTTP answer; 0: there was none."""
        self.retry_after = retry_after
        """Seconds until the next attempt can succeed; 0: the gateway did not say."""


def message_of(error: BaseException) -> str:
    """Returns the text of an error for a caller."""
    if isinstance(error, KeyError):  # its text is only the key
        return f"KeyError: {error}"
    return str(error) or type(error).__name__


def as_device_error(error: BaseException) -> DeviceError:
    """Returns the error itself, or one with the code ``internal``."""
    return error if isinstance(error, DeviceError) else DeviceError("internal", message_of(error))


def refused(status: int, body: bytes | str, retry_after: str | None) -> DeviceError:
    """Returns the error of an HTTP answer. The body may be a problem document."""
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        problem = None  # not from a gateway
    if not isinstance(problem, dict):
        problem = {}
    try:
        seconds = min(max(number(float(retry_after or 0)), 0.0), _DAY)
    except ValueError:
        seconds = 0.0  # a date, which gateways do not send
    detail = text(problem.get("detail")) or "the gateway refused the request"
    code = text(problem.get("code")) or f"http_{status}"
    return DeviceError(code, f"{detail} (HTTP status {status})", status, seconds)
