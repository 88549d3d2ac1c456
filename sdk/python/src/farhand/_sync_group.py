# Generated from _async_group.py by `make docs`.
"""The synchronous group call."""

from __future__ import annotations

from contextlib import closing
from typing import cast

from . import types
from ._sync_driver import Driver, Stream
from ._calls import cancel
from ._group import GroupOperation
from .results import DeviceResult


class GroupCall:
    """A call of one tool of many devices. It begins with the first iteration, of which there is one.

    Closing the iterator early cancels the calls that run, unless the call has an idempotency key.
    """

    def __init__(self, driver: Driver, operation: GroupOperation) -> None:
        self._driver, self._operation = driver, operation

    @property
    def call_id(self) -> str | None:
        """The id of the parent call, when the gateway has begun it."""
        return self._operation.call_id

    @property
    def counts(self) -> types.GroupCounts | None:
        """How many devices were called, succeeded, failed and so on, when the iteration has ended."""
        return self._operation.end and self._operation.end["counts"]

    @property
    def state(self) -> str | None:
        """How the call ended. ``succeeded``: it has what its mode asks for."""
        return self._operation.end and self._operation.end["state"]

    @property
    def reason(self) -> str | None:
        """Why the call has not what its mode asks for, if known."""
        end = self._operation.end
        if end is None:
            return None
        return end["problem"]["detail"] if "problem" in end else end.get("error")

    def __iter__(self) -> Stream[DeviceResult]:
        """Iterate over the results, in the order of their coming."""
        return self._driver.stream(self._operation.run())

    def results(self) -> list[DeviceResult]:
        """Return all results."""
        with closing(self.__iter__()) as results:
            return [result for result in results]

    def cancel(self) -> types.CallRecord:
        """Cancel the calls that run, once the call has its id. The iteration goes on to its end."""
        if self.call_id is None:
            raise RuntimeError("the group call has not begun")
        return cast(types.CallRecord, self._driver.run(cancel(self.call_id)))
