"""The state of the connection, and the delays between connections."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from datetime import datetime

    from .errors import DeviceError
    from .frames import Rejection

_STABLE_AFTER = 5.0  # seconds a connection must last for the next failure to count as the first
_RIVAL_GONE_AFTER = 300.0  # seconds for a rival to count as gone

Phase = Literal["closed", "connecting", "connected", "draining", "waiting", "refused"]


@dataclass(frozen=True)
class State:
    """The state of the connection.

    ========== =========================================================================================
    phase
    ========== =========================================================================================
    closed     not started, or stopped
    connecting
    connected  the gateway has answered the registration; again after each change of the offered tools
    draining   the pod stops; the device finishes its calls, and connects to another pod at ``retry_at``
    waiting    for the next attempt at ``retry_at``; ``error`` says why
    refused    the device does not connect again: it would not help; ``error`` says why
    ========== =========================================================================================
    """

    phase: Phase
    session_id: str = ""
    resumed: bool = False
    """The session existed before."""
    registered: int = 0
    """How many tools the session offers."""
    rejected: tuple[Rejection, ...] = ()
    """Tools that the gateway does not offer."""
    retry_at: datetime | None = None
    error: DeviceError | None = None


class Backoff:
    """Computes the delays before connections, with full jitter, so that devices do not come back together."""

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most
        self._ceiling = 0.0
        self._rival = 0.0

    def lasted(self, seconds: float, *, restart: bool) -> None:
        """Notes how long a connection lasted. A pod that stops sends its devices away, which is no failure."""
        if seconds >= _STABLE_AFTER or restart:
            self._ceiling = 0.0
        if seconds >= _RIVAL_GONE_AFTER:
            self._rival = 0.0

    def next(self) -> float:
        """Returns the delay after a failure, in seconds."""
        ceiling = self._ceiling or self._least
        self._ceiling = min(2 * ceiling, self._most)
        return random.random() * ceiling

    def next_rival(self) -> float:
        """Returns the delay before a connection that takes the session from another one, in seconds.

        Half of it is not random, so that two programs with the same session do not take it from one another all the
        time.
        """
        ceiling = self._rival or self._least
        self._rival = min(2 * ceiling, self._most)
        return ceiling / 2 * (1 + random.random())
