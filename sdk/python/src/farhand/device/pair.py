"""Pairs a device with its gateway."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from . import keys
from .errors import DeviceError
from .frames import number, some, text
from .gateway import Gateway

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from .store import Store

_KEPT = "credential"


@dataclass(frozen=True)
class Credential:
    """The credential of a paired device. It is a secret: its holder can act as the device."""

    token: str = field(repr=False)
    """The bearer token, fhd_…."""
    device_id: str
    key: str = field(default="", repr=False)
    """Seed of the Ed25519 key that proves each connection, in base64url; "": the token alone is enough."""


async def stored_credential(store: Store) -> Credential | None:
    """Returns the credential that a store keeps, None if there is none."""
    kept = await store.get(_KEPT)
    if not isinstance(kept, dict):
        return None
    return Credential(text(kept.get("token")), text(kept.get("device_id")), text(kept.get("key")))


async def forget_credential(store: Store) -> None:
    """Forgets the credential of a store, for a device that is to be paired again."""
    await store.delete(_KEPT)


async def pair(
    address: str,
    *,
    show: Callable[[str, datetime], object],
    store: Store | None = None,
    device_id: str = "",
    device_name: str = "",
    platform: str = sys.platform,
    tools: Sequence[str] = (),
    key: bool = True,
    ssl_context: ssl.SSLContext | None = None,
) -> Credential:
    """Returns the credential of the store, or pairs the device with the gateway at address.

    It makes a key, shows a code, and waits for an approver, without a limit: cancel it to end the wait. An expired code
    is replaced by a new one.

    Args:
        address: A ws, wss, http or https URL.
        show: Shows a code to a person, who enters it where pairings are approved before it expires. It is called once
            for each code, in the event loop.
        store: Keeps the credential.
        device_id: If empty, the gateway makes one.
        device_name: For the approver.
        platform: For the approver.
        tools: Names of tools that the device wants to offer.
        key: Whether connections prove an Ed25519 key. It needs ``farhand[pairing]``. Without it, anyone who has the
            token can act as the device.
        ssl_context: Default: the system's certificates.

    Raises:
        DeviceError: The code is ``rejected`` if the approver did not want the device.
        ImportError: The package cryptography is missing.

    """
    if store and (before := await stored_credential(store)):
        return before
    if key and not keys.available():
        raise ImportError("a key needs the package cryptography: install farhand[pairing], or pass key=False")
    gateway = Gateway(address, ssl_context)
    seed, public_key = keys.make() if key else ("", "")
    while True:
        asked = await gateway.post(
            "/pair",
            some(
                device_id=device_id or None,
                device_name=device_name or None,
                platform=platform or None,
                tools=list(tools),
                public_key=public_key or None,
            ),
        )
        device_id = text(asked.get("device_id"))  # a further request is for the same device
        expires = datetime.now(timezone.utc) + timedelta(seconds=number(asked.get("expires_in")))
        show(text(asked.get("code")), expires)
        if token := await _decision(gateway, asked):
            credential = Credential(token, device_id, seed)
            if store:
                await store.set(_KEPT, {"token": token, "device_id": device_id, "key": seed})
            return credential


async def _decision(gateway: Gateway, asked: dict[str, Any]) -> str:
    """Waits for the approver. It returns the credential's token, "" if the code expired."""
    interval = min(max(number(asked.get("interval")), 1.0), 60.0)
    while True:
        await asyncio.sleep(interval)
        try:
            answer = await gateway.post("/pair/status", {"secret": asked.get("secret")})
        except DeviceError as error:
            if error.status == 404:
                return ""
            if 400 <= error.status < 500 and error.status != 429:
                raise
            continue  # the gateway cannot be reached; the request may still be approved
        if answer.get("status") == "rejected":
            raise DeviceError("rejected", "an approver rejected the device")
        if answer.get("status") == "approved":
            return text(answer.get("credential"))


async def sign(gateway: Gateway, credential: Credential) -> str:
    """Returns what a paired device proves with that it has its key: nonce.signature. "": it has no key."""
    if not credential.key:
        return ""
    challenge = await gateway.post("/pair/challenge", {}, credential.token)
    nonce = text(challenge.get("nonce"))
    message = f"farhand-device-v1\n{nonce}\n{credential.device_id}".encode()
    return f"{nonce}.{keys.sign(credential.key, message)}"
