"""The rules of a call, with a played gateway: operations do no I/O, so a test answers each effect."""

import asyncio
import json
import typing
import unittest
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx

from farhand import AsyncFarhand, types
from farhand._calls import CallOperation, Target, cancel
from farhand._effects import Abandoned, Emit, Open, Read, Response, Send, Sleep, Unreachable
from farhand._retry import Deadline
from farhand._sse import Decoder
from farhand._streams import call_events, file
from farhand._toolset import Toolset
from farhand.errors import (
    BY_CODE,
    AmbiguousTargetError,
    CallLostError,
    FarhandError,
    GatewayUnreachableError,
    NotConnectedError,
    ToolFailedError,
    error_of,
)


def answer(status: int, body: Any, **headers: str) -> Response:
    return Response(status, headers, json.dumps(body).encode())


ACCEPTED = answer(202, {"call_id": "c1", "mode": "async", "state": "accepted"})
DONE = answer(200, {"call_id": "c1", "state": "succeeded", "success": True, "output": "hi", "dispatched": "yes"})


def problem(
    code: str, status: int, *, dispatched: str | None = "no", retryable: bool = True, after: str = ""
) -> Response:
    body = {"code": code, "detail": "why", "call_id": "c1", "retryable": retryable}
    if dispatched:
        body["dispatched"] = dispatched
    return Response(status, {"retry-after": after} if after else {}, json.dumps(body).encode())


def play(operation: Any, *answers: Any) -> tuple[Any, list[Any]]:
    """Run an operation with these answers to what it sends. Return its value and all effects."""
    effects: list[Any] = []
    left: list[Any] = list(answers)
    reply: Any = None
    while True:
        try:
            effect = operation.throw(reply) if isinstance(reply, BaseException) else operation.send(reply)
        except StopIteration as end:
            if left:
                raise AssertionError(f"{len(left)} answers are left") from None
            return end.value, effects
        effects.append(effect)
        if isinstance(effect, (Sleep, Emit)):
            reply = None
            continue
        if not left:
            raise AssertionError(f"no answer for {effect}")
        reply = left.pop(0)


def call(timeout: float | None = None, retry_for: float = 30) -> CallOperation:
    return CallOperation(
        "echo", {"text": "hi"}, Target(device="phone"), select=None, timeout=timeout, key=None, retry_for=retry_for
    )


def sent(effects: list[Any]) -> list[str]:
    return [f"{e.request.method} {e.request.path}" for e in effects if isinstance(e, (Send, Open))]


class Calls(unittest.TestCase):
    def test_call_is_followed_to_its_end(self) -> None:
        running = answer(200, {"call_id": "c1", "state": "running"})
        result, effects = play(call(timeout=9).run(), ACCEPTED, running, DONE)
        self.assertEqual((result.output, result.call_id), ("hi", "c1"))
        body = json.loads(effects[0].request.body)
        self.assertEqual(body["mode"], "async")
        self.assertEqual(body["target"], {"device_id": "phone"})
        self.assertEqual(body["timeout_ms"], 11000)
        self.assertEqual(len(effects[0].request.headers["Idempotency-Key"]), 32)

    def test_lost_answer_joins_the_same_call(self) -> None:
        _, effects = play(
            call().run(), Unreachable("reset", sent=True), ACCEPTED, Unreachable("reset", sent=True), DONE
        )
        posts = [e.request for e in effects if isinstance(e, Send) and e.request.method == "POST"]
        self.assertEqual(len(posts), 2)
        self.assertEqual(posts[0].body, posts[1].body)
        self.assertEqual(posts[0].headers, posts[1].headers)

    def test_refused_call_is_made_again_after_retry_after(self) -> None:
        busy = problem("busy", 429, after="7")
        _, effects = play(call().run(), busy, ACCEPTED, DONE)
        [delay] = [e.seconds for e in effects if isinstance(e, Sleep)]
        self.assertTrue(7 <= delay < 8, delay)

    def test_accepted_call_that_did_not_run_is_made_again(self) -> None:
        offline = answer(
            200,
            {
                "call_id": "c1",
                "state": "expired",
                "dispatched": "no",
                "retryable": True,
                "problem": {"code": "not_connected", "detail": "offline"},
            },
        )
        result, effects = play(call().run(), ACCEPTED, offline, ACCEPTED, DONE)
        self.assertEqual(result.output, "hi")
        self.assertEqual(sent(effects).count("POST /api/tools/echo/call"), 2)

    def test_call_that_may_have_run_is_never_made_again(self) -> None:
        for dispatched, retryable in (("unknown", True), ("yes", True), (None, True), ("no", False)):
            refused = problem("lost", 502, dispatched=dispatched, retryable=retryable)
            with self.assertRaises(CallLostError) as caught:
                play(call().run(), refused)
            self.assertEqual(caught.exception.dispatched, dispatched)
        lost = answer(
            200,
            {
                "call_id": "c1",
                "state": "lost",
                "dispatched": "unknown",
                "retryable": False,
                "problem": {"code": "lost", "detail": "gone"},
            },
        )
        with self.assertRaises(CallLostError) as caught:
            play(call().run(), ACCEPTED, lost)
        self.assertEqual((caught.exception.dispatched, caught.exception.call_id), ("unknown", "c1"))

    def test_retry_for_and_deadline_end_the_retries(self) -> None:
        with self.assertRaises(NotConnectedError):
            play(call(retry_for=3).run(), problem("not_connected", 409, after="5"))
        with self.assertRaises(NotConnectedError):
            play(call(timeout=3).run(), problem("not_connected", 409, after="5"))
        with self.assertRaises(GatewayUnreachableError) as caught:
            play(call(retry_for=0).run(), Unreachable("refused", sent=False))
        self.assertEqual((caught.exception.dispatched, caught.exception.retryable), ("no", True))
        with self.assertRaises(GatewayUnreachableError) as caught:
            play(call(retry_for=0).run(), Unreachable("reset", sent=True))
        self.assertEqual((caught.exception.dispatched, caught.exception.retryable), ("unknown", False))

    def test_deadline_cancels_at_the_gateway(self) -> None:
        cancelled = answer(200, {"call_id": "c1", "state": "cancelled", "dispatched": "yes", "retryable": False})
        with self.assertRaises(TimeoutError) as caught:
            play(call(timeout=0).run(), ACCEPTED, cancelled)
        assert isinstance(caught.exception, FarhandError)
        self.assertEqual(caught.exception.dispatched, "yes")
        result, _ = play(call(timeout=0).run(), ACCEPTED, DONE)  # it ended as it was to be cancelled
        self.assertEqual(result.output, "hi")

    def test_abandoned_call_is_cancelled(self) -> None:
        for answers in ((Abandoned(ACCEPTED),), (ACCEPTED, Abandoned()), (Abandoned(sent=True), ACCEPTED)):
            effects: list[Any] = []
            operation = call().run()
            effects.append(operation.send(None))
            with self.assertRaises(Abandoned):
                for one in answers:
                    step = operation.throw if isinstance(one, BaseException) else operation.send
                    effects.append(step(one))
                operation.send(DONE)
            self.assertEqual(sent(effects)[-1], "DELETE /api/calls/c1")
        operation = call().run()
        operation.send(None)
        with self.assertRaises(Abandoned):  # the gateway cannot have received it
            operation.throw(Abandoned())

    def test_failed_tool_raises_with_its_result(self) -> None:
        failed = answer(
            200, {"call_id": "c1", "state": "failed", "success": False, "output": "half", "error": "no paper"}
        )
        with self.assertRaises(ToolFailedError) as caught:
            play(call().run(), ACCEPTED, failed)
        self.assertEqual(caught.exception.result.output, "half")
        self.assertEqual(caught.exception.for_model(), "half\nError: no paper")

    def test_cancelling_is_repeated_and_fails_with_the_errors_of_the_client(self) -> None:
        record, effects = play(cancel("c1"), Unreachable("reset", sent=True), problem("draining", 503), DONE)
        self.assertEqual((record["state"], len(sent(effects))), ("succeeded", 3))
        self.assertLessEqual(effects[0].request.timeout, 5)
        for failure in (Unreachable("reset", sent=True), Response(200, {}, b"<html>")):
            with self.assertRaises(GatewayUnreachableError) as caught, mock.patch("farhand._calls.CANCEL_TIMEOUT", 0):
                play(cancel("c1"), failure)
            self.assertEqual((caught.exception.call_id, caught.exception.dispatched), ("c1", "unknown"))

    def test_answers_of_proxies_are_failures_of_the_transport(self) -> None:
        result, _ = play(call().run(), Response(502, {}, b"<html>bad gateway"), ACCEPTED, DONE)
        self.assertEqual(result.output, "hi")


class Cancellations(unittest.IsolatedAsyncioTestCase):
    async def test_second_cancellation_does_not_lose_the_call(self) -> None:
        """The task is cancelled again while the answer with the call's id is due, and while the call is cancelled."""
        asked: asyncio.Queue[str] = asyncio.Queue()
        release = asyncio.Event()
        ended: list[str] = []

        async def gateway(request: httpx.Request) -> httpx.Response:
            asked.put_nowait(request.method)
            await release.wait()
            release.clear()
            ended.append(request.method)
            return httpx.Response(202, content=ACCEPTED.body)

        async with httpx.AsyncClient(transport=httpx.MockTransport(gateway)) as http:
            task = asyncio.create_task(AsyncFarhand("http://gateway", "", http=http).call("echo"))
            for method in ("POST", "DELETE"):
                self.assertEqual(await asyncio.wait_for(asked.get(), 30), method)
                for _ in range(3):
                    task.cancel()
                    await asyncio.sleep(0.01)
                self.assertFalse(task.done())
                release.set()
            with self.assertRaises(asyncio.CancelledError):
                await asyncio.wait_for(task, 30)
        self.assertEqual(ended, ["POST", "DELETE"])


class Models(unittest.TestCase):
    def test_only_images_that_models_accept_are_loaded(self) -> None:
        parts = [
            {"type": "image", "mime_type": f"image/{kind}", "size": size, "url": f"/blobs/{kind}"}
            for kind, size in (("svg+xml", 2), ("tiff", 2), ("png", 2), ("jpeg", 6 << 20), ("webp", 2))
        ]
        done = answer(200, {**json.loads(DONE.body), "parts": parts})
        client: Any = SimpleNamespace(_retry_for=30)
        read, effects = play(
            Toolset(client, Target(), None).answer("echo", "{}"),
            ACCEPTED,
            done,
            Response(404, {}, b'{"code":"not_found"}'),
            Response(200, {}, b"hi"),
        )
        self.assertEqual(sent(effects)[2:], ["GET /blobs/png", "GET /blobs/webp"])
        self.assertEqual([(p.mime_type, p.data) for p in read.pictures], [("image/webp", b"hi")])
        self.assertEqual((read.failed, read.text.count("\n")), (False, 5))


class Errors(unittest.TestCase):
    def test_each_code_of_the_document_has_a_class(self) -> None:
        self.assertEqual(set(BY_CODE), set(typing.get_args(types.ErrorCode)))

    def test_members(self) -> None:
        e = error_of({"code": "ambiguous_target", "detail": "which", "candidates": [{"session_id": "a"}]}, status=409)
        assert isinstance(e, AmbiguousTargetError)
        self.assertEqual((e.candidates, e.status, str(e)), ([{"session_id": "a"}], 409, "ambiguous_target: which"))
        self.assertEqual(type(error_of({"code": "of_next_year", "detail": "new"})), FarhandError)
        self.assertIn("did not run", error_of({"code": "busy", "detail": "x", "dispatched": "no"}).for_model())


class Streams(unittest.TestCase):
    TEXT = 'id: 1\nevent: state\ndata: {"state":"running"}\n\n: comment\n\nid: 2\r\ndata: {"chunk":"é"}\r\n\r\n'

    def test_decoder_takes_any_pieces(self) -> None:
        text = self.TEXT.encode()
        for cut in range(len(text) + 1):
            decoder = Decoder()
            events = decoder.feed(text[:cut]) + decoder.feed(text[cut:])
            self.assertEqual(
                [(e.id, e.kind, e.data) for e in events],
                [("1", "state", {"state": "running"}), ("2", "", {"chunk": "é"})],
            )

    def test_what_is_no_event_stream_is_a_failure(self) -> None:
        with self.assertRaises(Unreachable):
            Decoder().feed(b"data: <html>\n\n")

    def test_broken_stream_continues_after_its_last_event(self) -> None:
        head = Response(200, {"content-type": "text/event-stream"})
        _, effects = play(
            call_events("c1", Deadline(None), 30),
            head,
            self.TEXT.encode(),
            Unreachable("reset", sent=True),
            head,
            b'id: 3\ndata: {"state":"succeeded"}\n\n',
        )
        opened = [e.request.headers.get("Last-Event-ID") for e in effects if isinstance(e, Open)]
        self.assertEqual(opened, [None, "2"])
        self.assertEqual(len([e for e in effects if isinstance(e, Emit)]), 3)

    def test_file_that_is_cut_off_is_an_error(self) -> None:
        head = Response(200, {"content-length": "9"})
        with self.assertRaises(GatewayUnreachableError):
            play(file("/blobs/x"), head, b"half", b"")
        _, effects = play(file("/blobs/x"), head, b"it is al", b"l", b"")
        self.assertTrue(effects[0].request.anonymous)
        self.assertTrue(any(isinstance(e, Read) for e in effects))


if __name__ == "__main__":
    unittest.main()
