"""Group calls, without I/O: one call of a tool of many devices, whose results come as a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, cast

from . import types
from ._calls import nothing_ran
from ._effects import Emit, Open, Operation, Read, Request, Response, Unreachable
from ._retry import Deadline, Retries, unreachable
from ._sse import Decoder
from ._streams import SILENCE
from .errors import FarhandError, GatewayUnreachableError
from .results import compact, device_result

Mode = Literal["all", "first", "quorum", "race"]


class GroupOperation:
    """One group call. It runs once."""

    def __init__(
        self,
        tool: str,
        args: Mapping[str, Any] | None,
        target: Mapping[str, Any],
        *,
        mode: Mode | None,
        quorum: int | None,
        stagger: float | None,
        timeout: float | None,
        device_timeout: float | None,
        concurrency: int | None,
        queue: float | None,
        key: str | None,
        retry_for: float,
    ) -> None:
        self.call_id: str | None = None
        self.end: types.GroupAnswer | None = None
        """How the call ended, without its results."""
        body = {
            "tool": tool,
            "args": dict(args or {}),
            "target": {name: _plain(value) for name, value in target.items() if value is not None} or None,
            "mode": mode,
            "quorum": quorum,
            "stagger_ms": _milliseconds(stagger),
            "timeout_ms": _milliseconds(timeout),
            "device_timeout_ms": _milliseconds(device_timeout),
            "concurrency": concurrency,
            "queue": None if queue is None else {"ttl_ms": _milliseconds(queue)},
            "idempotency_key": key,
        }
        self._request = Request(
            "POST",
            "/api/calls",
            body=compact({name: value for name, value in body.items() if value is not None}),
            headers={"Accept": "text/event-stream"},
            timeout=SILENCE,
        )
        self._retries = Retries(retry_for, Deadline(timeout))
        self._begun = False

    def run(self) -> Operation[None]:
        """Make the call and emit the result of each device. Leaving it cancels the call, unless it has a key."""
        if self._begun:
            raise RuntimeError("the results of a group call are read once")
        self._begun = True
        yield from self._open()
        decoder = Decoder()
        try:
            while piece := (yield Read()):
                for event in decoder.feed(piece):
                    if event.kind == "call":
                        self.call_id = event.data["call_id"]
                    elif event.kind == "result":
                        yield Emit(device_result(event.data))
                    elif event.kind == "done":
                        self.end = cast(types.GroupAnswer, event.data)
                        return
        except Unreachable as failure:
            raise unreachable(failure, call_id=self.call_id, dispatched="unknown") from failure
        raise GatewayUnreachableError(
            "The stream of results ended before the call.", call_id=self.call_id, dispatched="unknown"
        )

    def _open(self) -> Operation[None]:
        """Have the gateway begin the call. It is requested again while nothing ran."""
        while True:
            try:
                head: Response = yield Open(self._request)
                head.check()
                return
            except Unreachable as failure:
                error = unreachable(failure, dispatched="unknown" if failure.sent else "no")
                if failure.sent:
                    raise error from failure
                yield from self._retries.wait(error)
            except FarhandError as failure:
                if not nothing_ran(failure):
                    raise
                yield from self._retries.wait(failure, failure.retry_after)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else math.ceil(seconds * 1000)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value if isinstance(value, str) else list(value)
