"""The rate of frames that the gateway did not ask for."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .frames import Limits


class Pace:
    """Limits the frames that the gateway did not ask for to two fifths of what it takes."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._limits = limits
        self._next = 0.0  # when the next frame would be due at an even pace

    def take(self) -> bool:
        """Returns whether a frame may be sent now. If so, it counts."""
        return self._reserve(only_now=True) <= 0

    async def wait(self) -> None:
        """Waits until a frame may be sent."""
        delay = self._reserve(only_now=False)
        if delay > 0:
            await asyncio.sleep(delay)

    def _reserve(self, *, only_now: bool) -> float:
        limits = self._limits()
        interval = 2.5 / limits.frames_per_second
        burst = max(1, int(limits.frame_burst / 5))
        now = time.monotonic()
        due = max(self._next, now)
        delay = due - now - (burst - 1) * interval
        if delay <= 0 or not only_now:
            self._next = due + interval
        return delay
