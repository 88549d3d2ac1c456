"""What operations ask of their driver.

An operation is a generator without I/O: it yields what it needs and receives the answer. The drivers of the
asynchronous and the synchronous client run the same operations, so each rule stands in the code once.

    answer = yield Send(request)
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from .errors import error_of

T = TypeVar("T")

ANSWER_TIMEOUT = 30.0
"""Seconds in which the gateway answers a request that does not wait for anything."""


@dataclass(frozen=True)
class Request:
    """A request to the gateway."""

    method: str
    path: str
    """Percent-encoded, from the root of the gateway."""
    query: Mapping[str, str | list[str]] = field(default_factory=dict)
    body: bytes | None = None
    """JSON."""
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = ANSWER_TIMEOUT
    """Seconds for the whole answer, or between two pieces of a stream."""
    anonymous: bool = False
    """Send no token."""


@dataclass(frozen=True)
class Response:
    """The answer to a request. Of a stream it is the head, without a body."""

    status: int
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes = b""

    def json(self) -> Any:
        """Return the body as JSON, or raise the gateway's error."""
        self.check()
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            raise Unreachable("the answer is not JSON", sent=True) from None

    def check(self) -> None:
        """Raise the gateway's error, if the answer is one.

        Errors of a proxy before the gateway are failures of the transport.
        """
        if self.status < 300:
            return
        try:
            problem = json.loads(self.body)
        except ValueError:
            problem = None
        if isinstance(problem, dict) and "code" in problem:
            raise error_of(problem, status=self.status, retry_after=self._retry_after())
        if self.status >= 500:
            raise Unreachable(f"a proxy answered with status {self.status}", sent=True)
        raise error_of({}, status=self.status)

    def _retry_after(self) -> float | None:
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() else None


class Unreachable(Exception):
    """The transport failed. Drivers throw it into an operation in place of an answer."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent
        """Whether the gateway may have received the request."""


class Abandoned(BaseException):
    """The caller has stopped waiting. An operation may clean up with a few more effects, then raises it again."""

    def __init__(self, answer: Response | None = None, *, sent: bool = False) -> None:
        self.answer = answer
        """The answer to the effect in progress, if the effect was to be settled and the answer came."""
        self.sent = sent
        """The gateway may have received a request to settle, and its answer did not come."""


@dataclass(frozen=True)
class Send:
    """Send a request. The answer is a Response."""

    request: Request
    settle: bool = False
    """If the caller stops waiting: get the answer first, so that the operation can undo what the request began."""


@dataclass(frozen=True)
class Open:
    """Send a request whose answer is a stream. The answer is the head; errors have their body."""

    request: Request


@dataclass(frozen=True)
class Read:
    """Read the open stream. The answer is some bytes; none: it has ended."""


@dataclass(frozen=True)
class Sleep:
    """Wait for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Emit:
    """Give a value to the iteration over the operation."""

    value: Any


Effect = Send | Open | Read | Sleep | Emit
Operation = Generator[Effect, Any, T]


def path(*segments: str) -> str:
    """Return a path of percent-encoded segments."""
    return "".join("/" + quote(segment, safe="") for segment in segments)


def get(at: str, query: Mapping[str, Any] | None = None, timeout: float = ANSWER_TIMEOUT) -> Request:
    """Return a GET request. Parameters that are None are left out."""
    return Request("GET", at, clean(query or {}), timeout=timeout)


def clean(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are not None, in the spelling of query parameters."""
    spelled = {True: "true", False: "false"}
    return {
        name: spelled[value] if isinstance(value, bool) else value if isinstance(value, list) else str(value)
        for name, value in values.items()
        if value is not None
    }
