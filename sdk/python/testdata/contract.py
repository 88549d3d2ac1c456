"""Everything that the client offers, once with each client, against a pod with the device of TestContract."""

import asyncio
import sys
import threading
from contextlib import aclosing, closing

from farhand import AsyncFarhand, Farhand
from farhand.errors import (
    AmbiguousTargetError,
    ApprovalDeniedError,
    FarhandError,
    IdempotencyConflictError,
    InvalidArgumentsError,
    SessionNotFoundError,
    ToolFailedError,
    ToolNotFoundError,
    TurnError,
    UnauthenticatedError,
)


def check(got: object, want: object) -> None:
    if got != want:
        raise AssertionError(f"{got!r}, want {want!r}")


async def calls(farhand: AsyncFarhand) -> None:
    for target in ({"device": "phone"}, {"session": "phone"}, {"labels": {"room": "kitchen"}}):
        result = await farhand.call("echo", {"text": "hi"}, **target)
        check((result.output, result.session_id, result.device_id), ("hi", "phone", "phone"))
    check((await farhand.call("echo", {"text": "any"}, select="any")).output, "any")
    check((await farhand.call("measure", device="phone")).structured, {"celsius": 21.5})
    first = await farhand.call("echo", {"text": "once"}, device="phone", idempotency_key="key-1")
    again = await farhand.call("echo", {"text": "once"}, device="phone", idempotency_key="key-1")
    check(first.call_id, again.call_id)
    check((await farhand.record(first.call_id))["state"], "succeeded")
    while first.call_id not in [c["call_id"] async for c in farhand.calls(tool="echo", limit=1)]:
        await asyncio.sleep(0.05)  # the list follows the records


async def errors(farhand: AsyncFarhand) -> None:
    async def raised(kind: type[FarhandError], tool: str, args: dict[str, object], **options: object) -> FarhandError:
        try:
            await farhand.call(tool, args, **options)  # type: ignore[arg-type]
        except kind as e:
            check((e.dispatched, bool(e.call_id), bool(str(e))), (e.dispatched, True, True))
            return e
        raise AssertionError(f"{tool} did not fail")

    e = await raised(InvalidArgumentsError, "echo", {"text": 1}, device="phone")
    check((e.dispatched, e.retryable, e.errors[0]["pointer"]), ("no", False, "/text"))  # type: ignore[attr-defined]
    check((await raised(ToolNotFoundError, "none", {}, device="phone")).dispatched, "no")
    await raised(SessionNotFoundError, "echo", {"text": "x"}, session="nowhere")
    e = await raised(AmbiguousTargetError, "echo", {"text": "x"})
    check(sorted(c["session_id"] for c in e.candidates), ["phone", "tablet"])  # type: ignore[attr-defined]
    await raised(IdempotencyConflictError, "echo", {"text": "other"}, device="phone", idempotency_key="key-1")
    e = await raised(ToolFailedError, "fail", {}, device="phone")
    check((e.dispatched, e.retryable, "out of paper" in str(e)), ("yes", False, True))
    async with AsyncFarhand(token="wrong") as stranger:
        try:
            await stranger.me()
            raise AssertionError("a wrong token was accepted")
        except UnauthenticatedError as unauthenticated:
            check(unauthenticated.status, 401)


async def progress(farhand: AsyncFarhand) -> None:
    call = await farhand.start("count", {"to": 3}, device="phone")
    check([e["message"] async for e in call.events() if "message" in e], ["1 of 3", "2 of 3", "3 of 3"])
    check("".join([text async for text in call.output()]), "1 2 3 ")
    check((await call.result()).output, "1 2 3 ")
    check((await farhand.attach(call.call_id).cancel())["state"], "succeeded")
    async with aclosing(farhand.events("call.finished")) as events:
        waiting = asyncio.ensure_future(anext(events))
        while not waiting.done():  # the feed has no sign of its beginning
            await farhand.call("echo", {"text": "seen"}, device="phone")
            await asyncio.wait({waiting}, timeout=0.05)
        check((await waiting)["type"], "call.finished")


async def files(farhand: AsyncFarhand) -> None:
    result = await farhand.call("snap", {"bytes": 100}, device="phone")
    check(await farhand.read(result.images[0]), b"\x89PNG" + b"x" * 96)
    result = await farhand.call("snap", {"bytes": 3 << 20}, device="phone")
    check(("url" in result.parts[0], result.parts[0]["size"]), (True, 3 << 20))
    check(len(await farhand.read(result.parts[0])), 3 << 20)
    check(sum([len(chunk) async for chunk in farhand.chunks(result.parts[0])]), 3 << 20)


async def lists(farhand: AsyncFarhand) -> None:
    names = {t["name"] async for t in farhand.tools(device="phone")}
    check({"echo", "count", "snap", "fail", "measure", "door"} <= names, True)
    check([s["session_id"] async for s in farhand.sessions(tool="door", connected=True)], ["phone"])
    check((await farhand.session("phone"))["device_name"], "the phone")
    check((await farhand.me())["roles"], ["admin"])
    check((await farhand.limits())["max_wait_ms"], 60000)


async def approvals(farhand: AsyncFarhand, caller: AsyncFarhand) -> None:
    async def decide(decision: str) -> None:
        call = await caller.start("door", device="phone")
        while not (rows := [a for a in await farhand.approvals.pending() if a["call_id"] == call.call_id]):
            await asyncio.sleep(0.02)
        approval = await farhand.approvals.get(rows[0]["id"])
        check(approval["args_text"], "{}")
        waiting = asyncio.ensure_future(farhand.approvals.wait(approval["id"]))
        decided = await farhand.approvals.decide(approval["id"], decision, comment="as asked")  # type: ignore[arg-type]
        check((decided["decided"], (await waiting)["state"]), (True, decided["state"]))
        check((await call.result()).output, "open")

    await decide("allow-once")
    try:
        await decide("deny")
        raise AssertionError("a denied call ran")
    except ApprovalDeniedError as denied:
        check((denied.dispatched, "as asked" in denied.detail), ("no", True))
    await decide("allow-always")
    for grant in await farhand.approvals.grants():
        await farhand.approvals.revoke_grant(grant["id"])
    check(await farhand.approvals.grants(), [])


async def conversations(farhand: AsyncFarhand) -> None:
    conversation = farhand.conversation("phone")
    answer = await conversation.say("echo hello")
    check((answer["full_response"], answer["tool_calls"][0]["name"]), ("It said hello.", "echo"))
    kinds = [event["type"] async for event in conversation.stream("echo hello")]
    check((kinds[-1], "tool_call" in kinds, "chunk" in kinds), ("done", True, True))
    kinds = [event["type"] async for event in conversation.regenerate()]
    check(kinds[-1], "done")
    check((await conversation.transcript(limit=1))["messages"][-1]["content"], "It said hello.")
    check(await conversation.abort(), False)
    events = []
    async with aclosing(conversation.stream("hold")) as stream:
        async for event in stream:
            events.append(event["type"])
            if event["type"] == "chunk":
                check(await conversation.abort(), True)
    check(events[-1], "aborted")
    try:
        async with aclosing(conversation.stream("fail")) as stream:
            check([event["type"] async for event in stream], ["chunk"])
        raise AssertionError("a failed turn did not raise")
    except TurnError as e:
        check(e.code, "PROVIDER_ERROR")


async def main(caller_token: str) -> None:
    async with AsyncFarhand() as farhand, AsyncFarhand(token=caller_token) as caller:
        for part in (calls, errors, progress, files, lists, conversations):
            await part(farhand)
            print("async", part.__name__, flush=True)
        await approvals(farhand, caller)
        print("async approvals", flush=True)


def main_sync(caller_token: str) -> None:
    """The same face without await. The rules are those of the asynchronous client, so each method runs once."""
    with Farhand() as farhand, Farhand(token=caller_token) as caller:
        check(farhand.call("echo", {"text": "hi"}, device="phone").output, "hi")
        call = farhand.start("count", {"to": 2}, device="phone")
        check([e["message"] for e in call.events() if "message" in e], ["1 of 2", "2 of 2"])
        check("".join(call.output()), call.result().output)
        check(call.record()["state"], call.cancel()["state"])
        picture = farhand.call("snap", {"bytes": 3 << 20}, device="phone").parts[0]
        check(len(farhand.read(picture)), 3 << 20)
        check({s["session_id"] for s in farhand.sessions(connected=True)}, {"phone", "tablet"})
        check(len([t for t in farhand.tools(name="echo")]), 2)
        with closing(farhand.events("call.finished")) as events:
            calling = threading.Event()

            def keep_calling() -> None:
                while not calling.wait(0.05):
                    farhand.call("echo", {"text": "seen"}, device="phone")

            thread = threading.Thread(target=keep_calling)
            thread.start()
            check(next(events)["type"], "call.finished")
            calling.set()
            thread.join()
        door = caller.start("door", device="phone")
        while not (rows := farhand.approvals.pending()):
            calling.wait(0.02)
        farhand.approvals.decide(rows[0]["id"], "allow-once")
        check(farhand.approvals.wait(rows[0]["id"])["state"], "allowed")
        check(door.result().output, "open")
        conversation = farhand.conversation("phone")
        check(conversation.say("echo hello")["full_response"], "It said hello.")
        check([event["type"] for event in conversation.stream("echo hello")][-1], "done")
        check(conversation.transcript()["busy"], conversation.abort())
        print("sync", flush=True)


asyncio.run(main(sys.argv[1]))
main_sync(sys.argv[1])
