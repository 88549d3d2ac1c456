"""Runs operations in the calling thread."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import httpx

from ._effects import Abandoned, Effect, Emit, Open, Operation, Read, Response, Send, Sleep, T, Unreachable
from ._http import FAILURES, GRACE, LIMITS, PIECE, address, failed, head_of, spelled, token_of

Stream = Generator[T, None, None]
"""An iteration over values. Break out of it inside ``contextlib.closing`` to close its connection immediately."""


class Driver:
    """Runs operations over one pool of connections. Its methods are safe for concurrent use by threads."""

    def __init__(self, url: str | None, token: str | None, http: httpx.Client | None) -> None:
        self._base, self._token = address(url), token_of(token)
        self._own = http is None
        self._http = http or httpx.Client(limits=LIMITS)

    def close(self) -> None:
        """Close the connections, unless the program gave its own client."""
        if self._own:
            self._http.close()

    def run(self, operation: Operation[T]) -> T:
        """Return the value of an operation. An interrupt, such as Ctrl-C, first undoes what the operation began."""
        answer: Any = None
        failure: Unreachable | None = None
        while True:
            try:
                effect = operation.send(answer) if failure is None else operation.throw(failure)
            except StopIteration as end:
                return end.value
            answer = failure = None
            try:
                answer = self._perform(effect)
            except Unreachable as unreachable:
                failure = unreachable
            except BaseException:
                self._abandon(operation, Abandoned(sent=isinstance(effect, Send) and effect.settle))
                raise

    def stream(self, operation: Operation[None]) -> Stream[Any]:
        """Iterate over the values that an operation emits. Closing the iterator closes its connection."""
        with ExitStack() as opened:
            pieces: Iterator[bytes] | None = None
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
                        opened.close()
                        answer, pieces = self._open(effect, opened)
                    elif isinstance(effect, Read):
                        answer = self._read(pieces)
                    else:
                        answer = self._perform(effect)
                except Unreachable as unreachable:
                    failure = unreachable

    def _abandon(self, operation: Operation[Any], abandoned: Abandoned) -> None:
        until = time.monotonic() + GRACE
        with suppress(Abandoned, StopIteration):
            effect = operation.throw(abandoned)
            while time.monotonic() < until:
                try:
                    reply = self._perform(effect)
                except Unreachable as failure:
                    effect = operation.throw(failure)
                else:
                    effect = operation.send(reply)

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Sleep):
            return time.sleep(effect.seconds)
        if isinstance(effect, Send):
            return self._send(effect)
        raise TypeError(f"{type(effect).__name__} needs a stream")

    def _send(self, effect: Send) -> Response:
        until = time.monotonic() + effect.request.timeout
        try:
            with self._http.stream(**spelled(self._base, self._token, effect.request)) as response:
                body = bytearray()
                for piece in response.iter_bytes():
                    body += piece
                    if time.monotonic() > until:
                        raise Unreachable("the answer takes too long", sent=True)
                return head_of(response, bytes(body))
        except FAILURES as error:
            raise failed(error) from error

    def _open(self, effect: Open, opened: ExitStack) -> tuple[Response, Iterator[bytes]]:
        try:
            response = opened.enter_context(self._http.stream(**spelled(self._base, self._token, effect.request)))
            if response.status_code >= 300:
                return head_of(response, response.read()), response.iter_bytes()
            return head_of(response), response.iter_bytes(None if "event" in _type(response) else PIECE)
        except FAILURES as error:
            raise failed(error) from error

    def _read(self, pieces: Iterator[bytes] | None) -> bytes:
        if pieces is None:
            raise TypeError("no stream is open")
        try:
            return next(pieces, b"")
        except FAILURES as error:
            raise failed(error) from error


def _type(response: httpx.Response) -> str:
    return response.headers.get("content-type", "")
