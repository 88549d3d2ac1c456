"""Calls wait, and stops waiting for it in the way that the first argument names."""

import asyncio
import sys

from farhand import AsyncFarhand, Farhand
from farhand.errors import CallTimeoutError

how = sys.argv[1]


async def cancel() -> None:
    async with AsyncFarhand() as farhand:
        call = asyncio.create_task(farhand.call("wait", device="phone"))
        await asyncio.to_thread(sys.stdin.readline)
        call.cancel()
        try:
            await call
        except asyncio.CancelledError:
            print("ended: cancelled")


async def timeout() -> None:
    async with AsyncFarhand() as farhand:
        try:
            async with asyncio.timeout(None) as limit:
                stop = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
                stop.add_done_callback(lambda _: limit.reschedule(0))
                await farhand.call("wait", device="phone")
        except TimeoutError:
            print("ended: timeout")


def interrupt() -> None:
    with Farhand() as farhand:
        try:
            farhand.call("wait", device="phone")
        except KeyboardInterrupt:
            print("ended: interrupt")


def deadline() -> None:
    with Farhand() as farhand:
        try:
            farhand.call("wait", device="phone", timeout=5)
        except CallTimeoutError as e:
            print(f"ended: {e.dispatched}")


if how == "cancel":
    asyncio.run(cancel())
elif how == "timeout":
    asyncio.run(timeout())
elif how == "interrupt":
    interrupt()
else:
    deadline()
