"""Uses a device's tools with the SDK for Python: python client.py URL TOKEN REVISION"""

import sys

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

URL, TOKEN, REVISION = sys.argv[1:]
MODERN = REVISION == "2026-07-28"


def say(*words):
    print(*words, flush=True)


def text(result):
    return ("error " if result.is_error else "") + "".join(c.text for c in result.content)


async def names(client):
    listed = await client.list_tools(cache_mode="bypass")
    say("tools", *[tool.name for tool in listed.tools])


async def cancel(client):
    with anyio.CancelScope() as scope:

        async def enough(progress, total, message):
            scope.cancel()

        await client.call_tool("hold", {}, progress_callback=enough)
    say("cancelled", str(scope.cancelled_caught).lower())


async def leave(client):
    if not MODERN:  # there is no notice of it without a session
        say("ready")
        await anyio.to_thread.run_sync(sys.stdin.readline)
        return
    async with client.listen(tools_list_changed=True) as events:
        say("ready")
        async for _ in events:
            if not (await client.list_tools(cache_mode="refresh")).tools:
                say("changed", 0)
                return


async def progress(done, total, message):
    say("progress", f"{done:g}", f"{total:g}", message)


async def main():
    headers = {"Authorization": "Bearer " + TOKEN, "X-Test": "python-" + REVISION}
    async with httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(30, read=60)) as http:
        transport = streamable_http_client(URL, http_client=http)
        async with Client(transport, mode=REVISION if MODERN else "legacy") as client:
            say("revision", client.protocol_version)
            await names(client)
            for n in range(9):
                say("echo", text(await client.call_tool("echo", {"n": n})))
            say("slow", text(await client.call_tool("slow", {}, progress_callback=progress)))
            await cancel(client)
            await leave(client)
            await names(client)


anyio.run(main)
