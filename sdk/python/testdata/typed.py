"""What a user's type checker must know."""

from farhand import AsyncFarhand, Farhand, types
from farhand.errors import FarhandError


async def typed_async(farhand: AsyncFarhand) -> str:
    result = await farhand.call("echo", {"text": "hi"}, device="phone", timeout=5)
    parts: list[types.Part] = result.images
    call = await farhand.start("echo")
    async for event in call.events():
        state: types.CallState | None = event.get("state")
        print(state, parts)
    async for activity in farhand.events("call.finished"):
        print(activity["pod"])
    return result.output


def typed_sync(farhand: Farhand) -> bytes:
    try:
        for tool in farhand.tools():
            print(tool["name"], tool["parameters"])
        record: types.CallRecord = farhand.record("c")
        print(record["state"])
    except FarhandError as e:
        print(e.dispatched, e.retryable, e.retry_after)
    return farhand.read(farhand.call("snap").parts[0])
