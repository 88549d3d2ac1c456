"""How a device is woken while it sleeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypedDict

from .frames import items, text


@dataclass(frozen=True)
class WakeOffer:
    """What a gateway offers."""

    kinds: tuple[str, ...]
    """The kinds of pushes that it can send, such as ``webhook``."""
    vapid_public_key: str
    """Its public key for Web Push, in base64url."""


class WakeKeys(TypedDict):
    """The keys of a push subscription, in base64url."""

    p256dh: str
    auth: str


Quiet = TypedDict("Quiet", {"from": str, "to": str, "zone": str}, total=False)
"""The part of each day without pushes, such as from 22:00 to 07:00 in Europe/Vienna. Default zone: UTC."""


class _Wake(TypedDict, total=False):
    url: str
    endpoint: str
    keys: WakeKeys
    token: str
    topic: str
    min_interval_ms: int
    quiet: Quiet


class Wake(_Wake):
    """How a device is woken. docs/wake.md of the gateway describes the kinds and their fields."""

    kind: Literal["webhook", "webpush", "unifiedpush", "fcm", "apns"]


Waker = Callable[[WakeOffer], "Wake | None"]
"""Says how the device is woken. None: the gateway forgets how."""


def offer_of(field: object) -> WakeOffer | None:
    """Returns the offer of the frame connected, None if the gateway wakes no devices."""
    if not isinstance(field, dict):
        return None
    kinds = tuple(text(kind) for kind in items(field.get("kinds")))
    return WakeOffer(kinds, text(field.get("vapid_public_key")))
