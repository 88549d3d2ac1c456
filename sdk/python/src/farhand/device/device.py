"""A device: it connects to a gateway, offers tools, and answers the calls to them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .gateway import Gateway
from .session import Options, Session
from .store import MemoryStore
from .tools import Effects, Hints, SecurityLevel, Tool, offer, offer_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from .approvals import Approver
    from .chat import Chat
    from .errors import DeviceError
    from .pair import Credential
    from .state import State
    from .store import Store
    from .wake import Waker

_Function = TypeVar("_Function", bound="Callable[..., Any]")


class Device:
    """One device: it connects to a gateway, offers tools, and answers the calls to them.

    Its methods belong to the thread of the event loop. Callbacks run there, too, and must not block.

    Args:
        address: A ws, wss, http or https URL of the gateway.
        token: The bearer token.
        credential: Of a paired device, from ``pair``. It replaces token and device_id. Default, if there is no token:
            the one in the store.
        session: The session's id. Default: the one in the store, else the gateway chooses one.
        name: The label that people see for the session.
        device_id: A stable id of the device.
        device_name: For people.
        platform: For people.
        labels: By which callers select devices.
        store: Keeps session, calls and answers, so that they survive a restart: see ``FileStore``. Default: memory.
        approver: Asks the person at the device about calls that need approval. Without it, only other approvers are
            asked.
        wake: Says how the gateway wakes the device while it sleeps. It is called on each connection to a gateway that
            can. The device needs a device_id, or is paired.
        on_state: Gets each state of the connection.
        on_trouble: Gets errors that the device survives: the gateway does not like a frame, or the store fails
            (``store``), or wake does (``wake``).
        parallelism: How many handlers run at once. Further calls wait.
        backoff: Seconds. The first delay before a reconnect is random up to the first number; that bound doubles up to
            the second.
        silence: Seconds for which the gateway may show no sign of life. Default: three of its pings.
        ssl_context: Default: the system's certificates.

    """

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        credential: Credential | None = None,
        session: str = "",
        name: str = "",
        device_id: str = "",
        device_name: str = "",
        platform: str = sys.platform,
        labels: Mapping[str, str] | None = None,
        store: Store | None = None,
        approver: Approver | None = None,
        wake: Waker | None = None,
        on_state: Callable[[State], object] | None = None,
        on_trouble: Callable[[DeviceError], object] | None = None,
        parallelism: int = 16,
        backoff: tuple[float, float] = (0.5, 30.0),
        silence: float = 60.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        options = Options(
            token=token or "",
            credential=credential,
            session=session,
            name=name,
            device_id=device_id,
            device_name=device_name,
            platform=platform,
            labels=labels,
            approver=approver,
            wake=wake,
            parallelism=parallelism,
            backoff=backoff,
            silence=silence,
        )
        self._session = Session(
            Gateway(address, ssl_context), options, store or MemoryStore(), on_state or _ignore, on_trouble or _ignore
        )

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._session.state

    @property
    def session_id(self) -> str:
        """The session's id; "" until the gateway has chosen one."""
        return self._session.id

    @property
    def tools(self) -> list[str]:
        """Names of the offered tools."""
        return list(self._session.offers)

    @property
    def chat(self) -> Chat:
        """The conversation of the person at the device."""
        return self._session.chat

    @overload
    def tool(self, function: _Function, /) -> _Function: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        security: SecurityLevel | None = None,
        hints: Hints | None = None,
        effects: Effects | None = None,
        tags: Sequence[str] | None = None,
        timeout: float | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> Callable[[_Function], _Function]: ...

    def tool(
        self,
        function: _Function | None = None,
        /,
        *,
        name: str | None = None,
        description: str | None = None,
        security: SecurityLevel | None = None,
        hints: Hints | None = None,
        effects: Effects | None = None,
        tags: Sequence[str] | None = None,
        timeout: float | None = None,
        output_schema: Mapping[str, Any] | None = None,
    ) -> Any:
        """Offers a function as a tool: ``@device.tool``, or ``@device.tool(security="user_confirm")``.

        The annotations of its parameters make the JSON Schema, and arguments become what they say: str, bool, int,
        float, Literal, Enum, Optional and other unions, list, set, tuple, dict, datetime, date, dataclasses,
        TypedDicts, and models of pydantic. ``Annotated[int, "text", Keywords(minimum=1)]`` has a description and
        keywords. A parameter of the type Call (of an async function) or SyncCall (of another one) gets the call.

        A plain function runs in a thread. The returned string is the output, None an empty one, a Part or a Result has
        images, sounds and files, anything else is sent as JSON. An exception is the caller's error.

        Args:
            function: The function, which is returned unchanged.
            name: Default: the function's.
            description: Default: the docstring.
            security: ``user_confirm``: calls need approval; ``admin_only``: only for admins, never for models.
            hints: The effects of a call.
            effects: What calls do outside the gateway.
            tags: Up to 16 short names by which callers filter tools.
            timeout: Default timeout of callers, in seconds.
            output_schema: The JSON Schema of the output. The gateway marks answers that break it.

        Raises:
            TypeError: The function has no docstring, or an annotation has no JSON Schema.
            ValueError: The name is malformed.

        """

        def add(decorated: _Function) -> _Function:
            made = offer_of(
                decorated,
                name=name,
                description=description,
                security=security,
                hints=hints,
                effects=effects,
                tags=tags,
                timeout=timeout,
                output_schema=output_schema,
            )
            self._session.add(made)
            return decorated

        return add if function is None else add(function)

    def add_tool(self, tool: Tool) -> None:
        """Offers a tool from now on, or replaces the tool of that name. The next state says if the gateway takes it."""
        self._session.add(offer(tool))

    def remove_tool(self, name: str) -> None:
        """Stops offering a tool. Running calls of it are still answered."""
        self._session.remove(name)

    async def start(self) -> None:
        """Connects, and returns when the tools can be called.

        The device stays connected until ``stop``, or until its state is ``refused``. Cancelling the wait does not stop
        it. It raises a DeviceError if the device is refused.
        """
        self._session.begin()
        await self._session.ready()

    async def stop(self) -> None:
        """Cancels running calls, answers them, and disconnects. It takes a few seconds at most.

        What the gateway did not acknowledge is sent after the next start.
        """
        await self._session.stop()

    async def run_async(self) -> None:
        """Connects, and stays connected until the task is cancelled, which stops the device.

        It raises a DeviceError if the device is refused.
        """
        task = self._session.begin()
        try:
            await asyncio.wait([task])
        finally:
            await self.stop()
        if self.state.error:
            raise self.state.error

    def run(self) -> None:
        """Runs the device in an event loop of its own, until Ctrl-C or SIGTERM, which stop it.

        It raises a DeviceError if the device is refused.
        """
        asyncio.run(self._run_until_signal())

    async def _run_until_signal(self) -> None:
        task = asyncio.ensure_future(self.run_async())
        with contextlib.suppress(NotImplementedError, ValueError):  # on Windows, and beside the main thread
            for name in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(name, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def reconnect(self) -> None:
        """Connects now instead of at the end of the delay, but not before the gateway wants the device back."""
        self._session.reconnect()

    def register_wake(self) -> None:
        """Asks ``wake`` again, as when the person has just allowed it, and tells the gateway.

        Each connection begins with it.
        """
        self._session.register_wake()

    def set_foreground(self, foreground: bool) -> None:
        """Reports whether the app is in the foreground, now and on each later connection.

        Without a report the gateway does not know. In the background it refuses calls of tools whose effects need the
        foreground, and it prefers a user's device in the foreground.
        """
        self._session.set_foreground(foreground)

    def set_default(self) -> bool:
        """Asks the gateway to make this device the default of its user. Returns whether there is a connection.

        The default gets calls for the user that could go to several devices. The device needs a device_id, and a token
        that names the user. A refusal goes to ``on_trouble``.
        """
        return self._session.set_default()

    async def __aenter__(self) -> Device:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


def _ignore(_: object) -> None:
    """Stands for a callback that is not given."""
