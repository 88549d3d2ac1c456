"""What a device must not forget: its credential, its session, and its calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Store(Protocol):
    """Keeps values by key. Values are JSON. A store belongs to one device; its methods may run concurrently."""

    async def get(self, key: str) -> Any:
        """Returns a value, None if there is none."""

    async def entries(self, prefix: str) -> list[tuple[str, Any]]:
        """Returns all entries whose keys begin with a prefix."""

    async def set(self, key: str, value: Any) -> None:
        """Keeps a value before it returns."""

    async def add(self, key: str, value: Any) -> bool:
        """Keeps a value unless there is one. Returns whether it did."""

    async def delete(self, key: str) -> None:
        """Removes a value, if there is one."""


class MemoryStore:
    """A store that forgets everything when the program ends."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        """Returns a value, None if there is none."""
        return self._values.get(key)

    async def entries(self, prefix: str) -> list[tuple[str, Any]]:
        """Returns all entries whose keys begin with a prefix."""
        return [(key, value) for key, value in self._values.items() if key.startswith(prefix)]

    async def set(self, key: str, value: Any) -> None:
        """Keeps a value."""
        self._values[key] = value

    async def add(self, key: str, value: Any) -> bool:
        """Keeps a value unless there is one. Returns whether it did."""
        return self._values.setdefault(key, value) is value

    async def delete(self, key: str) -> None:
        """Removes a value, if there is one."""
        self._values.pop(key, None)


class Behind:
    """Writes changes to a store in the background. Of several changes of a key, the latest counts."""

    def __init__(self, store: Store, trouble: Callable[[Exception], None]) -> None:
        self._store = store
        self._trouble = trouble
        self._changes: dict[str, Any] = {}
        self._writer: asyncio.Task[None] | None = None  # runs while there are changes

    def set(self, key: str, value: Any) -> None:
        """Keeps a value soon; None removes it."""
        self._changes[key] = value
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def written(self) -> None:
        """Waits until the store has every change."""
        while self._writer is not None:
            await asyncio.shield(self._writer)

    async def _write(self) -> None:
        try:
            while self._changes:
                # Side by side, so that a file takes them with one write. Changes of one key stay in order.
                changes, self._changes = self._changes, {}
                writes = [
                    self._store.delete(key) if value is None else self._store.set(key, value)
                    for key, value in changes.items()
                ]
                for outcome in await asyncio.gather(*writes, return_exceptions=True):
                    if isinstance(outcome, Exception):
                        self._trouble(outcome)
        finally:
            self._writer = None
