"""A call of a tool, as its handler sees it."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Protocol

from .errors import DeviceError

if TYPE_CHECKING:
    from .parts import Part


class Reports(Protocol):
    """What a call sends while it runs."""

    def progress(self, call: Call, done: float, total: float | None, message: str) -> None:
        """Reports progress."""

    async def chunk(self, call: Call, text: str) -> None:
        """Sends output in advance."""

    async def upload(self, call: Call, part: Part) -> Part:
        """Uploads a part."""


class Call:
    """One call of a tool. A handler that is ``async`` gets it as the parameter with this type.

    When the gateway cancels the call, or the device stops, the handler's task is cancelled: it can catch
    ``asyncio.CancelledError`` and still return an answer. A handler may go on after its deadline, for 15 minutes: a
    late answer is kept in the call's record. If late work is useless, limit it: ``asyncio.wait_for(…,
    call.remaining())``.
    """

    def __init__(self, id: str, tool: str, seconds: float, reports: Reports, traceparent: str = "") -> None:
        self.id = id
        self.tool = tool
        self.deadline = datetime.now(timezone.utc) + timedelta(seconds=seconds)
        """When the caller stops waiting."""
        self.traceparent = traceparent
        """The W3C header of the call's trace, for requests and spans of the handler; "": there is no trace."""
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + seconds
        self._reports = reports
        self._ended = threading.Event()
        self._reason = ""

    @property
    def cancelled(self) -> bool:
        """Whether the call is cancelled."""
        return self._ended.is_set()

    @property
    def reason(self) -> str:
        """Why the call is cancelled; "": it is not."""
        return self._reason

    def remaining(self) -> float:
        """Returns the seconds until the caller stops waiting, at least 0."""
        return max(0.0, self._until - self._loop.time())

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Reports progress: done, of how many, and a word for people. Reports that come too fast are dropped."""
        self._reports.progress(self, done, total, message)

    async def chunk(self, text: str) -> None:
        """Sends output in advance. The handler must still return the complete output."""
        await self._reports.chunk(self, text)

    async def upload(self, part: Part) -> Part:
        """Uploads a part that is too large for an answer, and returns it for the result.

        It works while the call runs. Parts of a result that are too large are uploaded without it. The error is a
        DeviceError.
        """
        return await self._reports.upload(self, part)

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._ended.set()


class SyncCall:
    """One call of a tool, for a handler that is a plain function. The handler runs in a thread of its own.

    A thread cannot be cancelled from outside: look at ``cancelled``, and use ``sleep``.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def id(self) -> str:
        """The call's id."""
        return self._call.id

    @property
    def tool(self) -> str:
        """Name of the tool."""
        return self._call.tool

    @property
    def deadline(self) -> datetime:
        """When the caller stops waiting."""
        return self._call.deadline

    @property
    def traceparent(self) -> str:
        """The W3C header of the call's trace; "": the gateway makes no traces."""
        return self._call.traceparent

    @property
    def cancelled(self) -> bool:
        """Whether the gateway has cancelled the call, or the device stops."""
        return self._call.cancelled

    def remaining(self) -> float:
        """Returns the seconds until the caller stops waiting, at least 0."""
        return self._call.remaining()

    def sleep(self, seconds: float) -> None:
        """Waits. It raises a DeviceError with the code ``cancelled`` when the call is cancelled."""
        if self._call._ended.wait(seconds):
            raise DeviceError("cancelled", self._call.reason)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Reports progress: done, of how many, and a word for people. Reports that come too fast are dropped."""
        self._call._loop.call_soon_threadsafe(self._call.progress, done, total, message)

    def chunk(self, text: str) -> None:
        """Sends output in advance. The handler must still return the complete output."""
        asyncio.run_coroutine_threadsafe(self._call.chunk(text), self._call._loop).result()

    def upload(self, part: Part) -> Part:
        """Uploads a part that is too large for an answer, and returns it for the result."""
        return asyncio.run_coroutine_threadsafe(self._call.upload(part), self._call._loop).result()
