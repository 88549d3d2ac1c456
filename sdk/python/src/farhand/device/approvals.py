"""Questions to the person at the device about calls that need approval."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from .frames import Frame, encode, items, seconds, text

_MOST = 64  # questions that wait; other approvers can answer the rest

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """Asks the person at the device whether a call may run."""

    id: str
    """Of the approval, as ``farhand approve`` takes it."""
    call_id: str
    tool: str
    args: Any
    """As the tool receives them. Show ``text``, not these."""
    text: str
    """The arguments for people, with nothing hidden. Show all of it, as plain text."""
    reason: str
    """Why the call needs approval."""
    remarks: tuple[str, ...]
    """What needs attention: ``long``, ``multiline``, ``hidden`` (invisible characters), ``foreign`` (look-alikes)."""
    expires: datetime


Decision = Literal["allow-once", "allow-always", "deny"]
"""The person's answer. ``allow-always``: this tool with these arguments, until the gateway forgets it."""

Approver = Callable[[Question], Awaitable["Decision | None"]]
"""Asks the person.

Its task is cancelled when the answer is no longer needed: another approver has decided, the question has expired, or
the device stops. None decides nothing; other approvers still can. A question whose answer may have been lost with the
connection is asked again.
"""


class Questions:
    """Asks an approver, each question once at a time."""

    def __init__(self, approver: Approver | None, send: Callable[[str], bool]) -> None:
        self._approver = approver
        self._send = send
        self._asked: dict[str, asyncio.Task[None]] = {}

    def ask(self, frame: Frame) -> None:
        """Takes an approval_request."""
        id = text(frame.get("id"))
        if self._approver is None or not id or id in self._asked or len(self._asked) >= _MOST:
            return
        left = seconds(frame.get("expires_ms"))
        question = Question(
            id=id,
            call_id=text(frame.get("call_id")),
            tool=text(frame.get("tool")),
            args=frame.get("args"),
            text=text(frame.get("args_text")),
            reason=text(frame.get("reason")),
            remarks=tuple(text(remark) for remark in items(frame.get("remarks"))),
            expires=datetime.now(timezone.utc) + timedelta(seconds=left),
        )
        self._asked[id] = asyncio.get_running_loop().create_task(self._ask(self._approver, question, left))

    def end(self, id: str) -> None:
        """Ends a question, since it is decided."""
        if task := self._asked.pop(id, None):
            task.cancel()

    async def stop(self) -> None:
        """Ends all questions. An approver that ignores that is not waited for."""
        tasks = list(self._asked.values())
        for id in list(self._asked):
            self.end(id)
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def _ask(self, approver: Approver, question: Question, left: float) -> None:
        expiry = asyncio.get_running_loop().call_later(left, self.end, question.id)
        task = asyncio.current_task()
        try:
            decision = await approver(question)
            if decision and self._asked.get(question.id) is task:
                self._send(encode({"type": "approval_response", "id": question.id, "decision": decision}))
        except Exception as error:  # decides nothing
            _log.warning("the approver failed", exc_info=error)
        finally:
            expiry.cancel()
            if self._asked.get(question.id) is task:
                del self._asked[question.id]
