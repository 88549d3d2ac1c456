"""Which calls ran, and their answers."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .frames import number, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .store import Behind, Store

RESEND_FOR = 15 * 60.0
"""Seconds for which an answer is sent again. Gateways keep the records of calls about as long."""

# Bounds of the kept answers.
_MOST = 1024
_MOST_CHARACTERS = 16 << 20

_PREFIX = "call/"


@dataclass
class _Answer:
    call: str
    at: float  # seconds since 1970, for the store
    until: float  # it is sent again, on the monotonic clock: boards without a clock jump by years
    frame: str  # as it was sent; "": acknowledged before a restart
    acknowledged: bool = False
    link: int = 0  # number of the last connection it was sent on


class Answers:
    """Remembers which calls ran, and their answers until they are acknowledged.

    Every change goes to the store, so a restart forgets nothing. The oldest answers are forgotten beyond 1,024 answers
    or 16 Mi characters.
    """

    def __init__(self, store: Store, behind: Behind) -> None:
        self._store = store
        self._behind = behind
        self._kept: dict[str, _Answer] = {}  # oldest first
        self._size = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []  # for the acknowledgements of a connection

    async def load(self, lost: Callable[[str], str]) -> None:
        """Reads what the store has. A call that had begun and has no answer gets the one that ``lost`` returns."""
        entries = [(key, value) for key, value in await self._store.entries(_PREFIX) if isinstance(value, dict)]
        entries.sort(key=lambda entry: number(entry[1].get("at")))
        for key, value in entries:
            call = key[len(_PREFIX) :]
            if call in self._kept:
                continue
            acknowledged = value.get("acknowledged") is True
            frame = "" if acknowledged else text(value.get("frame")) or lost(call)
            at = number(value.get("at"))
            until = time.monotonic() + RESEND_FOR - max(time.time() - at, 0.0)
            self._keep(_Answer(call, at, until, frame, acknowledged))

    def __contains__(self, call: str) -> bool:
        return call in self._kept

    def frame(self, call: str) -> str:
        """Returns the answer of a call; "": it has none, or was acknowledged before a restart."""
        answer = self._kept.get(call)
        return answer.frame if answer else ""

    async def begin(self, call: str) -> bool:
        """Writes down that a call begins. It returns False if the call has begun before."""
        return await self._store.add(_PREFIX + call, {"at": time.time()})

    def put(self, call: str, frame: str) -> None:
        """Keeps the first answer of a call."""
        if call in self._kept:
            return
        answer = _Answer(call, time.time(), time.monotonic() + RESEND_FOR, frame)
        self._behind.set(_PREFIX + call, {"at": answer.at, "frame": frame})
        self._keep(answer)

    def acknowledge(self, call: str) -> None:
        """Notes that the gateway has an answer."""
        answer = self._kept.get(call)
        if answer is None or answer.acknowledged:
            return
        answer.acknowledged = True
        self._behind.set(_PREFIX + call, {"at": answer.at, "acknowledged": True})
        for link, future in self._waiting:
            if not future.done() and not self._unacknowledged(link):
                future.set_result(None)

    def to_send(self, link: int) -> Iterator[str]:
        """Returns the answers to send on a connection: those without acknowledgement that were not sent there."""
        for answer in list(self._kept.values()):
            if time.monotonic() <= answer.until and (frame := self.claim(answer.call, link)):
                yield frame

    def claim(self, call: str, link: int) -> str:
        """Returns the answer to send on a connection; "": it was sent there, or is acknowledged."""
        answer = self._kept.get(call)
        if answer is None or answer.acknowledged or answer.link == link:
            return ""
        answer.link = link
        return answer.frame

    async def acknowledged(self, link: int) -> None:
        """Waits until every answer that was sent on a connection is acknowledged. The caller sets the time limit."""
        if not self._unacknowledged(link):
            return
        entry = (link, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        try:
            await entry[1]
        finally:
            self._waiting.remove(entry)

    def _unacknowledged(self, link: int) -> bool:
        return any(not answer.acknowledged and answer.link == link for answer in self._kept.values())

    def _keep(self, answer: _Answer) -> None:
        self._kept[answer.call] = answer
        self._size += len(answer.frame)
        while len(self._kept) > 1 and (len(self._kept) > _MOST or self._size > _MOST_CHARACTERS):
            oldest = self._kept.pop(next(iter(self._kept)))
            self._size -= len(oldest.frame)
            self._behind.set(_PREFIX + oldest.call, None)
