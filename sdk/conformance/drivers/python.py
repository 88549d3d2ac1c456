"""python.py STORE: drives the Python SDK. Commands come on stdin, reports go to stdout, one JSON object a line.

../README.md has its commands and reports.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import sys
import traceback
from typing import Any

from farhand.device import (
    Call,
    Decision,
    Device,
    DeviceError,
    FileStore,
    MemoryStore,
    Question,
    Result,
    State,
    Store,
    Tool,
    TurnEvent,
    file,
    image,
    pair,
)


class Watched:
    """A store that says when the acknowledgement of a call is written down."""

    def __init__(self, store: Store) -> None:
        self.get, self.entries, self.add, self.delete = store.get, store.entries, store.add, store.delete
        self._store = store
        self._written: set[str] = set()
        self._change = asyncio.Condition()

    async def set(self, key: str, value: Any) -> None:
        await self._store.set(key, value)
        if value.get("acknowledged"):
            async with self._change:
                self._written.add(key)
                self._change.notify_all()

    async def settled(self, calls: list[str]) -> None:
        async with self._change:
            await self._change.wait_for(lambda: all(f"call/{call}" in self._written for call in calls))


class Driver:
    """Drives one device."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.device: Device | None = None
        self.ended = False
        self.runs = 0
        self.store: Watched | None = None
        self.gates: dict[str, asyncio.Event] = collections.defaultdict(asyncio.Event)

    def report(self, **said: Any) -> None:
        print(json.dumps({"device": self.name, **said}), flush=True)

    async def take(self, command: dict[str, Any]) -> None:
        try:
            await getattr(self, "do_" + command.pop("do"))(**command)
        except Exception:
            self.report(problem=traceback.format_exc())

    async def do_start(self, url: str, options: dict[str, Any]) -> None:
        tools, approver = options.get("tools", []), options.get("approver")
        self.store = Watched(FileStore(self.path) if options.get("store") else MemoryStore())
        same = ("session", "name", "device_id", "device_name", "platform", "labels", "token", "parallelism")
        given = {key: options[key] for key in same if key in options}
        if options.get("pair"):
            about = {key: given[key] for key in ("device_id", "device_name", "platform") if key in given}
            given["credential"] = await pair(
                url, **about, tools=tools, store=self.store, show=lambda code, _: self.report(code=code)
            )
        if "silence_ms" in options:
            given["silence"] = options["silence_ms"] / 1000
        if approver:
            given["approver"] = lambda question: self.approve(question, approver)
        if wake := options.get("wake"):
            given["wake"] = lambda _: wake
        if self.ended:
            return
        self.device = Device(url, **given, store=self.store, backoff=(0.001, 0.005), on_state=self.tell)
        for name in tools:
            await self.do_add(name)
        with contextlib.suppress(DeviceError):  # the state says it, too
            await self.device.start()

    async def do_end(self) -> None:
        self.ended = True
        await self.do_stop()

    async def do_stop(self) -> None:
        if self.device:
            await self.device.stop()

    async def do_add(self, tool: str, **declared: Any) -> None:
        handler = getattr(self, "tool_" + tool, None)

        async def run(args: dict[str, Any], call: Call) -> Any:
            if tool != "count":
                self.runs += 1
            return await handler(args, call) if handler else None

        assert self.device
        self.device.add_tool(Tool(tool, f"The tool {tool}.", run, {"type": "object"}, **declared))

    async def do_remove(self, tool: str) -> None:
        assert self.device
        self.device.remove_tool(tool)

    async def do_foreground(self, on: bool) -> None:
        assert self.device
        self.device.set_foreground(on)

    async def do_default(self) -> None:
        assert self.device
        self.device.set_default()

    async def do_release(self, call: str) -> None:
        self.gates[call].set()

    async def do_settle(self, acknowledged: list[str]) -> None:
        assert self.store
        await self.store.settled(acknowledged)
        self.report(settled=True)

    async def do_say(self, content: str, debug: bool = False) -> None:
        assert self.device
        try:
            self.report(said=await self.device.chat.send(content, on_event=self.show, debug=debug))
        except DeviceError as error:
            self.report(unsaid=error.code)

    async def do_regenerate(self, debug: bool = False) -> None:
        assert self.device
        try:
            self.report(said=await self.device.chat.regenerate(on_event=self.show, debug=debug))
        except DeviceError as error:
            self.report(unsaid=error.code)

    async def do_abort(self) -> None:
        assert self.device
        self.device.chat.abort()

    def show(self, event: TurnEvent) -> None:
        turn = {key: value for key, value in vars(event).items() if value}
        if event.estimated_tokens:
            turn["estimatedTokens"] = event.estimated_tokens
        self.report(turn=turn)

    def tell(self, state: State) -> None:
        if state.phase == "connected":
            rejected = [each.name for each in state.rejected]
            self.report(
                state=state.phase,
                registered=state.registered,
                resumed=state.resumed,
                session=state.session_id,
                rejected=rejected,
            )
        elif state.error:
            self.report(state=state.phase, why=state.error.code)
        else:
            self.report(state=state.phase)

    async def approve(self, question: Question, decision: Any) -> Decision | None:
        self.report(asked=question.id, tool=question.tool, text=question.text, call=question.call_id)
        if decision != "wait":
            return decision
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.report(withdrawn=question.id)
            raise

    async def tool_echo(self, args: dict[str, Any], _: Call) -> Any:
        return args["text"]

    async def tool_trace(self, _: Any, call: Call) -> Any:
        return call.traceparent

    async def tool_json(self, args: dict[str, Any], _: Call) -> Any:
        return args

    async def tool_list(self, *_: Any) -> Any:
        return [1, "two", None]

    async def tool_fail(self, args: dict[str, Any], _: Call) -> Any:
        raise RuntimeError(args["text"])

    async def tool_crash(self, *_: Any) -> Any:
        sys.exit("the handler crashed")

    async def tool_wait(self, _: Any, call: Call) -> Any:
        try:
            await self.gates[call.id].wait()
        except asyncio.CancelledError:
            return "cancelled"
        return "released"

    async def tool_stubborn(self, _: Any, call: Call) -> Any:
        while not self.gates[call.id].is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.gates[call.id].wait()
        return "released"

    async def tool_ledger(self, args: dict[str, Any], call: Call) -> Any:
        self.report(began=args["text"], call=call.id)
        over = asyncio.ensure_future(asyncio.sleep(args["ms"] / 1000))
        while not over.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(over)
        self.report(gave=args["text"], call=call.id)
        return args["text"]

    async def tool_count(self, *_: Any) -> Any:
        return str(self.runs)

    async def tool_progress(self, _: Any, call: Call) -> Any:
        call.progress(1, 2, "half")
        call.progress(2)
        await call.chunk("all of it")
        return "all of it"

    async def tool_big(self, args: dict[str, Any], _: Call) -> Any:
        return "x" * args["bytes"]

    async def tool_picture(self, *_: Any) -> Any:
        return Result("see", [image(b"\x89PNG", "image/png", "snap.png")])

    async def tool_upload(self, args: dict[str, Any], call: Call) -> Any:
        return Result("sent", [await call.upload(file(bytes(args["bytes"]), "video/mp4", "clip.mp4"))])


async def main(path: str) -> None:
    """Takes commands until stdin ends."""
    lines = asyncio.StreamReader(limit=16 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    drivers: dict[str, Driver] = {}
    tasks: set[asyncio.Task[None]] = set()
    while line := await lines.readline():
        command = json.loads(line)
        name = command.pop("device")
        driver = drivers.setdefault(name, Driver(name, path))
        task = loop.create_task(driver.take(command))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


asyncio.run(main(sys.argv[1]))
