"""Client of a Farhand gateway: call the tools of devices from Python.

    from farhand import Farhand

    with Farhand("https://gateway.example.com", token) as farhand:
        print(farhand.call("battery", device="phone"))

AsyncFarhand is the same for asyncio. Start reading at _calls.py, which has the rules of a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import FarhandError
from .results import DeviceResult, Result
from .version import VERSION as __version__

if TYPE_CHECKING:
    from ._async_client import AsyncCall, AsyncConversation, AsyncFarhand
    from ._async_group import AsyncGroupCall
    from ._sync_client import Call, Conversation, Farhand
    from ._sync_group import GroupCall

__all__ = [
    "AsyncCall",
    "AsyncConversation",
    "AsyncFarhand",
    "AsyncGroupCall",
    "Call",
    "Conversation",
    "DeviceResult",
    "Farhand",
    "FarhandError",
    "GroupCall",
    "Result",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Devices import this package without the HTTP client, which takes longer to load than all else.
    if name in ("AsyncCall", "AsyncConversation", "AsyncFarhand", "AsyncGroupCall"):
        from . import _async_client

        return getattr(_async_client, name)
    if name in ("Call", "Conversation", "Farhand", "GroupCall"):
        from . import _sync_client

        return getattr(_sync_client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
