"""What both drivers share: how requests are spelled for httpx, and what its failures mean."""

from __future__ import annotations

import os
from typing import Any

import httpx

from ._effects import Request, Response, Unreachable
from .version import VERSION

LIMITS = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
"""Each call in progress takes a connection."""

CONNECT_TIMEOUT = 5.0

GRACE = 5.0
"""Seconds to undo what an abandoned operation began."""

PIECE = 64 << 10
"""Bytes of a piece of a file."""


def address(url: str | None) -> str:
    """Return the gateway's URL: the given one, FARHAND_URL, or this machine."""
    text = url or os.environ.get("FARHAND_URL") or "http://127.0.0.1:8080"
    if not text.startswith(("http://", "https://")):
        raise ValueError(f"the gateway's URL must begin with http:// or https://: {text!r}")
    return text.rstrip("/")


def token_of(token: str | None) -> str:
    """Return the token: the given one, or FARHAND_TOKEN."""
    return token if token is not None else os.environ.get("FARHAND_TOKEN", "")


def spelled(base: str, token: str, request: Request) -> dict[str, Any]:
    """Return the arguments of httpx for a request."""
    headers = {"User-Agent": f"farhand-python/{VERSION}", **request.headers}
    if token and not request.anonymous:
        headers["Authorization"] = f"Bearer {token}"
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    return {
        "method": request.method,
        "url": base + request.path,
        "params": dict(request.query) or None,
        "content": request.body,
        "headers": headers,
        "timeout": httpx.Timeout(request.timeout, connect=min(CONNECT_TIMEOUT, request.timeout)),
        "follow_redirects": False,
    }


def head_of(response: httpx.Response, body: bytes = b"") -> Response:
    """Return the gateway's answer."""
    return Response(response.status_code, {name.lower(): value for name, value in response.headers.items()}, body)


def failed(error: Exception) -> Unreachable:
    """Return what a failure of httpx means."""
    never = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError))
    return Unreachable(str(error) or type(error).__name__, sent=not never)


FAILURES = (httpx.TransportError, httpx.DecodingError)
"""The failures of the transport."""
