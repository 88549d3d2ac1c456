# Generated from _async_client.py by `make docs`.
"""The synchronous client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Literal, cast

import httpx

from . import _resources, _streams, types
from ._sync_driver import Driver, Stream
from ._sync_group import GroupCall
from ._calls import CallOperation, Target, cancel, wait_for
from ._effects import Request, clean, get, path
from ._group import GroupOperation, Mode
from ._retry import Deadline
from .results import Result

Select = Literal["any", "newest"]
Presence = Literal["connected", "sleeping", "any"]
DecisionName = Literal["allow-once", "allow-always", "deny"]


class Call:
    """A call that continues at the gateway, whether or not this program waits for it."""

    def __init__(
        self, driver: Driver, call_id: str, retry_for: float, accepted: Mapping[str, Any] | None = None
    ) -> None:
        said = accepted or {}
        self.call_id = call_id
        """The call's id, for ``farhand.attach``, also of another program."""
        self.place: int | None = said.get("place")
        """If the call waits in the queue of its device: its place when it was accepted, from 1 on."""
        self.expires_at: str | None = said.get("expires_at")
        """If the call waits: when it expires (RFC 3339)."""
        self._driver, self._retry_for = driver, retry_for

    def result(self, *, timeout: float | None = None) -> Result:
        """Wait for the end of the call, at most timeout seconds, and return its result.

        The call continues if the timeout passes (CallTimeoutError) or this wait is cancelled.
        """
        return self._driver.run(wait_for(self.call_id, timeout, self._retry_for))

    def events(self, *, timeout: float | None = None) -> Stream[types.CallEvent]:
        """Iterate over the changes of state and the device's progress, from the beginning to the end of the call.

        A broken connection is resumed without loss or repetition, on any pod.
        """
        operation = _streams.call_events(self.call_id, Deadline(timeout), self._retry_for)
        with closing(self._driver.stream(operation)) as events:
            for event in events:
                yield event

    def output(self, *, timeout: float | None = None) -> Stream[str]:
        """Iterate over the output that the device sends in advance. The result has the complete output."""
        with closing(self.events(timeout=timeout)) as events:
            for event in events:
                if chunk := event.get("chunk"):
                    yield chunk

    def record(self) -> types.CallRecord:
        """Return the call's record as it is now."""
        return self._driver.run(_resources.read(get(path("api", "calls", self.call_id)), self._retry_for))

    def cancel(self) -> types.CallRecord:
        """Cancel the call and return its record. Cancelling a finished call has no effect."""
        return cast(types.CallRecord, self._driver.run(cancel(self.call_id)))


class Approvals:
    """The approvals that calls wait for. Needs the role approver."""

    def __init__(self, driver: Driver, retry_for: float) -> None:
        self._driver, self._retry_for = driver, retry_for

    def pending(self) -> list[types.ApprovalRow]:
        """Return the open approvals, in order of expiry, without the arguments of their calls."""
        page = self._driver.run(_resources.read(get("/api/approvals"), self._retry_for))
        return page["approvals"]

    def get(self, approval_id: str) -> types.Approval:
        """Return an approval with its arguments. Show people ``args_text``, which hides nothing."""
        return self._driver.run(_resources.read(get(path("api", "approvals", approval_id)), self._retry_for))

    def wait(self, approval_id: str, *, timeout: float | None = None) -> types.Approval:
        """Wait until an approval is decided, expires or is withdrawn, at most timeout seconds (CallTimeoutError)."""
        return self._driver.run(_resources.decision(approval_id, timeout, self._retry_for))

    def decide(
        self,
        approval_id: str,
        decision: DecisionName,
        *,
        comment: str | None = None,
        scope: Literal["tool", "arguments"] | None = None,
        expires_in: float | None = None,
    ) -> types.Decision:
        """Decide an approval. The first decision counts: ``decided`` says whether it was this one.

        scope and expires_in (seconds, default 30 days) belong to "allow-always".
        """
        body = {
            "decision": decision,
            "comment": comment,
            "scope": scope,
            "expires_in_ms": None if expires_in is None else int(expires_in * 1000),
        }
        return self._driver.run(_resources.write(_resources.post(path("api", "approvals", approval_id), body)))

    def grants(self) -> list[types.Grant]:
        """Return the grants of "allow-always"."""
        return (self._driver.run(_resources.read(get("/api/grants"), self._retry_for)))["grants"]

    def revoke_grant(self, grant_id: str) -> types.Grant:
        """Revoke a grant and return it."""
        return self._driver.run(_resources.write(Request("DELETE", path("api", "grants", grant_id))))


class Conversation:
    """The conversation of a session with the gateway's language model, which calls the session's tools."""

    def __init__(self, driver: Driver, session: str, retry_for: float) -> None:
        self.session = session
        self._driver, self._retry_for = driver, retry_for

    def say(
        self, content: str, *, results: Literal["markdown", "plain"] | None = None, timeout: float = 660.0
    ) -> types.TurnAnswer:
        """Send a message and return the whole answer. Cancelling this wait stops the turn and cancels its calls."""
        request = _resources.message(self.session, {"content": content, "stream": False, "results": results}, timeout)
        return self._driver.run(_resources.write(request))

    def stream(
        self, content: str, *, results: Literal["markdown", "plain"] | None = None, debug: bool | None = None
    ) -> Stream[types.TurnEvent]:
        """Send a message and iterate over the events of the turn. The last one is ``done`` or ``aborted``.

        A turn that fails raises TurnError. Closing the iterator stops the turn.
        """
        body = {"content": content, "stream": True, "results": results, "debug": debug}
        with closing(self._turn(body)) as events:
            for event in events:
                yield event

    def regenerate(self) -> Stream[types.TurnEvent]:
        """Answer the last message again, as stream does. Calls of the earlier answer are not undone."""
        with closing(self._turn({"regenerate": True, "stream": True})) as events:
            for event in events:
                yield event

    def _turn(self, body: Mapping[str, Any]) -> Stream[types.TurnEvent]:
        return self._driver.stream(_streams.turn(_resources.message(self.session, body, _streams.SILENCE)))

    def abort(self) -> bool:
        """Stop the running turn of any caller. Return whether there was one."""
        request = _resources.post(path("api", "sessions", self.session, "abort"), {})
        return (self._driver.run(_resources.write(request)))["status"] == "aborted"

    def transcript(self, *, limit: int | None = None) -> types.Transcript:
        """Return the last messages: limit of them, 100 by default, at most 1,000."""
        request = get(path("api", "sessions", self.session, "messages"), clean({"limit": limit}))
        return self._driver.run(_resources.read(request, self._retry_for))


class Farhand:
    """A client of a Farhand gateway, for a program with threads.

        with Farhand("https://gateway.example.com", token) as farhand:
            result = farhand.call("camera_snap", {"camera": "back"}, device="phone")

    url defaults to FARHAND_URL, else http://127.0.0.1:8080; token to FARHAND_TOKEN. retry_for is how many seconds a
    method keeps trying while the gateway does not answer, or says that nothing ran and that a retry may help. http is
    an httpx client with your own proxies, certificates or transports; you close it.

    A client is safe for concurrent use. All methods raise the classes of farhand.errors.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        retry_for: float = 30.0,
        http: httpx.Client | None = None,
    ) -> None:
        self._driver, self._retry_for = Driver(url, token, http), retry_for
        self.approvals = Approvals(self._driver, retry_for)
        """Approvals that calls wait for."""

    def __enter__(self) -> Farhand:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._driver.close()

    def call(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        session: str | None = None,
        device: str | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        select: Select | None = None,
        timeout: float | None = None,
        queue: float | None = None,
        idempotency_key: str | None = None,
    ) -> Result:
        """Call a tool and return its result.

        session, device, user and labels select the session; without them, the only one that offers the tool. timeout
        is in seconds, for everything: approval, retries and the tool. Without it, the gateway's default bounds the
        tool. When this wait is cancelled or the timeout passes, the call is cancelled at the gateway.

        queue is how many seconds the call may wait for a device that is known and not connected; the target must name
        one device. timeout is then longer by it.

        Each call has an idempotency key, a random one by default, so that a lost answer never makes it run twice.
        Raises ToolFailedError if the tool ran and failed.
        """
        operation = CallOperation(
            tool,
            args,
            Target(session, device, user, labels),
            select=select,
            timeout=timeout,
            key=idempotency_key,
            retry_for=self._retry_for,
            queue=queue,
        )
        return self._driver.run(operation.run())

    def start(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        session: str | None = None,
        device: str | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        select: Select | None = None,
        timeout: float | None = None,
        queue: float | None = None,
        idempotency_key: str | None = None,
    ) -> Call:
        """Begin a call as ``call`` does, and return immediately. The call continues without this program.

        timeout bounds the retries, and then the tool.
        """
        operation = CallOperation(
            tool,
            args,
            Target(session, device, user, labels),
            select=select,
            timeout=timeout,
            key=idempotency_key,
            retry_for=self._retry_for,
            queue=queue,
            margin=0,
        )
        accepted = self._driver.run(operation.start())
        return Call(self._driver, accepted["call_id"], self._retry_for, accepted)

    def call_devices(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        devices: Sequence[str] | None = None,
        sessions: Sequence[str] | None = None,
        mode: Mode | None = None,
        quorum: int | None = None,
        stagger: float | None = None,
        timeout: float | None = None,
        device_timeout: float | None = None,
        concurrency: int | None = None,
        queue: float | None = None,
        idempotency_key: str | None = None,
    ) -> GroupCall:
        """Call one tool of many devices. Iterate over what it returns for the result of each device, as they come.

        user and labels, or lists of device or session ids, select the devices; without them, all connected devices
        that offer the tool. mode is "all" (default), "first" (until one succeeds), "quorum" (until so many succeed) or
        "race" (the next device after stagger seconds without an answer, or after a failure, until one succeeds).
        timeout bounds the whole call, device_timeout the call of each device. With queue, in the mode "all", devices
        that sleep are called, too: it is how many seconds their calls may wait for them.

        A device that fails is a result, and no error.
        """
        operation = GroupOperation(
            tool,
            args,
            {"user_id": user, "labels": labels, "device_ids": devices, "session_ids": sessions},
            mode=mode,
            quorum=quorum,
            stagger=stagger,
            timeout=timeout,
            device_timeout=device_timeout,
            concurrency=concurrency,
            queue=queue,
            key=idempotency_key,
            retry_for=self._retry_for,
        )
        return GroupCall(self._driver, operation)

    def attach(self, call_id: str) -> Call:
        """Return the handle of a call that was begun earlier, also by another program."""
        return Call(self._driver, call_id, self._retry_for)

    def record(self, call_id: str) -> types.CallRecord:
        """Return the record of a call as it is now."""
        return self.attach(call_id).record()

    def calls(
        self,
        *,
        tool: str | None = None,
        session: str | None = None,
        device: str | None = None,
        user: str | None = None,
        state: str | None = None,
        limit: int | None = None,
    ) -> Stream[types.CallRecord]:
        """Iterate over the finished calls, the newest first. limit is the size of a page."""
        query = clean(
            {"tool": tool, "session_id": session, "device_id": device, "user": user, "state": state, "limit": limit}
        )
        return self._driver.stream(_streams.pages(Request("GET", "/api/calls", query), "calls", self._retry_for))

    def tools(
        self,
        *,
        name: str | None = None,
        search: str | None = None,
        session: str | None = None,
        device: str | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        presence: Presence | None = None,
        tag: str | None = None,
    ) -> Stream[types.ToolRow]:
        """Iterate over the tools of all sessions that match, and without filters also those of the gateway.

        presence "sleeping" lists those of devices that are known and not connected, "any" both; rows then say which.
        """
        filters = clean({"name": name, "q": search, "presence": presence, "tag": tag})
        query = {**filters, **Target(session, device, user, labels).query()}
        return self._driver.stream(_streams.pages(Request("GET", "/api/tools", query), "tools", self._retry_for))

    def sessions(
        self,
        *,
        device: str | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        tool: str | None = None,
        connected: bool | None = None,
        presence: Presence | None = None,
    ) -> Stream[types.SessionRow]:
        """Iterate over the sessions: connected ones first, then conversations without their device.

        presence "sleeping" lists devices that are known and not connected, "any" both; rows then say which.
        """
        filters = clean({"tool": tool, "connected": connected, "presence": presence})
        query = {**filters, **Target(None, device, user, labels).query()}
        return self._driver.stream(_streams.pages(Request("GET", "/api/sessions", query), "sessions", self._retry_for))

    def session(self, session: str) -> types.Session:
        """Return a session with the definitions of its tools."""
        return self._driver.run(_resources.read(get(path("api", "sessions", session)), self._retry_for))

    def events(self, *kinds: types.ActivityType, timeout: float | None = None) -> Stream[types.Activity]:
        """Iterate over what happens in the fleet from now on: all events, or those of some types.

        A broken connection is resumed, on any pod. The iteration ends after timeout seconds; without it, never.
        """
        return self._driver.stream(_streams.activity(list(kinds), Deadline(timeout), self._retry_for))

    def read(self, part: types.Part) -> bytes:
        """Return the bytes of an image, a sound or a file. For large files use ``chunks``."""
        content = bytearray()
        with closing(self.chunks(part)) as chunks:
            for chunk in chunks:
                content += chunk
        return bytes(content)

    def chunks(self, part: types.Part) -> Stream[bytes]:
        """Iterate over the bytes of a part. A file that is cut off raises GatewayUnreachableError."""
        return self._driver.stream(_resources.part_bytes(part))

    def conversation(self, session: str) -> Conversation:
        """Return the conversation of a session."""
        return Conversation(self._driver, session, self._retry_for)

    def limits(self) -> types.Limits:
        """Return the limits of this credential."""
        return self._driver.run(_resources.read(get("/api/limits"), self._retry_for))

    def me(self) -> types.Me:
        """Return the identity and the roles of this credential."""
        return self._driver.run(_resources.read(get("/api/me"), self._retry_for))
