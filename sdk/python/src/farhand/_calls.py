"""Calls, without I/O.

A call is made asynchronously at the gateway (202), under an idempotency key, and then followed by its id. It survives
the pod that took it, it can be cancelled, and a request whose answer was lost can be repeated: it joins the call.

A call is made again only if the gateway says that nothing ran and that a retry may help.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ._effects import ANSWER_TIMEOUT, Abandoned, Operation, Request, Response, Send, Unreachable, clean, get, path
from ._retry import TEMPORARY, Deadline, Retries, unreachable
from .errors import CallTimeoutError, FarhandError, GatewayUnreachableError
from .results import Result, compact, outcome

FINAL = frozenset(("succeeded", "failed", "cancelled", "timed_out", "lost", "rejected", "expired"))
"""The states in which a call has ended."""

LONGEST_WAIT = 30.0
"""Seconds that one request waits for the end of a call. The gateway allows 60."""

CANCEL_TIMEOUT = 5.0
"""Seconds in which the gateway answers that a call is cancelled."""


MARGIN = 2.0
"""Seconds that the gateway gives a call beyond the caller's timeout. The client cancels the call at its timeout, so the
device stops; a call whose time is over at the gateway continues on its device.
"""


@dataclass(frozen=True)
class Target:
    """Where a tool runs. All that is set must match."""

    session: str | None = None
    device: str | None = None
    user: str | None = None
    labels: Mapping[str, str] | None = None

    def body(self) -> dict[str, Any]:
        """Return the target in the spelling of a call's request."""
        members = {
            "session_id": self.session,
            "device_id": self.device,
            "user_id": self.user,
            "labels": dict(self.labels) if self.labels else None,
        }
        return {name: value for name, value in members.items() if value is not None}

    def query(self) -> dict[str, Any]:
        """Return the target as the filters of a list."""
        labels = [f"{key}={value}" for key, value in (self.labels or {}).items()]
        return clean(
            {"session_id": self.session, "device_id": self.device, "user_id": self.user, "label": labels or None}
        )


class CallOperation:
    """One call of a tool."""

    def __init__(
        self,
        tool: str,
        args: Mapping[str, Any] | None,
        target: Target,
        *,
        select: str | None,
        timeout: float | None,
        key: str | None,
        retry_for: float,
        queue: float | None = None,
        margin: float = MARGIN,
    ) -> None:
        body: dict[str, Any] = {"args": dict(args or {}), "mode": "async"}
        if where := target.body():
            body["target"] = where
        if select is not None:
            body["select"] = select
        if timeout is not None:
            body["timeout_ms"] = max(1, math.ceil((timeout + margin) * 1000))
        if queue is not None:
            body["queue"] = {"ttl_ms": math.ceil(queue * 1000)}
        self.key = key or uuid.uuid4().hex
        # The request stays the same in all attempts: the gateway refuses another one with the same key.
        self._request = Request(
            "POST", path("api", "tools", tool, "call"), body=compact(body), headers={"Idempotency-Key": self.key}
        )
        self._timeout, self._seconds, self._queue = timeout, retry_for, queue
        self._deadline = Deadline(None if timeout is None else timeout + (queue or 0))

    def start(self) -> Operation[dict[str, Any]]:
        """Make the call. Return the gateway's acceptance, with the call's id.

        If the caller stops waiting, a call that was accepted is cancelled.
        """
        retries, sent = Retries(self._seconds, self._deadline), False
        refused = Retries(self._seconds, self._deadline)
        while True:
            timeout = self._deadline.left(ANSWER_TIMEOUT)
            try:
                answer: Response = yield Send(replace(self._request, timeout=timeout), settle=True)
                return answer.json()
            except Unreachable as failure:
                sent = sent or failure.sent
                yield from retries.wait(unreachable(failure, dispatched="unknown" if sent else "no"))
            except FarhandError as failure:
                if not nothing_ran(failure):
                    raise
                yield from refused.wait(failure, failure.retry_after)
            except Abandoned as abandoned:
                yield from self._undo(abandoned)
                raise

    def _undo(self, abandoned: Abandoned) -> Operation[None]:
        """Cancel a call that the gateway may have accepted. Repeating the request joins it, which tells its id."""
        answer = abandoned.answer
        if answer is None and abandoned.sent:
            try:
                answer = yield Send(replace(self._request, timeout=CANCEL_TIMEOUT))
            except Unreachable:
                return
        if answer is not None and answer.status < 300:
            yield from _try_cancel(answer.json()["call_id"])

    def run(self) -> Operation[Result]:
        """Make the call and return its result. If the caller stops waiting, the call is cancelled at the gateway."""
        refused = Retries(self._seconds, self._deadline)
        call_id: str | None = None
        try:
            while True:
                call_id = None
                accepted = yield from self.start()
                call_id = str(accepted["call_id"])
                record = yield from self._end(call_id)
                try:
                    return outcome(record)
                except FarhandError as failure:
                    # A queued call that ends without a device has waited long enough.
                    if self._queue is not None or not nothing_ran(failure):
                        raise
                    yield from refused.wait(failure)
        except Abandoned:
            if call_id is not None:
                yield from _try_cancel(call_id)
            raise

    def _end(self, call_id: str) -> Operation[dict[str, Any]]:
        """Return the record of the call when it has ended. At the deadline the call is cancelled."""
        try:
            record = yield from follow(call_id, self._deadline, self._seconds)
        except GatewayUnreachableError:
            yield from _try_cancel(call_id)
            raise
        if record is not None:
            return record
        record = yield from _try_cancel(call_id)
        if record is not None and "success" in record:
            return record
        raise CallTimeoutError(
            f"The call did not end within {self._timeout:g} seconds and was cancelled.",
            call_id=call_id,
            dispatched=(record or {}).get("dispatched", "unknown"),
        )


def nothing_ran(failure: FarhandError) -> bool:
    """Report whether the gateway says that nothing ran and that a retry may help."""
    return failure.dispatched == "no" and failure.retryable and not isinstance(failure, GatewayUnreachableError)


def follow(call_id: str, deadline: Deadline, seconds: float) -> Operation[dict[str, Any] | None]:
    """Return the record of a call when it has ended. None: the deadline came first."""
    retries = Retries(seconds, deadline)
    while not deadline.over():
        wait = deadline.left(LONGEST_WAIT)
        request = get(path("api", "calls", call_id), {"wait_ms": int(wait * 1000)}, timeout=wait + ANSWER_TIMEOUT)
        try:
            answer: Response = yield Send(request)
            record = answer.json()
            if record["state"] in FINAL:
                return record
            retries.reset()
        except Unreachable as failure:
            yield from retries.wait(unreachable(failure, call_id=call_id, dispatched="unknown"))
        except FarhandError as failure:
            failure.call_id, failure.dispatched = call_id, failure.dispatched or "unknown"
            if failure.code not in TEMPORARY:
                raise
            yield from retries.wait(failure, failure.retry_after)
    return None


def wait_for(call_id: str, timeout: float | None, seconds: float) -> Operation[Result]:
    """Return the result of a call. When the time is over, the call continues."""
    record = yield from follow(call_id, Deadline(timeout), seconds)
    if record is None:
        raise CallTimeoutError(
            f"The call has not ended within {timeout:g} seconds and continues.", call_id=call_id, dispatched="unknown"
        )
    return outcome(record)


def cancel(call_id: str) -> Operation[dict[str, Any]]:
    """Cancel a call and return its record. While the gateway does not answer, try again for some seconds."""
    deadline = Deadline(CANCEL_TIMEOUT)
    retries = Retries(CANCEL_TIMEOUT, deadline)
    while True:
        timeout = deadline.left(CANCEL_TIMEOUT)
        try:
            answer: Response = yield Send(Request("DELETE", path("api", "calls", call_id), timeout=timeout))
            return answer.json()
        except Unreachable as failure:
            yield from retries.wait(unreachable(failure, call_id=call_id, dispatched="unknown"))
        except FarhandError as failure:
            if failure.code not in TEMPORARY:
                raise
            yield from retries.wait(failure, failure.retry_after)


def _try_cancel(call_id: str) -> Operation[dict[str, Any] | None]:
    """Cancel a call. If the gateway does not answer, the call's own timeout ends it."""
    try:
        return (yield from cancel(call_id))
    except FarhandError:
        return None
