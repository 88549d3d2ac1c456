"""Addresses of a gateway, and requests to it."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple

from ..version import VERSION
from .errors import DeviceError, message_of, refused

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator
    from pathlib import Path

DIAL_TIMEOUT = 10.0
"""Seconds that a request, and the handshake of a socket, may take."""

USER_AGENT = f"farhand-device-python/{VERSION}"

_UPLOAD_TIMEOUT = 30.0  # seconds in which the gateway must take the next bytes of a file
_PIECE = 64 << 10  # bytes of a file that are sent at a time
_MOST_ANSWER = 1 << 20  # bytes of an answer that are read


def bearer(token: str) -> dict[str, str]:
    """Returns the headers that prove a token; none for an empty one."""
    return {"Authorization": f"Bearer {token}"} if token else {}


class Gateway:
    """The gateway at a ws, wss, http or https URL. The default path is /ws/chat."""

    def __init__(self, address: str, context: ssl.SSLContext | None = None) -> None:
        url = urllib.parse.urlsplit(address)
        secure = {"ws": False, "http": False, "wss": True, "https": True}.get(url.scheme)
        if secure is None or not url.netloc:
            raise ValueError(f"the scheme of {address} is not ws, wss, http or https")
        path = url.path if url.path not in ("", "/") else "/ws/chat"
        self.context = context if secure else None
        self._socket = url._replace(scheme="wss" if secure else "ws", path=path, fragment="")
        prefix = path.rstrip("/").removesuffix("/ws/chat").rstrip("/")
        self.base = f"{'https' if secure else 'http'}://{url.netloc}{prefix}"

    def socket(self, **parameters: str) -> str:
        """Returns the URL of the socket, with those parameters that are not empty."""
        query = urllib.parse.parse_qsl(self._socket.query, keep_blank_values=True)
        query += [(name, value) for name, value in parameters.items() if value]
        return self._socket._replace(query=urllib.parse.urlencode(query, quote_via=urllib.parse.quote)).geturl()

    async def post(self, path: str, body: object, token: str = "") -> dict[str, Any]:
        """Posts a JSON body, and returns the answer's. The error is a DeviceError."""
        request = urllib.request.Request(
            self.base + path,
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "User-Agent": USER_AGENT, **bearer(token)},
            method="POST",
        )
        answer = await asyncio.to_thread(_ask, request, DIAL_TIMEOUT, self.context)
        if not 200 <= answer.status < 300:
            raise refused(answer.status, answer.body, answer.retry_after)
        try:
            value = json.loads(answer.body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise DeviceError("unreachable", f"{self.base} is no gateway: its answer is no JSON object", answer.status)
        return value

    async def put(self, path: str, mime_type: str, data: bytes | Path, size: int) -> None:
        """Uploads bytes, or the content of a file. A cancelled upload ends with its next piece."""
        given_up = threading.Event()
        request = urllib.request.Request(
            self.base + path,
            _pieces(data, given_up),
            {"Content-Type": mime_type, "Content-Length": str(size), "User-Agent": USER_AGENT},
            method="PUT",
        )
        try:
            answer = await asyncio.to_thread(_ask, request, _UPLOAD_TIMEOUT, self.context)
        finally:
            given_up.set()
        if answer.status != 204:
            raise refused(answer.status, answer.body, answer.retry_after)


class _Answer(NamedTuple):
    status: int
    body: bytes
    retry_after: str | None


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: tokens are for the given address only."""

    def redirect_request(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any) -> None:
        """Returns no request, so the redirect is the answer."""


def _ask(request: urllib.request.Request, timeout: float, context: ssl.SSLContext | None) -> _Answer:
    opener = urllib.request.build_opener(_Stay, urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=timeout) as response:
            return _Answer(response.status, response.read(_MOST_ANSWER), None)
    except urllib.error.HTTPError as error:
        with error:
            return _Answer(error.code, error.read(_MOST_ANSWER), error.headers.get("Retry-After"))
    except (OSError, HTTPException) as error:
        raise DeviceError("unreachable", f"no gateway answers: {message_of(error)}") from error


def _pieces(data: bytes | Path, given_up: threading.Event) -> Iterator[bytes]:
    if isinstance(data, bytes):
        for start in range(0, len(data), _PIECE):
            if given_up.is_set():
                raise OSError("the upload was cancelled")
            yield data[start : start + _PIECE]
        return
    with data.open("rb") as file:
        while piece := file.read(_PIECE):
            if given_up.is_set():
                raise OSError("the upload was cancelled")
            yield piece
