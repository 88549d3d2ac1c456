"""How long and how often an operation tries again."""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from dataclasses import replace
from typing import Any

from ._effects import Effect, Operation, Request, Response, Send, Sleep, Unreachable
from .errors import FarhandError, GatewayUnreachableError

FIRST_DELAY, LONGEST_DELAY = 0.1, 5.0

TEMPORARY = ("busy", "draining", "store_unavailable", "rate_limited")
"""Codes of requests that only read, after which the same request may succeed."""


class Deadline:
    """The time until which an operation may take. Without seconds it has no end."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    def left(self, most: float) -> float:
        """Return the seconds that are left, from 0 to most."""
        return most if self._at is None else max(0.0, min(most, self._at - time.monotonic()))

    def over(self) -> bool:
        """Report whether the time is over."""
        return self._at is not None and time.monotonic() >= self._at


class Retries:
    """Delays between the attempts of one operation: growing, with jitter, and no shorter than Retry-After.

    They end some seconds after the first failure, and earlier if the deadline would pass during the delay.
    """

    def __init__(self, seconds: float, deadline: Deadline) -> None:
        self._seconds, self._deadline = seconds, deadline
        self._until: Deadline | None = None
        self._next = FIRST_DELAY

    def reset(self) -> None:
        """Begin again, since an attempt succeeded."""
        self._until, self._next = None, FIRST_DELAY

    def wait(self, failure: Exception, at_least: float | None = None) -> Operation[None]:
        """Wait before the next attempt. Raise the failure if there is no time for one."""
        if at_least is None:
            delay = self._next * random.uniform(0.5, 1)
        else:
            delay = at_least + self._next * random.uniform(0, 1)
        self._next = min(self._next * 2, LONGEST_DELAY)
        if self._until is None:
            self._until = Deadline(self._seconds)
        longest = delay + 1
        if self._until.left(longest) < delay or self._deadline.left(longest) < delay:
            raise failure
        yield Sleep(delay)


def unreachable(failure: Unreachable, *, call_id: str | None = None, dispatched: Any = None) -> FarhandError:
    """Return the error of a transport that has failed for too long."""
    error = GatewayUnreachableError(
        f"The gateway did not answer: {failure}.",
        call_id=call_id,
        dispatched=dispatched,
        retryable=dispatched == "no",
    )
    error.__cause__ = failure
    return error


def fetch(request: Request, seconds: float, deadline: Deadline) -> Generator[Effect, Any, Response]:
    """Send a request that may be repeated, until it has an answer that is not temporary."""
    retries = Retries(seconds, deadline)
    while True:
        try:
            answer: Response = yield Send(replace(request, timeout=deadline.left(request.timeout)))
            answer.check()
            return answer
        except Unreachable as failure:
            yield from retries.wait(unreachable(failure))
        except FarhandError as failure:
            if failure.code not in TEMPORARY:
                raise
            yield from retries.wait(failure, failure.retry_after)
