"""Keeps a device's session with its gateway, from one connection to the next."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from .answers import Answers
from .approvals import Questions
from .calls import Calls, failure
from .chat import Chat
from .errors import DeviceError, as_device_error, message_of
from .frames import PROTOCOL_VERSION, Frame, Limits, encode, seconds, size, some, text
from .link import Ended, Link, serve
from .pair import Credential, sign, stored_credential
from .registration import Registration
from .state import Backoff, State
from .store import Behind
from .wake import WakeOffer, offer_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .approvals import Approver
    from .gateway import Gateway
    from .store import Store
    from .tools import Offer
    from .wake import Waker

_STOP_WAIT = 2.0  # seconds that stop gives handlers to end, and then the gateway to acknowledge
_WRITE_WAIT = 10.0  # seconds that stop gives the store
_CAPABILITIES = [
    "ack",
    "progress",
    "cancel",
    "drain",
    "resume",
    "resume_token",
    "call_status",
    "traceparent",
    "presence",
]
_LOST = "The device restarted during this call. What it did until then is not known."

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """What Device was given."""

    token: str
    credential: Credential | None
    session: str
    name: str
    device_id: str
    device_name: str
    platform: str
    labels: Mapping[str, str] | None
    approver: Approver | None
    wake: Waker | None
    parallelism: int
    backoff: tuple[float, float]
    silence: float


class Session:
    """Connects, and stays connected. Its methods belong to the thread of the event loop."""

    def __init__(
        self,
        gateway: Gateway,
        options: Options,
        store: Store,
        on_state: Callable[[State], object],
        on_trouble: Callable[[DeviceError], object],
    ) -> None:
        self.gateway = gateway
        self.state = State("closed")
        self.id = options.session
        self.offers: dict[str, Offer] = {}
        self.chat = Chat(self._say)
        self._options = options
        self._store = store
        self._on_state = on_state
        self._on_trouble = on_trouble
        self._behind = Behind(store, lambda error: self._trouble(DeviceError("store", message_of(error))))
        self._answers = Answers(store, self._behind)
        self._calls = Calls(self, self._answers, options.parallelism)
        self._questions = Questions(options.approver, self.send)
        self._credential = options.credential
        self._resume_token = ""  # of the first connection; later ones are ignored
        self._limits = Limits()
        self._loaded = False
        self._link: Link | None = None
        self._links = 0
        self._foreground: bool | None = None  # as last reported
        self._wake_offer: WakeOffer | None = None  # of the last connection
        self._task: asyncio.Task[None] | None = None
        self._resending: asyncio.Task[None] | None = None
        self._stopping = False
        self._wake: asyncio.Future[None] | None = None  # ends a delay
        self._watchers: list[asyncio.Future[None]] = []  # of the next state

    # The face of Device.

    def begin(self) -> asyncio.Task[None]:
        """Connects, unless it does so already. The task ends when the device is refused, or stopped."""
        if self._task is None or self._task.done():
            self._stopping = False
            self._become(State("connecting"))
            self._task = asyncio.get_running_loop().create_task(self._stay())
        return self._task

    async def ready(self) -> None:
        """Waits until the tools can be called. It raises a DeviceError if that cannot be."""
        while self.state.phase != "connected":
            if self.state.phase == "refused" and self.state.error:
                raise self.state.error
            if self.state.phase == "closed":
                raise DeviceError("stopped", "the device stopped")
            watcher = asyncio.get_running_loop().create_future()
            self._watchers.append(watcher)
            await watcher

    async def stop(self) -> None:
        """Cancels running calls, answers them, and disconnects."""
        task = self._task
        if task is None or self._stopping:
            return
        self._stopping = True
        try:
            await self._questions.stop()
            await self._calls.stop(_STOP_WAIT)
            if self._link:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._answers.acknowledged(self._link.number), _STOP_WAIT)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._behind.written(), _WRITE_WAIT)
        finally:
            refused = task.done()
            task.cancel()
            await asyncio.wait([task])
            self._task = None
            if not refused:
                self._become(State("closed"))

    def reconnect(self) -> None:
        """Ends the delay before the next connection, except for the time that the gateway asked for."""
        if self._wake and not self._wake.done():
            self._wake.set_result(None)

    def add(self, offer: Offer) -> None:
        """Offers a tool from now on."""
        self.offers[offer.name] = offer
        if self._link and self._link.registration:
            self._link.registration.register([offer])

    def remove(self, name: str) -> None:
        """Stops offering a tool."""
        if self.offers.pop(name, None):
            self.send(encode({"type": "unregister_tools", "names": [name]}))

    def set_foreground(self, foreground: bool) -> None:
        """Reports whether the app is in the foreground, now and on each later connection."""
        self._foreground = foreground
        if self._link and self._link.registration:
            self._link.send(_presence(foreground))

    def set_default(self) -> bool:
        """Asks to be the default device of the user. It returns whether there is a connection."""
        return bool(self._link and self._link.registration) and self.send(encode({"type": "set_default"}))

    def register_wake(self) -> None:
        """Tells the gateway how the device is woken, if it can do so."""
        wake, offer = self._options.wake, self._wake_offer
        if wake is None or offer is None or self._link is None:
            return
        try:
            self._link.send(encode(some(type="register_wake", wake=wake(offer))))
        except Exception as error:
            self._trouble(DeviceError("wake", message_of(error)))

    # What calls, questions and the conversation need.

    def limits(self) -> Limits:
        """Returns what the gateway announced."""
        return self._limits

    def link(self) -> int:
        """Returns the number of the open connection; 0: there is none."""
        return self._link.number if self._link else 0

    def send(self, frame: str) -> bool:
        """Sends a frame, if there is a connection."""
        if self._link is None:
            return False
        self._link.send(frame)
        return True

    async def room(self) -> None:
        """Waits while much that was sent before is on its way."""
        if self._link:
            await self._link.room()

    def offer(self, name: str) -> Offer | None:
        """Returns a tool."""
        return self.offers.get(name)

    def _say(self, frame: str) -> bool:
        most = self._limits.frame_bytes
        if size(frame) > most:
            raise DeviceError("MESSAGE_TOO_BIG", f"a message has at most {most:.0f} bytes")
        return self.send(frame)

    # The connections, from the first to the last.

    async def _stay(self) -> None:
        backoff = Backoff(*self._options.backoff)
        try:
            await self._load()
            while True:
                if self.state.phase != "connecting":
                    self._become(State("connecting"))
                ended = await self._connect()
                error = ended.error
                backoff.lasted(ended.lasted, restart=ended.close == 1012)
                taken = _rival(error) and self._resume_token != ""
                if not taken and _final(ended):
                    self._become(State("refused", error=error))
                    return
                asked = 0.0 if taken else max(ended.back_at - time.monotonic(), 0.0) + error.retry_after
                await self._pause(asked, backoff.next_rival() if taken else backoff.next(), error)
        except Exception as error:
            self._become(State("refused", error=as_device_error(error)))

    async def _pause(self, asked: float, more: float, error: DeviceError) -> None:
        """Waits as long as the gateway asked for, and then some more, which reconnect ends."""
        self._wake = asyncio.get_running_loop().create_future()
        retry_at = datetime.now(timezone.utc) + timedelta(seconds=asked + more)
        self._become(State("waiting", retry_at=retry_at, error=error))
        await asyncio.sleep(asked)
        await asyncio.wait([self._wake], timeout=more)

    async def _load(self) -> None:
        if self._loaded:
            return
        try:
            if self._credential is None and not self._options.token:
                self._credential = await stored_credential(self._store)
            kept = await self._store.get("session")
            if isinstance(kept, dict) and self.id in ("", text(kept.get("id"))):
                self.id = text(kept.get("id"))
                self._resume_token = text(kept.get("token"))
            await self._answers.load(lambda call: failure(call, _LOST))
        except DeviceError:
            raise
        except Exception as error:
            raise DeviceError("store", f"the device's store cannot be read: {message_of(error)}") from error
        self._loaded = True

    async def _connect(self) -> Ended:
        """Makes one connection, and serves it until it ends."""
        token, signature = self._options.token, ""
        if self._credential:
            token = self._credential.token
            try:
                signature = await sign(self.gateway, self._credential)
            except DeviceError as error:
                return Ended(error)
        self._links += 1
        url = self.gateway.socket(session_id=self.id, name=self._options.name)
        return await serve(self, self._links, url, token, signature, self.gateway.context, self._options.silence)

    def opened(self, link: Link) -> None:
        """Says who the device is. The gateway decides with it which connection gets the session."""
        o = self._options
        self._link = link
        frame = some(
            type="connect",
            v=PROTOCOL_VERSION,
            device_name=o.device_name or None,
            device_id=(self._credential.device_id if self._credential else o.device_id) or None,
            platform=o.platform or None,
            labels=o.labels,
            resume_token=self._resume_token or None,
            capabilities=[*_CAPABILITIES, *["approval"] * bool(o.approver), *["wake"] * bool(o.wake)],
        )
        link.send(encode(frame))

    def ended(self, link: Link) -> None:
        """Notes that a connection is gone."""
        self._link = None
        if self._resending:
            self._resending.cancel()
        self.chat.lost()

    # What comes from the gateway.

    def take(self, link: Link, frame: Frame) -> None:
        """Takes a frame. Those of newer gateways are ignored."""
        id = text(frame.get("id"))
        match frame["type"]:
            case "session_start":
                self._start(link, frame)
            case "connected":
                self._wake_offer = offer_of(frame.get("wake"))
                self.register_wake()
            case "wake_registered":
                _log.info("woken by %s", text(frame.get("kind")) or "nothing")
            case "default_set":
                _log.info("the device is its user's default")
            case "tools_registered":
                self._registered(link, frame)
            case "tool_call_request":
                if not self._stopping:
                    self._calls.start(frame)
            case "tool_call_cancel":
                self._calls.cancel(id, text(frame.get("reason")))
            case "result_acknowledged":
                self._answers.acknowledge(id)
            case "upload_slot":
                self._calls.slot(frame)
            case "approval_request":
                if not self._stopping:
                    self._questions.ask(frame)
            case "approval_decided":
                self._questions.end(id)
            case "server_draining":
                wait = seconds(frame.get("retry_after_ms"))
                link.back_at = time.monotonic() + wait
                self._become(State("draining", retry_at=datetime.now(timezone.utc) + timedelta(seconds=wait)))
            case "error":
                self._failed(link, frame)
            case _:
                self.chat.take(frame)

    def _start(self, link: Link, frame: Frame) -> None:
        if link.registration:
            return
        self._limits = Limits.announced(frame.get("limits"))
        link.resumed = frame.get("resumed") is True
        id = text(frame.get("session_id"))
        if id != self.id or not self._resume_token:
            if self.id and id != self.id:
                self._resume_token = ""
            self.id = id
            self._resume_token = self._resume_token or text(frame.get("resume_token"))
            self._behind.set("session", {"id": id, "token": self._resume_token})
        if self._foreground is not None:
            link.send(_presence(self._foreground))
        link.registration = Registration(link.send, self._limits)
        link.registration.register(self.offers.values())
        self._resending = asyncio.get_running_loop().create_task(self._resend(link))

    async def _resend(self, link: Link) -> None:
        """Sends the answers that were not acknowledged on an earlier connection."""
        for frame in self._answers.to_send(link.number):
            await self._calls.pace.wait()
            await link.room()
            link.send(frame)

    def _registered(self, link: Link, frame: Frame) -> None:
        registration = link.registration
        if registration is None:
            return
        registration.answered(frame, self.offers)
        if registration.complete and self.state.phase not in ("draining", "closed"):
            self._become(State("connected", self.id, link.resumed, registration.registered, registration.rejected))

    def _failed(self, link: Link, frame: Frame) -> None:
        wait = seconds(frame.get("retry_after_ms"))
        error = DeviceError(text(frame.get("code")), text(frame.get("message")), 0, wait)
        if error.code in ("PAIRING_REQUIRED", "SESSION_OWNER_MISMATCH"):
            link.error = DeviceError(error.code.lower(), str(error))  # the connection ends now
        if not self.chat.fail(error):
            self._trouble(error)

    def _trouble(self, error: DeviceError) -> None:
        _log.warning("%s: %s", error.code, error)
        try:
            self._on_trouble(error)
        except Exception as failed:
            _log.warning("on_trouble failed", exc_info=failed)

    def _become(self, state: State) -> None:
        self.state = state
        _log.info("%s", state)
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            if not watcher.done():
                watcher.set_result(None)
        try:
            self._on_state(state)
        except Exception as failed:
            _log.warning("on_state failed", exc_info=failed)


def _presence(foreground: bool) -> str:
    return encode({"type": "presence", "foreground": foreground})


def _rival(error: DeviceError) -> bool:
    """Whether another connection has the session."""
    return error.code in ("session_replaced", "session_owner_mismatch")


def _final(ended: Ended) -> bool:
    """Whether another connection would not help."""
    return ended.close == 1000 or ended.error.status in (400, 401, 403)
