"""Threads for plain functions."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class Threads:
    """Runs plain functions, each in a thread, so that they do not stop the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[[], _T]) -> _T:
        """Runs a function, and waits for its end.

        No thread can be ended from outside. So the wait goes on when the task is cancelled: the function must look
        itself whether its call is.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="farhand-tool")
        context = contextvars.copy_context()

        def work() -> _T:
            try:
                return context.run(function)
            except StopIteration as error:
                raise RuntimeError("the function raised StopIteration") from error  # no future takes it

        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if future.done():
                    raise

    def close(self) -> None:
        """Ends the threads that have nothing to do. The others end with their functions."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
