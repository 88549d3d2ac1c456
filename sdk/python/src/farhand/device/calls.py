"""Runs the calls of the gateway."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from typing import TYPE_CHECKING, Any, Protocol

from .answers import RESEND_FOR, Answers
from .call import Call
from .errors import DeviceError, message_of
from .frames import Frame, cut, encode, seconds, size, some, text
from .pace import Pace
from .parts import Part, answer_of
from .threads import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .frames import Limits
    from .gateway import Gateway
    from .tools import Offer

_MOST_PENDING = 1024  # calls that run or wait for their turn; a gateway has far fewer in flight
_ID_LENGTH = 256  # characters of a call's id, which is kept long after it; those of a gateway are shorter
_ACCEPT_AFTER = 0.2  # seconds; a faster answer makes tool_call_accepted unnecessary
_GRACE = 0.25  # seconds beyond the deadline, so as not to race the gateway's timer
_SLOT_TIMEOUT = 30.0  # seconds in which the gateway must answer an upload_request
_MESSAGE_BYTES = 1 << 10  # that the gateway keeps of a report
_CHUNK_BYTES = 64 << 10  # that the gateway takes at a time

_log = logging.getLogger(__name__)


class Host(Protocol):
    """What Calls needs of its device."""

    @property
    def gateway(self) -> Gateway:
        """The gateway."""

    def limits(self) -> Limits:
        """Returns what the gateway announced."""

    def link(self) -> int:
        """Returns the number of the open connection; 0: there is none."""

    def send(self, frame: str) -> bool:
        """Sends a frame, if there is a connection."""

    async def room(self) -> None:
        """Waits while much that was sent before is on its way."""

    def offer(self, name: str) -> Offer | None:
        """Returns a tool."""


class _Running:
    """A call without an answer."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.task: asyncio.Task[None] | None = None
        self.entered = False  # the task's code runs: it can be cancelled
        self.begun = False  # it had its turn
        self.uploading = asyncio.Lock()  # one file at a time
        self.slot: asyncio.Future[Frame] | None = None  # waits for upload_slot

    def cancel(self, reason: str) -> None:
        self.call._end(reason)
        if self.entered and self.task is not None:
            self.task.cancel()


class Calls:
    """Runs each call once, and keeps the answers."""

    def __init__(self, host: Host, answers: Answers, parallelism: int) -> None:
        self.answers = answers
        self.pace = Pace(host.limits)
        self._host = host
        self._turns = asyncio.Semaphore(parallelism)
        self._threads = Threads(parallelism)
        self._running: dict[str, _Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # also of calls that were answered before their handlers ended

    def start(self, frame: Frame) -> None:
        """Takes a tool_call_request. A call that runs goes on, one that ran gets the same answer again."""
        id = text(frame.get("id"))
        if not id or len(id) > _ID_LENGTH or id in self._running:
            return
        if id in self.answers:
            again = failure(id, "This call was answered before. It is not run again.")
            self._host.send(self.answers.frame(id) or again)
            return
        if len(self._running) >= _MOST_PENDING:
            self._host.send(failure(id, "the device has too many calls waiting"))
            return
        traceparent = text(frame.get("traceparent"))
        call = Call(id, text(frame.get("name")), seconds(frame.get("deadline_ms"), 30.0), self, traceparent)
        running = self._running[id] = _Running(call)
        running.task = asyncio.get_running_loop().create_task(self._run(running, frame.get("args")))
        self._tasks.add(running.task)
        running.task.add_done_callback(self._tasks.discard)

    def cancel(self, id: str, reason: str) -> None:
        """Takes a tool_call_cancel."""
        if running := self._running.get(id):
            running.cancel(f"cancelled by the gateway: {reason}")

    def slot(self, frame: Frame) -> None:
        """Takes an upload_slot."""
        running = self._running.get(text(frame.get("id")))
        if running and running.slot and not running.slot.done():
            running.slot.set_result(frame)

    async def stop(self, timeout: float) -> None:
        """Cancels what runs. What still runs after so many seconds is answered for."""
        for running in list(self._running.values()):
            running.cancel("the device stopped")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)
        for running in list(self._running.values()):
            self._answer(running, failure(running.call.id, "the device stopped"))
        self._threads.close()

    async def _run(self, running: _Running, given: object) -> None:
        running.entered = True
        call = running.call
        late = asyncio.get_running_loop().call_later(
            call.remaining() + RESEND_FOR, running.cancel, "the call's record is no longer kept"
        )
        try:
            await self._turn(running)
            try:
                frame = await self._handle(running, given)
            finally:
                self._turns.release()
        except asyncio.CancelledError:
            frame = self._failed(running, call.reason or "the handler was cancelled")
        except (Exception, SystemExit) as error:
            _log.warning("tool %s failed", call.tool, exc_info=error)
            frame = self._failed(running, message_of(error))
        finally:
            late.cancel()
        self._answer(running, frame)

    async def _turn(self, running: _Running) -> None:
        """Waits until the handler may run, unless its caller goes first."""
        wait = running.call.remaining() + _GRACE
        gone = asyncio.get_running_loop().call_later(wait, running.cancel, "the caller no longer waits")
        try:
            if running.call.cancelled:
                raise asyncio.CancelledError
            await self._turns.acquire()
        finally:
            gone.cancel()
        running.begun = True

    async def _handle(self, running: _Running, given: object) -> str:
        """Runs the handler, and returns the answer."""
        call = running.call
        args = {} if given is None else given
        if not isinstance(args, dict):
            raise TypeError("the arguments are not an object")
        offer = self._host.offer(call.tool)
        if offer is None:
            raise LookupError(f"Unknown tool {json.dumps(call.tool, ensure_ascii=False)}")
        job = offer.prepare(args)
        accepted = encode({"type": "tool_call_accepted", "id": call.id})
        accept = asyncio.get_running_loop().call_later(_ACCEPT_AFTER, self._notify, call, accepted)
        try:
            if not await self.answers.begin(call.id):
                raise RuntimeError("This device has begun this call before. It is not run again.")
            return await self._success(call, await job(call, self._threads))
        finally:
            accept.cancel()

    async def _success(self, call: Call, returned: Any) -> str:
        limits = self._host.limits()
        answer = await answer_of(returned, limits, call.upload)
        frame = encode({"type": "tool_result", "id": call.id, **answer, "success": True})
        most = max(limits.frame_bytes, limits.output_bytes)
        if size(frame) > most:
            raise ValueError(f"the output is too large: {size(frame)} bytes, at most {most:.0f} can be sent")
        return frame

    def _failed(self, running: _Running, message: str) -> str:
        whole = message if running.begun else f"not started: {message}"
        return failure(running.call.id, cut(whole, self._host.limits().frame_bytes / 8))

    def _answer(self, running: _Running, frame: str) -> None:
        id = running.call.id
        if self._running.get(id) is not running:
            return  # the device stopped, and answered before
        del self._running[id]
        self.answers.put(id, frame)
        link = self._host.link()
        if link and (claimed := self.answers.claim(id, link)):
            self._host.send(claimed)

    def _notify(self, call: Call, frame: str) -> bool:
        return call.id in self._running and self._host.send(frame)

    # What a call sends while it runs.

    def progress(self, call: Call, done: float, total: float | None, message: str) -> None:
        """Reports progress, unless reports come too fast."""
        if call.id not in self._running or not math.isfinite(done):
            return
        of = total if total is not None and total > 0 and math.isfinite(total) else None
        words = cut(message, _MESSAGE_BYTES) or None
        frame = some(type="tool_progress", id=call.id, progress=done, total=of, message=words)
        if self.pace.take():
            self._notify(call, encode(frame))

    async def chunk(self, call: Call, output: str) -> None:
        """Sends output in advance, in pieces that the gateway takes, no faster than it takes them."""
        while output:
            piece = cut(output, min(_CHUNK_BYTES, self._host.limits().frame_bytes / 8))
            if not piece:
                return
            output = output[len(piece) :]
            await self.pace.wait()
            await self._host.room()
            self._notify(call, encode({"type": "tool_progress", "id": call.id, "chunk": piece}))

    async def upload(self, call: Call, part: Part) -> Part:
        """Uploads a part."""
        if part.url:
            return part
        running = self._running.get(call.id)
        if running is None:
            raise DeviceError("stopped", "the call has its answer: it takes no file")
        length = await asyncio.to_thread(part.measure)
        request = some(type="upload_request", id=call.id, mime_type=part.mime_type, size=length, name=part.name)
        async with running.uploading:
            slot = await self._slot(running, self._notify(call, encode(request)))
            url = text(slot.get("url"))
            if not url:
                problem = text(slot.get("error"))
                raise DeviceError(text(slot.get("code")) or "refused", f"the gateway takes no file: {problem}")
            if not url.startswith("/"):  # it could go on with the host's name or port, and so lead to another server
                raise DeviceError("refused", "the gateway names no path of its own for the file")
            await self._host.gateway.put(url, part.mime_type, part.data, length)
        return Part(part.type, part.mime_type, part.data, part.name, url)

    async def _slot(self, running: _Running, sent: bool) -> Frame:
        if not sent:
            raise DeviceError("disconnected", "there is no connection to ask for an upload")
        running.slot = asyncio.get_running_loop().create_future()
        waiting: Awaitable[Frame] = asyncio.wait_for(running.slot, _SLOT_TIMEOUT)
        try:
            return await waiting
        except asyncio.TimeoutError:
            raise DeviceError("unreachable", "the gateway does not answer the request for an upload") from None
        finally:
            running.slot = None


def failure(id: str, error: str) -> str:
    """Returns a tool_error."""
    return encode({"type": "tool_error", "id": id, "error": error, "success": False})
