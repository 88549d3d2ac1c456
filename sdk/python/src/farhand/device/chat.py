"""The conversation of the person at the device with the gateway's model."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import DeviceError
from .frames import Frame, encode, items, number, text

if TYPE_CHECKING:
    from collections.abc import Callable

# Errors of other frames, which come while a turn runs.
_NOT_OF_TURNS = {
    "INVALID_JSON",
    "UNKNOWN_MESSAGE_TYPE",
    "MESSAGE_TOO_BIG",
    "RATE_LIMITED",
    "PROGRESS_REFUSED",
    "APPROVAL_NOT_FOUND",
    "SESSION_OWNER_MISMATCH",
    "PAIRING_REQUIRED",
}
_ABORT_TIMEOUT = 5.0  # seconds in which the gateway must end an aborted turn

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TurnEvent:
    """What a turn shows as it runs.

    ============ ===========================================================================================
    type         with
    ============ ===========================================================================================
    chunk        ``content``: a piece of the answer
    thinking     ``content``: a piece of the model's reasoning
    chunk_reset  discard the chunks: the answer has the whole text
    tool_call    ``id``, ``name``, ``args``, ``status``: pending or executing; again when a pending call begins
    tool_result  ``id``, ``name``, ``output``, ``parts``, ``status``: completed or failed
    debug_prompt ``messages``, as JSON, and ``estimated_tokens`` of the coming request to the model
    ============ ===========================================================================================
    """

    type: str
    content: str = ""
    id: str = ""
    name: str = ""
    args: Any = None
    status: str = ""
    output: str = ""
    parts: tuple[Any, ...] = ()
    messages: str = ""
    estimated_tokens: int = 0


_SHOWN = {"chunk", "thinking", "chunk_reset", "tool_call", "tool_result", "debug_prompt"}


@dataclass
class _Turn:
    answer: asyncio.Future[str]
    on_event: Callable[[TurnEvent], None] | None


class Chat:
    """Takes turns of the conversation, one at a time.

    The error of a turn is a DeviceError: ``aborted``, ``busy`` (a turn runs), ``disconnected`` (the turn has ended,
    too), or a code of docs/protocol.md. A turn whose task is cancelled is aborted.
    """

    def __init__(self, send: Callable[[str], bool]) -> None:
        self.title = ""
        """Title of the conversation; "": it has none."""
        self._send = send
        self._turn: _Turn | None = None

    @property
    def running(self) -> bool:
        """Whether a turn runs."""
        return self._turn is not None

    async def send(
        self, content: str, *, on_event: Callable[[TurnEvent], None] | None = None, debug: bool = False
    ) -> str:
        """Sends a message, and returns the whole answer. ``debug`` asks for debug_prompt."""
        return await self._take({"type": "message", "content": content}, on_event, debug)

    async def regenerate(self, *, on_event: Callable[[TurnEvent], None] | None = None, debug: bool = False) -> str:
        """Answers the last message again."""
        return await self._take({"type": "regenerate"}, on_event, debug)

    def abort(self) -> None:
        """Ends the running turn, which fails with ``aborted``."""
        if self._turn:
            self._send(encode({"type": "abort"}))

    async def _take(self, frame: Frame, on_event: Callable[[TurnEvent], None] | None, debug: bool) -> str:
        if self._turn is not None:
            raise DeviceError("busy", "a turn is running")
        turn = self._turn = _Turn(asyncio.get_running_loop().create_future(), on_event)
        try:
            if not self._send(encode({**frame, "debug": True} if debug else frame)):
                self.lost()
            return await asyncio.shield(turn.answer)
        except asyncio.CancelledError:
            self.abort()
            await asyncio.wait([turn.answer], timeout=_ABORT_TIMEOUT)  # another turn can begin only then
            if turn.answer.done() and not turn.answer.cancelled():
                turn.answer.exception()  # the caller is not interested
            raise
        finally:
            if self._turn is turn:
                self._turn = None

    # What comes from the gateway.

    def take(self, frame: Frame) -> None:
        """Takes a frame of a turn, and ignores others."""
        kind = frame["type"]
        if kind == "title_updated":
            self.title = text(frame.get("title"))
        elif kind == "done":
            self._end(text(frame.get("full_response")))
        elif kind == "aborted":
            self._end(DeviceError("aborted", "the turn was aborted"))
        elif kind in _SHOWN:
            self._show(
                TurnEvent(
                    type=kind,
                    content=text(frame.get("content")),
                    id=text(frame.get("id")),
                    name=text(frame.get("name")),
                    args=frame.get("args"),
                    status=text(frame.get("status")),
                    output=text(frame.get("output")),
                    parts=tuple(items(frame.get("parts"))),
                    messages=text(frame.get("messages")),
                    estimated_tokens=int(number(frame.get("estimated_tokens"))),
                )
            )

    def fail(self, error: DeviceError) -> bool:
        """Takes an error frame. Returns whether it ended a turn."""
        if self._turn is None or error.code in _NOT_OF_TURNS:
            return False
        self._end(error)
        return True

    def lost(self) -> None:
        """Notes that the connection is gone, and the turn with it."""
        self._end(DeviceError("disconnected", "the connection to the gateway is gone, and the turn with it"))

    def _end(self, outcome: str | DeviceError) -> None:
        turn, self._turn = self._turn, None
        if turn is None or turn.answer.done():
            return
        if isinstance(outcome, str):
            turn.answer.set_result(outcome)
        else:
            turn.answer.set_exception(outcome)

    def _show(self, event: TurnEvent) -> None:
        if self._turn is None or self._turn.on_event is None:
            return
        try:
            self._turn.on_event(event)
        except Exception as error:
            _log.warning("on_event failed", exc_info=error)
