"""Calls a device that sleeps, and then many at once, against the devices of TestQueueAndGroups."""

import asyncio
from contextlib import aclosing

from farhand import AsyncFarhand, Farhand, FarhandError


def check(got: object, want: object) -> None:
    if got != want:
        raise AssertionError(f"{got!r}, want {want!r}")


async def queue(farhand: AsyncFarhand) -> None:
    while not (rows := [row async for row in farhand.sessions(presence="sleeping")]):
        pass
    check((rows[0]["device_id"], rows[0]["presence"], "last_seen" in rows[0]), ("phone", "sleeping", True))
    check([t["name"] async for t in farhand.tools(presence="sleeping", device="phone")], ["echo", "hold"])
    first = await farhand.start("echo", {"text": "first"}, device="phone", queue=600)
    check((first.place, bool(first.expires_at), (await first.record())["state"]), (1, True, "queued"))
    second = await farhand.start("echo", {"text": "second"}, device="phone", queue=600)
    check((second.place, (await second.cancel())["state"]), (2, "cancelled"))
    try:
        await farhand.call("echo", {"text": "late"}, device="phone", queue=1)
        raise AssertionError("a queued call did not expire")
    except FarhandError as error:
        check((error.dispatched, (await farhand.record(error.call_id or ""))["state"]), ("no", "expired"))
    third = asyncio.ensure_future(farhand.call("echo", {"text": "third"}, device="phone", queue=600))
    print("wake the phone", flush=True)
    check((await first.result()).output, "first")
    check((await third).output, "third")
    print("connect the others", flush=True)


async def groups(farhand: AsyncFarhand) -> None:
    while len([s async for s in farhand.sessions(connected=True, labels={"room": "kitchen"})]) < 3:
        pass
    group = farhand.call_devices("echo", {"text": "hi"}, labels={"room": "kitchen"})
    results = {r.device_id: r async for r in group}
    check({name: r.state for name, r in results.items()}, {"one": "succeeded", "two": "succeeded", "broken": "failed"})
    check(results["one"].result and results["one"].result.output, "hi")
    check((str(results["broken"].error), results["broken"].result), ("tool_failed: no voice", None))
    counts = group.counts or {}
    check([counts.get(n) for n in ("devices", "succeeded", "failed")], [3, 2, 1])
    check((group.state, bool(group.call_id)), ("failed", True))
    first = farhand.call_devices("echo", {"text": "hi"}, devices=["one", "two", "none"], mode="first")
    await first.results()
    check((first.state, (first.counts or {}).get("succeeded") in (1, 2)), ("succeeded", True))  # two may answer at once
    held = farhand.call_devices("hold", devices=["one", "none"])
    async with aclosing(held.__aiter__()) as rows:
        check((await anext(rows)).state, "rejected")
        await held.cancel()
        check([(r.device_id, r.state) async for r in rows], [("one", "cancelled")])
    check(held.state, "cancelled")
    try:
        await farhand.call_devices("nothing").results()
        raise AssertionError("a call of no device began")
    except FarhandError as error:
        check((error.code, error.dispatched), ("session_not_found", "no"))


async def main() -> None:
    async with AsyncFarhand() as farhand:
        await queue(farhand)
        await groups(farhand)


asyncio.run(main())
with Farhand() as sync:
    call = sync.call_devices("echo", {"text": "hi"}, devices=["one", "two"])
    check(sorted(r.device_id or "" for r in call), ["one", "two"])
    check(call.state, "succeeded")
    check(len(sync.call_devices("echo", {"text": "hi"}, devices=["one"]).results()), 1)
    print("done", flush=True)
