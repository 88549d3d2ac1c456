"""The registration of the tools on one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .frames import Frame, Limits, Rejection, items, number, size, text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from .tools import Offer

_FRAME_BYTES = 64  # around the definitions in a frame
_DEFINITIONS = 1024  # that the gateway takes in a frame


class Registration:
    """Registers tools in frames that the gateway takes, and gathers its answers."""

    def __init__(self, send: Callable[[str], object], limits: Limits) -> None:
        self.registered = 0
        """How many tools the session offers."""
        self.rejected: tuple[Rejection, ...] = ()
        """Tools that the gateway does not offer."""
        self._send = send
        self._limits = limits
        self._due = 0  # answers

    @property
    def complete(self) -> bool:
        """Whether the gateway has answered everything."""
        return self._due == 0

    def register(self, offers: Iterable[Offer]) -> None:
        """Registers tools, in as many frames as needed, at least in one: its answer says that the device is ready."""
        batch: list[str] = []
        room = most = self._limits.frame_bytes - _FRAME_BYTES
        for offer in offers:
            more = size(offer.definition) + 1
            if more > most:  # it would end the connection
                reason = "the definition is larger than the gateway's frames"
                self.rejected = (*self.rejected, Rejection(offer.name, reason))
                continue
            if len(batch) == _DEFINITIONS or more > room:
                self._flush(batch)
                batch, room = [], most
            batch.append(offer.definition)
            room -= more
        self._flush(batch)

    def answered(self, frame: Frame, offered: Collection[str]) -> None:
        """Takes a tools_registered. ``offered`` has the names of all tools of the device."""
        self._due = max(0, self._due - 1)
        self.registered = int(number(frame.get("registered")))
        rejected = tuple(
            Rejection(text(each.get("name")), text(each.get("reason")))
            for each in items(frame.get("rejected"))
            if isinstance(each, dict)
        )
        if self.registered >= len(offered):
            self.rejected = rejected
            return
        names = {each.name for each in rejected}
        kept = (each for each in self.rejected if each.name not in names and each.name in offered)
        self.rejected = (*kept, *rejected)

    def _flush(self, batch: list[str]) -> None:
        self._due += 1
        self._send(f'{{"type":"register_tools","tools":[{",".join(batch)}]}}')
