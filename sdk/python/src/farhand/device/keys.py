"""The key of a paired device. It needs the package cryptography."""

from __future__ import annotations

import base64
import importlib.util


def available() -> bool:
    """Whether this Python can make keys."""
    return importlib.util.find_spec("cryptography") is not None


def make() -> tuple[str, str]:
    """Returns the seed of a new Ed25519 key, and its public key. Both are 32 bytes in base64url."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return _text(key.private_bytes_raw()), _text(key.public_key().public_bytes_raw())


def sign(seed: str, message: bytes) -> str:
    """Returns the signature of a message in base64url."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    raw = base64.urlsafe_b64decode(seed + "=" * (-len(seed) % 4))
    return _text(Ed25519PrivateKey.from_private_bytes(raw).sign(message))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
