"""Frames, limits and outputs."""

import dataclasses
import json
import tempfile
import unittest
from datetime import date
from pathlib import Path

from farhand.device import Part, Result, audio, file, image
from farhand.device.frames import Limits, cut, encode, number, parse, seconds
from farhand.device.parts import answer_of


@dataclasses.dataclass
class Reading:
    """A value."""

    when: date
    where: Path


class Frames(unittest.TestCase):
    """The readers and writers of frames."""

    def test_parse(self) -> None:
        """What is no frame is None."""
        for message in ("", "{", "[]", "null", '{"type":7}', "[" * 100_000, b'{"type":"x"}'):
            self.assertIsNone(parse(message))
        self.assertEqual(parse('{"type":"x"}'), {"type": "x"})

    def test_encode(self) -> None:
        """Text stays as it is; lone surrogates, which no socket takes, are escaped."""
        self.assertEqual(encode("grüße"), '"grüße"')
        self.assertEqual(encode(["\udcff", "ü"]), '["\\udcff","\\u00fc"]')
        with self.assertRaises(ValueError):
            encode(float("nan"))

    def test_readers(self) -> None:
        """Readers give defaults for what is missing or wrong."""
        self.assertEqual([number(v, 7) for v in (1.5, True, "1", None, 10**400, float("inf"))], [1.5, 7, 7, 7, 7, 7])
        self.assertEqual([seconds(v) for v in (1500, -1, 1e15, None)], [1.5, 0, 86400, 0])
        self.assertEqual([cut("aü€", n) for n in (0, 2, 3, 5, 6)], ["", "a", "aü", "aü", "aü€"])
        limits = Limits.announced({"frame_bytes": 5, "output_bytes": "many", "frame_burst": -1, "moons": 3})
        self.assertEqual(limits, Limits(frame_bytes=5))


class Outputs(unittest.IsolatedAsyncioTestCase):
    """What handlers return."""

    async def answer(self, returned: object, limits: Limits | None = None) -> dict[str, object]:
        """Returns the fields of a result."""

        async def upload(part: Part) -> Part:
            return dataclasses.replace(part, url="/uploads/x")

        return await answer_of(returned, limits or Limits(), upload)

    async def test_values(self) -> None:
        """Values become JSON."""
        for returned, output in (
            (None, ""),
            ("text", "text"),
            (Reading(date(2026, 1, 2), Path("a")), {"when": "2026-01-02", "where": "a"}),
            ({"a": (1, {2})}, {"a": [1, [2]]}),
        ):
            self.assertEqual(await self.answer(returned), {"output": output})
        for wrong, why in (
            (b"x", "image, audio or file"),
            ([image(b"", "image/png")], "Result"),
            (object(), "no JSON"),
        ):
            with self.assertRaisesRegex(TypeError, why):
                await self.answer(wrong)

    async def test_parts(self) -> None:
        """Parts that fit are inline, others are uploaded; names say MIME types."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "snap.png")
            path.write_bytes(b"\x89PNG")
            big = file(bytes(1 << 20), "Video/MP4; codecs=x", "clip.mp4")
            answer = await self.answer(Result({"n": 1}, [image(path), big]))
        self.assertEqual(
            json.loads(json.dumps(answer)),
            {
                "output": {"n": 1},
                "parts": [
                    {"type": "image", "mime_type": "image/png", "name": "snap.png", "size": 4, "data": "iVBORw=="},
                    {
                        "type": "file",
                        "mime_type": "video/mp4",
                        "name": "clip.mp4",
                        "size": 1 << 20,
                        "url": "/uploads/x",
                    },
                ],
            },
        )
        with self.assertRaisesRegex(ValueError, "MIME type"):
            audio(b"x")
        self.assertEqual(file(b"x").mime_type, "application/octet-stream")


if __name__ == "__main__":
    unittest.main()
