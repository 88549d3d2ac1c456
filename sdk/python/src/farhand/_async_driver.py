"""Runs operations in asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import httpx

from ._effects import Abandoned, Effect, Emit, Open, Operation, Read, Response, Send, Sleep, T, Unreachable
from ._http import FAILURES, GRACE, LIMITS, PIECE, address, failed, head_of, spelled, token_of

AsyncStream = AsyncGenerator[T, None]
"""An iteration over values. Break out of it inside ``contextlib.aclosing`` to close its connection immediately."""


class AsyncDriver:
    """Runs operations over one pool of connections."""

    def __init__(self, url: str | None, token: str | None, http: httpx.AsyncClient | None) -> None:
        self._base, self._token = address(url), token_of(token)
        self._own = http is None
        self._http = http or httpx.AsyncClient(limits=LIMITS)

    async def close(self) -> None:
        """Close the connections, unless the program gave its own client."""
        if self._own:
            await self._http.aclose()

    async def run(self, operation: Operation[T]) -> T:
        """Return the value of an operation. If the task is cancelled, the operation first undoes what it began.

        Further cancellations do not end that early: it takes a few seconds at most.
        """
        answer: Any = None
        failure: Unreachable | None = None
        while True:
            try:
                effect = operation.send(answer) if failure is None else operation.throw(failure)
            except StopIteration as end:
                return end.value
            answer = failure = None
            work: asyncio.Future[Any] | None = None
            try:
                if isinstance(effect, Send) and effect.settle:
                    work = asyncio.ensure_future(self._perform(effect))
                    answer = await asyncio.shield(work)
                else:
                    answer = await self._perform(effect)
            except Unreachable as unreachable:
                failure = unreachable
            except asyncio.CancelledError:
                await _whole(self._undo(operation, work))
                raise

    async def stream(self, operation: Operation[None]) -> AsyncStream[Any]:
        """Iterate over the values that an operation emits. Closing the iterator closes its connection."""
        async with AsyncExitStack() as opened:
            pieces: AsyncIterator[bytes] | None = None
            answer: Any = None
            failure: Unreachable | None = None
            while True:
                try:
                    effect = operation.send(answer) if failure is None else operation.throw(failure)
                except StopIteration:
                    return
                answer = failure = None
                try:
                    if isinstance(effect, Emit):
                        yield effect.value
                    elif isinstance(effect, Open):
                        await opened.aclose()
                        answer, pieces = await self._open(effect, opened)
                    elif isinstance(effect, Read):
                        answer = await self._read(pieces)
                    else:
                        answer = await self._perform(effect)
                except Unreachable as unreachable:
                    failure = unreachable

    async def _undo(self, operation: Operation[Any], work: asyncio.Future[Any] | None) -> None:
        """Settle the work in progress, and then let the operation undo what it began."""
        abandoned = Abandoned()
        if work is not None:
            done, _ = await asyncio.wait({work}, timeout=GRACE)
            if not done:
                work.cancel()
                await asyncio.wait({work})
            abandoned = _left_by(work)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._abandon(operation, abandoned), GRACE)

    async def _abandon(self, operation: Operation[Any], abandoned: Abandoned) -> None:
        with suppress(Abandoned, StopIteration):
            effect = operation.throw(abandoned)
            while True:
                try:
                    reply = await self._perform(effect)
                except Unreachable as failure:
                    effect = operation.throw(failure)
                else:
                    effect = operation.send(reply)

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Sleep):
            return await asyncio.sleep(effect.seconds)
        if isinstance(effect, Send):
            return await self._send(effect)
        raise TypeError(f"{type(effect).__name__} needs a stream")

    async def _send(self, effect: Send) -> Response:
        until = time.monotonic() + effect.request.timeout
        try:
            async with self._http.stream(**spelled(self._base, self._token, effect.request)) as response:
                body = bytearray()
                async for piece in response.aiter_bytes():
                    body += piece
                    if time.monotonic() > until:
                        raise Unreachable("the answer takes too long", sent=True)
                return head_of(response, bytes(body))
        except FAILURES as error:
            raise failed(error) from error

    async def _open(self, effect: Open, opened: AsyncExitStack) -> tuple[Response, AsyncIterator[bytes]]:
        try:
            response = await opened.enter_async_context(
                self._http.stream(**spelled(self._base, self._token, effect.request))
            )
            if response.status_code >= 300:
                return head_of(response, await response.aread()), response.aiter_bytes()
            return head_of(response), response.aiter_bytes(None if "event" in _type(response) else PIECE)
        except FAILURES as error:
            raise failed(error) from error

    async def _read(self, pieces: AsyncIterator[bytes] | None) -> bytes:
        if pieces is None:
            raise TypeError("no stream is open")
        try:
            return await pieces.__anext__()
        except StopAsyncIteration:
            return b""
        except FAILURES as error:
            raise failed(error) from error


async def _whole(work: Coroutine[Any, Any, None]) -> None:
    """Do work to its end in a task of its own, however often the waiting task is cancelled."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    if not task.cancelled():
        task.result()


def _left_by(task: asyncio.Future[Any]) -> Abandoned:
    if task.cancelled():
        return Abandoned(sent=True)
    failure = task.exception()
    if failure is None:
        return Abandoned(task.result())
    return Abandoned(sent=not isinstance(failure, Unreachable) or failure.sent)


def _type(response: httpx.Response) -> str:
    return response.headers.get("content-type", "")
