"""Operations that emit values: events, turns, pages and files, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ._calls import FINAL
from ._effects import Emit, Open, Operation, Read, Request, Response, Unreachable, path
from ._retry import TEMPORARY, Deadline, Retries, fetch, unreachable
from ._sse import Decoder
from .errors import FarhandError, GatewayUnreachableError, TurnError

SILENCE = 45.0
"""Seconds after which a silent event stream is broken. The gateway sends a comment every 15."""


def call_events(call_id: str, deadline: Deadline, seconds: float) -> Operation[None]:
    """Emit the events of a call, from its beginning to its end, over however many connections."""
    yield from _follow_stream(path("api", "calls", call_id, "events"), {}, deadline, seconds, ends=True)


def activity(kinds: list[str], deadline: Deadline, seconds: float) -> Operation[None]:
    """Emit the events of the fleet from now on, until the deadline."""
    yield from _follow_stream(path("api", "events"), {"type": kinds} if kinds else {}, deadline, seconds, ends=False)


def _follow_stream(
    at: str, query: Mapping[str, Any], deadline: Deadline, seconds: float, *, ends: bool
) -> Operation[None]:
    retries, last = Retries(seconds, deadline), ""
    while not deadline.over():
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        request = Request("GET", at, query, headers=headers, timeout=SILENCE)
        try:
            head: Response = yield Open(request)
            head.check()
            if head.status == 204:
                return
            decoder = Decoder()
            while piece := (yield Read()):
                retries.reset()
                for event in decoder.feed(piece):
                    last = event.id or last
                    yield Emit(event.data)
                    if ends and event.data.get("state") in FINAL:
                        return
                if deadline.over():
                    return
            raise Unreachable("the event stream ended", sent=True)
        except Unreachable as failure:
            yield from retries.wait(unreachable(failure))
        except FarhandError as failure:
            if failure.code not in TEMPORARY:
                raise
            yield from retries.wait(failure, failure.retry_after)


def turn(request: Request) -> Operation[None]:
    """Emit the events of a turn. The turn is not repeated: its tools may have run."""
    try:
        head: Response = yield Open(
            replace(request, headers={**request.headers, "Accept": "text/event-stream"}, timeout=SILENCE)
        )
        head.check()
        decoder = Decoder()
        while piece := (yield Read()):
            for event in decoder.feed(piece):
                if event.data.get("type") == "error":
                    raise _turn_error(event.data)
                yield Emit(event.data)
                if event.data.get("type") in ("done", "aborted"):
                    return
    except Unreachable as failure:
        raise unreachable(failure, dispatched="unknown" if failure.sent else "no") from failure
    raise GatewayUnreachableError("The turn's pod stopped before the turn ended.", dispatched="unknown")


def _turn_error(event: Mapping[str, Any]) -> TurnError:
    after = event.get("retry_after_ms")
    return TurnError(
        str(event.get("message", "")),
        code=str(event.get("code", "")),
        retry_after=None if after is None else after / 1000,
        problem=dict(event),
    )


def pages(request: Request, rows: str, seconds: float) -> Operation[None]:
    """Emit the rows of a list, page by page."""
    query = dict(request.query)
    while True:
        answer = yield from fetch(replace(request, query=query), seconds, Deadline(None))
        page = answer.json()
        for row in page[rows]:
            yield Emit(row)
        if not page.get("next_cursor"):
            return
        query["cursor"] = page["next_cursor"]


def file(at: str) -> Operation[None]:
    """Emit the bytes of a stored file, piece by piece."""
    try:
        head: Response = yield Open(Request("GET", at, anonymous=True))
        head.check()
        expected, got = head.headers.get("content-length", ""), 0
        while piece := (yield Read()):
            got += len(piece)
            yield Emit(piece)
        if expected.isdecimal() and got != int(expected):
            raise Unreachable(f"the file ended after {got} of {expected} bytes", sent=True)
    except Unreachable as failure:
        raise unreachable(failure) from failure
