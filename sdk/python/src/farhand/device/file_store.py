"""A store in a file."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .errors import DeviceError, message_of
from .frames import encode

if TYPE_CHECKING:
    from collections.abc import Callable

_SPARE = 1 << 20  # bytes of outdated lines, after which the file is made anew
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class FileStore:
    """A store in a file that only its user can read, for one process at a time.

    Every change is a line at its end, which is on the disk before the change counts. A broken last line, of a crash, is
    ignored. Changes that come while one is written are written together. The first use opens the file; it fails with
    the code ``in_use`` if another process has it (on Windows this is not checked).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._thread: ThreadPoolExecutor | None = None  # one thread: changes are written in order
        self._lock = threading.Lock()  # of what follows, up to _next
        self._values: dict[str, Any] | None = None  # None: not open
        self._lines: list[bytes] = []  # that are not written
        self._next: Future[None] | None = None  # the write of _lines
        # Of the thread.
        self._file: IO[bytes] | None = None
        self._held: int | None = None  # the lock that other processes respect
        self._size = 0  # bytes written since the file was made; -1: a line may be broken or missing
        self._most = 0  # of _size, until the file is made anew

    async def get(self, key: str) -> Any:
        """Returns a value, None if there is none."""
        values = await self._open()
        with self._lock:
            return values.get(key)

    async def entries(self, prefix: str) -> list[tuple[str, Any]]:
        """Returns all entries whose keys begin with a prefix."""
        values = await self._open()
        with self._lock:
            return [(key, value) for key, value in values.items() if key.startswith(prefix)]

    async def set(self, key: str, value: Any) -> None:
        """Keeps a value. It is on the disk when the method returns."""
        values = await self._open()
        with self._lock:
            values[key] = value
            written = self._append([key, value])
        await asyncio.shield(asyncio.wrap_future(written))

    async def add(self, key: str, value: Any) -> bool:
        """Keeps a value unless there is one. Returns whether it did."""
        values = await self._open()
        with self._lock:
            if key in values:
                return False
            values[key] = value
            written = self._append([key, value])
        await asyncio.shield(asyncio.wrap_future(written))
        return True

    async def delete(self, key: str) -> None:
        """Removes a value, if there is one."""
        values = await self._open()
        with self._lock:
            values.pop(key, None)
            written = self._append([key])
        await asyncio.shield(asyncio.wrap_future(written))

    async def close(self) -> None:
        """Writes what is left, and lets other processes have the file. The next use opens it again."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        await asyncio.wrap_future(thread.submit(self._close))
        thread.shutdown()

    # With the lock.

    def _append(self, entry: list[Any]) -> Future[None]:
        self._lines.append(_line(entry))
        if self._next is None:
            self._next = self._worker().submit(self._write)
        return self._next

    def _worker(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="farhand-store")
        return self._thread

    async def _open(self) -> dict[str, Any]:
        if self._values is None:
            await asyncio.shield(asyncio.wrap_future(self._worker().submit(self._load)))
        assert self._values is not None
        return self._values

    # In the thread.

    def _load(self) -> None:
        if self._values is not None:
            return  # a concurrent use opened it
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._held = self._held or _hold(self._path.with_name(self._path.name + ".lock"))
            content = self._path.read_bytes() if self._path.exists() else b""
            values: dict[str, Any] = {}
            for text in content.split(b"\n"):
                _read(text, values)
            self._rewrite(list(values.items()))
        except OSError as error:
            raise DeviceError("store", f"the file {self._path} cannot be used: {message_of(error)}") from error
        self._values = values

    def _write(self) -> None:
        with self._lock:
            data = b"".join(self._lines)
            self._lines = []
            self._next = None
            anew = self._file is None or self._size < 0 or self._size + len(data) > self._most
            entries = list((self._values or {}).items()) if anew else []
        before, self._size = self._size, -1  # until the lines are on the disk: the next write makes the file anew
        if anew:
            self._rewrite(entries)
            return
        assert self._file is not None
        self._file.write(data)
        self._file.flush()
        _sync(self._file.fileno())
        self._size = before + len(data)

    def _rewrite(self, entries: list[tuple[str, Any]]) -> None:
        whole = b"".join(_line([key, value]) for key, value in entries)
        temporary = self._path.with_name(self._path.name + ".new")
        temporary.unlink(missing_ok=True)
        file = os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        try:
            file.write(whole)
            file.flush()
            _sync(file.fileno())
            if self._file is not None:
                self._file.close()  # Windows does not replace an open file
                self._file = None
            temporary.replace(self._path)
            _sync_folder(self._path.parent)
        except OSError:
            file.close()
            raise
        self._file = file
        self._size = 0
        self._most = len(whole) + _SPARE

    def _close(self) -> None:
        with self._lock:
            self._values = None
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _line(entry: list[Any]) -> bytes:
    return encode(entry).encode() + b"\n"


def _read(text: bytes, values: dict[str, Any]) -> None:
    """Applies a line. One that a crash broke is ignored."""
    try:
        key, *value = json.loads(text)
    except (ValueError, TypeError):
        return
    if value:
        values[key] = value[0]
    else:
        values.pop(key, None)


def _hold(path: Path) -> int | None:
    """Takes the lock of a file, which the system gives back when the process ends. None: the system has no locks."""
    try:
        import fcntl
    except ImportError:
        return None
    held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise DeviceError("in_use", f"another process uses the file of {path}") from None
    return held


def _sync_folder(path: Path) -> None:
    """Writes the name of a new file to the disk, where folders can be opened."""
    if os.name != "posix":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
