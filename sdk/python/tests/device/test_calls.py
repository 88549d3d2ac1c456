"""Calls of plain functions, the file of a device, and the memory of answers."""

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from farhand.device import DeviceError, FileStore, MemoryStore, SyncCall, file
from farhand.device.answers import Answers
from farhand.device.calls import Calls, failure
from farhand.device.frames import Limits
from farhand.device.store import Behind
from farhand.device.tools import Offer, offer_of


class Host:
    """A device without a gateway."""

    def __init__(self, *functions: Any) -> None:
        self.offers = {function.__name__: offer_of(function) for function in functions}
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.gateway: Any = None

    def limits(self) -> Limits:
        """Returns the defaults."""
        return Limits()

    def link(self) -> int:
        """Returns the only connection."""
        return 1

    def send(self, frame: str) -> bool:
        """Keeps a frame."""
        self.sent.put_nowait(json.loads(frame))
        return True

    async def room(self) -> None:
        """There is always room."""

    def offer(self, name: str) -> Offer | None:
        """Returns a tool."""
        return self.offers.get(name)

    async def answer(self) -> dict[str, Any]:
        """Waits for an answer."""
        while (frame := await asyncio.wait_for(self.sent.get(), 30))["type"] not in ("tool_result", "tool_error"):
            pass
        return frame


def calls_of(host: Host, store: Any = None, parallelism: int = 2) -> Calls:
    """Returns what runs the calls of a host."""
    kept = store or MemoryStore()
    return Calls(host, Answers(kept, Behind(kept, lambda error: None)), parallelism)


def failure_of(call: str) -> str:
    """Returns the answer of a call that was lost."""
    return failure(call, "restarted")


def frame(id: str, name: str, **args: Any) -> dict[str, Any]:
    """Returns a call."""
    return {"type": "tool_call_request", "id": id, "name": name, "args": args}


class PlainFunctions(unittest.IsolatedAsyncioTestCase):
    """Functions that run in threads."""

    async def test_cancelled(self) -> None:
        """A cancelled call ends its sleep, with the reason."""
        entered = threading.Event()

        def slow(call: SyncCall) -> str:
            """Sleep."""
            entered.set()
            call.sleep(1000)
            return "slept"

        host = Host(slow)
        calls = calls_of(host)
        calls.start(frame("1", "slow"))
        await asyncio.to_thread(entered.wait, 30)
        calls.cancel("1", "the caller is gone")
        answer = await host.answer()
        self.assertEqual(
            (answer["type"], answer["error"]), ("tool_error", "cancelled by the gateway: the caller is gone")
        )
        await calls.stop(30)

    async def test_stop(self) -> None:
        """A function that ignores the end of the device is answered for, and its late result is dropped."""
        release = threading.Event()

        def stubborn() -> str:
            """Wait."""
            release.wait(30)
            return "late"

        host = Host(stubborn)
        calls = calls_of(host)
        calls.start(frame("1", "stubborn"))
        await asyncio.sleep(0)
        await calls.stop(0.01)
        self.assertEqual((await host.answer())["error"], "the device stopped")
        running = list(calls._tasks)
        release.set()
        await asyncio.wait(running, timeout=30)
        self.assertTrue(host.sent.empty())
        self.assertIn("the device stopped", calls.answers.frame("1"))

    async def test_odd_errors(self) -> None:
        """The errors of functions reach the caller, also those that futures and event loops treat in their own way."""

        def stop() -> None:
            """Raise StopIteration."""
            next(iter(()))

        def leave() -> None:
            """Raise SystemExit."""
            sys.exit("no such option")

        def key() -> None:
            """Raise KeyError."""
            {}["name"]

        host = Host(stop, leave, key)
        calls = calls_of(host)
        for name, error in (("stop", "StopIteration"), ("leave", "no such option"), ("key", "KeyError: 'name'")):
            calls.start(frame(name, name))
            self.assertIn(error, (await host.answer())["error"])

    async def test_reports(self) -> None:
        """Reports of a thread come in order, before the answer."""

        def talk(call: SyncCall) -> str:
            """Report."""
            call.progress(1, 2, "half")
            call.chunk("all")
            return "all"

        host = Host(talk)
        calls_of(host).start(frame("1", "talk"))
        kinds = [await asyncio.wait_for(host.sent.get(), 30) for _ in range(3)]
        self.assertEqual(
            [kind.get("message") or kind.get("chunk") or kind["output"] for kind in kinds], ["half", "all", "all"]
        )

    async def test_cancelled_before_it_runs(self) -> None:
        """A call that is cancelled in the moment in which it comes does not run."""
        ran = []

        def effect() -> None:
            """Have an effect."""
            ran.append(1)

        host = Host(effect)
        calls = calls_of(host)
        calls.start(frame("1", "effect"))
        calls.cancel("1", "gone")
        self.assertEqual((await host.answer())["error"], "not started: cancelled by the gateway: gone")
        self.assertEqual(ran, [])

    async def test_failing_store(self) -> None:
        """A call that cannot be written down does not run."""
        ran = []

        def effect() -> None:
            """Have an effect."""
            ran.append(1)

        store = MemoryStore()
        host = Host(effect)
        with mock.patch.object(store, "add", side_effect=OSError("no space left")):
            calls_of(host, store).start(frame("1", "effect"))
            self.assertEqual((await host.answer())["error"], "no space left")
        self.assertEqual(ran, [])


class Hostile(unittest.IsolatedAsyncioTestCase):
    """A gateway that means harm."""

    async def test_elsewhere(self) -> None:
        """A file goes to no address that continues the gateway's host or port."""
        asked = []

        class Gateway:
            """Notes where files go to."""

            async def put(self, path: str, *_: Any) -> None:
                """Notes a path."""
                asked.append(path)

        def big() -> Any:
            """Return a file."""
            return file(b"x" * (3 << 20), "video/mp4")

        host = Host(big)
        host.gateway = Gateway()
        calls = calls_of(host)
        for id, url in enumerate(
            ["0/x", ".example.com/x", "@127.0.0.1/x", ":22/x", "http://127.0.0.1/x", "/uploads/x"]
        ):
            calls.start(frame(str(id), "big"))
            while (await asyncio.wait_for(host.sent.get(), 30))["type"] != "upload_request":
                pass
            calls.slot({"type": "upload_slot", "id": str(id), "url": url})
            answer = await host.answer()
            self.assertEqual(
                answer.get("error"), None if url[0] == "/" else "the gateway names no path of its own for the file"
            )
        self.assertEqual(asked, ["/uploads/x"])

    async def test_long_ids(self) -> None:
        """Calls with ids that are longer than a gateway's are ignored."""

        def ping() -> str:
            """Answer."""
            return "pong"

        host = Host(ping)
        calls = calls_of(host)
        calls.start(frame("x" * (1 << 20), "ping"))
        calls.start(frame("1", "ping"))
        self.assertEqual((await host.answer())["id"], "1")
        self.assertNotIn("x" * (1 << 20), calls.answers)


class Kept(unittest.IsolatedAsyncioTestCase):
    """What outlives a program."""

    def setUp(self) -> None:
        """Makes a folder."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "sub", "device.jsonl")

    async def test_answers(self) -> None:
        """Answers and begun calls are there after a restart, and the oldest answers go first."""
        store = FileStore(self.path)
        behind = Behind(store, self.fail)
        answers = Answers(store, behind)
        self.assertTrue(await answers.begin("begun"))
        self.assertFalse(await answers.begin("begun"))
        for n in range(1030):
            answers.put(str(n), f"frame {n}")
        answers.acknowledge("1029")
        await behind.written()
        await store.close()

        store = FileStore(self.path)
        behind = Behind(store, self.fail)
        answers = Answers(store, behind)
        await answers.load(lambda call: f"lost {call}")
        kept = list(answers.to_send(1))
        self.assertEqual((kept[0], kept[-1]), ("frame 6", "frame 1028"))
        self.assertEqual((answers.frame("1029"), "1029" in answers, "5" in answers), ("", True, False))
        await behind.written()
        await store.close()

    async def test_begun(self) -> None:
        """A call that had begun gets an answer that says so."""
        store = FileStore(self.path)
        await Answers(store, Behind(store, self.fail)).begin("1")
        await store.close()
        store = FileStore(self.path)
        answers = Answers(store, Behind(store, self.fail))
        await answers.load(lambda call: failure(call, "restarted"))
        self.assertEqual([json.loads(each)["error"] for each in answers.to_send(1)], ["restarted"])
        await store.close()

    async def test_file(self) -> None:
        """The file is private, locked, made anew when it grows, and survives a broken line."""
        store = FileStore(self.path)
        for n in range(30):
            await store.set("x", [n, "x" * 50_000])
        self.assertLess(self.path.stat().st_size, 2 << 20)
        if os.name == "posix":
            self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
            with self.assertRaises(DeviceError) as caught:
                await FileStore(self.path).get("x")
            self.assertEqual(caught.exception.code, "in_use")
        await store.close()
        with self.path.open("a") as file:
            file.write('["y",{"broken')
        self.assertEqual([await store.get("y"), (await store.get("x"))[0]], [None, 29])
        await store.set("y", 1)
        await store.close()
        self.assertEqual(await store.get("y"), 1)
        await store.delete("y")
        self.assertEqual(await store.entries("y"), [])
        await store.close()

    async def test_clock(self) -> None:
        """A clock that is set while the device runs does not make answers old."""
        store = MemoryStore()
        await store.set("call/old", {"at": time.time() - 3600, "frame": "old"})
        await store.set("call/new", {"at": time.time() - 60, "frame": "new"})
        answers = Answers(store, Behind(store, self.fail))
        await answers.load(failure_of)
        answers.put("1", "frame 1")
        with mock.patch("time.time", return_value=time.time() + 1e9):
            self.assertEqual(list(answers.to_send(1)), ["new", "frame 1"])

    async def test_full_disk(self) -> None:
        """A write that fails is an error, and the next one makes the file anew, also if that was what failed."""
        store = FileStore(self.path)
        await store.set("a", 1)
        with (
            mock.patch("farhand.device.file_store._sync", side_effect=OSError("no space left")),
            self.assertRaisesRegex(OSError, "no space left"),
        ):
            await store.set("b", 2)
        await store.set("c", 3)
        store._most = 0  # the file has grown
        with (
            mock.patch("farhand.device.file_store._sync", side_effect=OSError("no space left")),
            self.assertRaisesRegex(OSError, "no space left"),
        ):
            await store.set("d", 4)
        store._most = 1 << 20
        await store.set("e", 5)
        await store.close()
        self.assertEqual(await store.entries(""), [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)])
        await store.close()


if __name__ == "__main__":
    unittest.main()
