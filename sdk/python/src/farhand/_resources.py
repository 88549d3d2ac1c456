"""Approvals, conversations, tools and files, without I/O."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ._calls import LONGEST_WAIT
from ._effects import ANSWER_TIMEOUT, Emit, Operation, Request, Response, Send, Unreachable, get, path
from ._retry import Deadline, fetch, unreachable
from ._streams import file
from .errors import CallTimeoutError, FarhandError
from .results import compact

TURN_TIMEOUT = 660.0
"""Seconds of the longest turn: a little more than the gateway's own default, ten minutes."""


def read(request: Request, seconds: float) -> Operation[Any]:
    """Return the JSON of a request that may be repeated."""
    answer = yield from fetch(request, seconds, Deadline(None))
    return answer.json()


def write(request: Request) -> Operation[Any]:
    """Return the JSON of a request that is sent once."""
    try:
        answer: Response = yield Send(request)
        return answer.json()
    except Unreachable as failure:
        raise unreachable(failure) from failure


def post(at: str, body: Mapping[str, Any], timeout: float = ANSWER_TIMEOUT) -> Request:
    """Return a POST request with JSON. Members that are None are left out."""
    return Request("POST", at, body=compact({name: v for name, v in body.items() if v is not None}), timeout=timeout)


def decision(approval_id: str, timeout: float | None, seconds: float) -> Operation[Any]:
    """Return an approval when it is no longer pending."""
    deadline = Deadline(timeout)
    while True:
        wait = deadline.left(LONGEST_WAIT)
        request = get(
            path("api", "approvals", approval_id), {"wait_ms": int(wait * 1000)}, timeout=wait + ANSWER_TIMEOUT
        )
        answer = yield from fetch(request, seconds, Deadline(None))
        approval = answer.json()
        if approval["state"] != "pending":
            return approval
        if deadline.over():
            raise CallTimeoutError(f"The approval is still pending after {timeout:g} seconds.")


def message(session: str, body: Mapping[str, Any], timeout: float) -> Request:
    """Return the request of a turn."""
    return post(path("api", "sessions", session, "messages"), body, timeout)


def part_bytes(part: Mapping[str, Any]) -> Operation[None]:
    """Emit the bytes of a part. Only files of the gateway itself are fetched, without the token."""
    if "data" in part:
        yield Emit(base64.b64decode(part["data"], validate=True))
        return
    at = part.get("url", "")
    if not at.startswith("/blobs/"):
        raise FarhandError("The gateway did not store the bytes of this part.", code="not_stored")
    yield from file(at)
