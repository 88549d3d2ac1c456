"""One connection to the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from .errors import DeviceError, message_of, refused
from .frames import Frame, parse
from .gateway import DIAL_TIMEOUT, USER_AGENT, bearer

if TYPE_CHECKING:
    import ssl

    from .registration import Registration

_SUBPROTOCOL = Subprotocol("clawseed.v1")
_HELLO_TIMEOUT = 20.0  # seconds for the first frame
_CLOSE_TIMEOUT = 1.0  # seconds for the gateway to end a connection after the close frames
_MOST_BYTES = 16 << 20  # of a frame of the gateway
_QUEUE_ROOM = 1 << 20  # characters that may wait to be sent before output in advance waits
_QUEUE_MOST = 64 << 20  # characters that may wait to be sent at all

# At DEBUG websockets logs headers and frames, which have tokens. So it gets a logger that a program's settings for all
# others do not reach.
_log = logging.getLogger(f"{__name__}.websockets")
_log.setLevel(logging.INFO)


class Taker(Protocol):
    """The device behind a connection."""

    def opened(self, link: Link) -> None:
        """Says who the device is."""

    def take(self, link: Link, frame: Frame) -> None:
        """Takes a frame."""

    def ended(self, link: Link) -> None:
        """Notes that the connection is gone."""


@dataclass(frozen=True)
class Ended:
    """How a connection ended."""

    error: DeviceError
    lasted: float = 0.0
    """How long it was open, in seconds."""
    back_at: float = 0.0
    """When a draining gateway wants the device back, on the monotonic clock; 0: it said nothing."""
    close: int = 0
    """Code of the close frame; 0: there was none, or no connection."""


class Link:
    """One connection. Frames wait in a queue until the gateway takes them."""

    def __init__(self, number: int, socket: _Socket) -> None:
        self.number = number
        self.resumed = False
        self.registration: Registration | None = None  # None: before session_start
        self.back_at = 0.0
        self.error: DeviceError | None = None  # explains the end
        self.socket = socket
        self._queue: deque[str] = deque()
        self._queued = 0  # characters
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def send(self, frame: str) -> None:
        """Sends a frame, after those before it."""
        self._queue.append(frame)
        self._queued += len(frame)
        self._more.set()
        if self._queued > _QUEUE_ROOM:
            self._room.clear()
        if self._queued > _QUEUE_MOST:
            self.abort(DeviceError("slow", "the gateway does not read what the device sends"))

    async def room(self) -> None:
        """Waits while more than a Mi of characters is on its way."""
        await self._room.wait()

    def abort(self, error: DeviceError) -> None:
        """Ends the connection without a close frame."""
        self.error = self.error or error
        self.socket.transport.abort()

    async def write(self) -> None:
        """Sends what waits, until the connection ends."""
        try:
            while True:
                while self._queue:
                    frame = self._queue.popleft()
                    await self.socket.send(frame)
                    self._queued -= len(frame)
                    if self._queued <= _QUEUE_ROOM:
                        self._room.set()
                self._more.clear()
                await self._more.wait()
        except ConnectionClosed:
            pass  # as the reader sees
        finally:
            self._room.set()

    async def watch(self, silence: float) -> None:
        """Ends the connection when the gateway has shown no sign of life for so many seconds."""
        while (left := self.socket.seen + silence - time.monotonic()) > 0:
            await asyncio.sleep(left)
        self.abort(_silent())

    async def read(self, taker: Taker, hello: float) -> tuple[int, str]:
        """Hands frames to the device, until the connection ends. Returns code and reason of the close frame, or 0."""
        first = asyncio.get_running_loop().call_later(hello, self.abort, _silent())
        try:
            while True:
                message = await self.socket.recv()
                first.cancel()
                if frame := parse(message):
                    taker.take(self, frame)
        except ConnectionClosed as closed:
            return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (0, "")
        finally:
            first.cancel()


async def serve(
    taker: Taker, number: int, url: str, token: str, signature: str, context: ssl.SSLContext | None, silence: float
) -> Ended:
    """Makes a connection, and returns when it has ended. If the task is cancelled, it closes the connection."""
    try:
        socket = await _dial(url, token, signature, context)
    except DeviceError as error:
        return Ended(error)
    opened = time.monotonic()
    link = Link(number, socket)
    helpers = [asyncio.ensure_future(link.write()), asyncio.ensure_future(link.watch(silence))]
    try:
        taker.opened(link)
        code, reason = await link.read(taker, min(silence, _HELLO_TIMEOUT))
    finally:
        taker.ended(link)
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        with contextlib.suppress(OSError, WebSocketException):
            await socket.close()
    ending = DeviceError(reason or "disconnected", f"the connection ended: {code or 'no close frame'} {reason}".strip())
    return Ended(link.error or ending, time.monotonic() - opened, link.back_at, code)


class _Socket(ClientConnection):
    """Notes signs of life: all bytes of the gateway, also of its pings."""

    seen = 0.0

    def data_received(self, data: bytes) -> None:
        self.seen = time.monotonic()
        super().data_received(data)


class _Dial(connect):
    """Follows no redirect: tokens are for the given address only."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _dial(url: str, token: str, signature: str, context: ssl.SSLContext | None) -> _Socket:
    headers = {**bearer(token), **({"Farhand-Signature": signature} if signature else {})}
    try:
        socket = await _Dial(
            url,
            subprotocols=[_SUBPROTOCOL],
            additional_headers=headers,
            user_agent_header=USER_AGENT,
            compression=None,
            open_timeout=DIAL_TIMEOUT,
            ping_interval=None,  # the gateway pings
            close_timeout=_CLOSE_TIMEOUT,
            max_size=_MOST_BYTES,
            create_connection=_Socket,
            logger=_log,
            ssl=context or (True if url.startswith("wss:") else None),
        )
    except InvalidStatus as error:
        response = error.response
        raise refused(response.status_code, bytes(response.body or b""), response.headers.get("Retry-After")) from error
    except (OSError, EOFError, asyncio.TimeoutError, WebSocketException) as error:
        raise DeviceError("unreachable", f"no gateway answers: {message_of(error)}") from error
    return cast("_Socket", socket)


def _silent() -> DeviceError:
    return DeviceError("silent", "the gateway shows no sign of life")
