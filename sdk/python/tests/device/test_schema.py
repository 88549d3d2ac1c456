"""Schemas of annotations, and what arguments become."""

import dataclasses
import enum
import json
import unittest
from datetime import date, datetime, timezone
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict, Union

import pydantic

from farhand.device import ArgumentError, Call, Keywords, SyncCall
from farhand.device.tools import offer_of


class Color(enum.Enum):
    """A color."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    """A point."""

    x: Annotated[int, "Across."]
    y: int = 0
    tags: list[str] = dataclasses.field(default_factory=list)


class Size(TypedDict, total=False):
    """A size."""

    width: int


class Model(pydantic.BaseModel):
    """A model."""

    name: str = pydantic.Field(min_length=2)
    parent: Optional["Model"] = None


@dataclasses.dataclass
class Loop:
    """Contains itself."""

    next: Optional["Loop"]


Id = NewType("Id", str)
STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def one(annotation: Any) -> Any:
    """Returns the offer of a function with one parameter."""

    async def function(x: annotation) -> None:
        """Does nothing."""

    return offer_of(function)


def schema_of(annotation: Any) -> Any:
    """Returns the schema of a parameter."""
    return json.loads(one(annotation).definition)["parameters"]["properties"]["x"]


class Schemas(unittest.TestCase):
    """The JSON Schemas."""

    def test_annotations(self) -> None:
        """Each annotation has its schema."""
        for annotation, schema in (
            (str, STRING),
            (Id, STRING),
            (bool, {"type": "boolean"}),
            (float, {"type": "number"}),
            (None, {"type": "null"}),
            (Any, {}),
            (datetime, {"type": "string", "format": "date-time"}),
            (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
            (Literal[1, "b", None], {"enum": [1, "b", None]}),
            (Color, {"type": "string", "enum": ["red", "blue"]}),
            (Optional[int], {"anyOf": [INTEGER, {"type": "null"}]}),
            (int | str, {"anyOf": [INTEGER, STRING]}),
            (list[int], {"type": "array", "items": INTEGER}),
            (list, {"type": "array", "items": {}}),
            (set[str], {"type": "array", "items": STRING, "uniqueItems": True}),
            (tuple[int, str], {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2}),
            (tuple[int, ...], {"type": "array", "items": INTEGER}),
            (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
            (dict, {"type": "object"}),
            (
                Annotated[int, "How many.", Keywords(minimum=1)],
                {"type": "integer", "description": "How many.", "minimum": 1},
            ),
            (Optional[Annotated[int, Keywords(minimum=1)]], {"anyOf": [{**INTEGER, "minimum": 1}, {"type": "null"}]}),
            (Size, {"type": "object", "properties": {"width": INTEGER}, "additionalProperties": False}),
            (
                Annotated[int, pydantic.Field(ge=1, description="How many.")],
                {"type": "integer", "minimum": 1, "description": "How many."},
            ),
        ):
            with self.subTest(annotation=annotation):
                self.assertEqual(schema_of(annotation), schema)

    def test_function(self) -> None:
        """Defaults make parameters optional, the docstring is the description, and the call is no argument."""

        def place(point: Point, color: Color = Color.RED, *, call: SyncCall, note: str | None = None) -> None:
            """Place a point.

            Anywhere.
            """

        self.assertEqual(
            json.loads(offer_of(place, security="admin_only", timeout=1.5, hints={"readOnlyHint": True}).definition),
            {
                "name": "place",
                "description": "Place a point.\n\nAnywhere.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "point": {
                            "type": "object",
                            "properties": {
                                "x": {"type": "integer", "description": "Across."},
                                "y": {"type": "integer", "default": 0},
                                "tags": {"type": "array", "items": STRING},
                            },
                            "required": ["x"],
                            "additionalProperties": False,
                        },
                        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                        "note": {"anyOf": [STRING, {"type": "null"}], "default": None},
                    },
                    "required": ["point"],
                    "additionalProperties": False,
                },
                "security_level": "admin_only",
                "timeout_ms": 1500,
                "annotations": {"readOnlyHint": True},
            },
        )

    def test_pydantic_definitions(self) -> None:
        """Definitions of models stand at the root, where their references look for them."""
        parameters = json.loads(one(Model).definition)["parameters"]
        self.assertEqual(parameters["properties"]["x"], {"$ref": "#/$defs/Model"})
        self.assertEqual(parameters["$defs"]["Model"]["properties"]["name"]["minLength"], 2)

    def test_refused(self) -> None:
        """What cannot be a tool says why."""

        def untold(x: int) -> None: ...

        def positional(x: int, /) -> None:
            """Has a parameter without a name."""

        def wrong(call: Call) -> None:
            """Has the other call."""

        async def bytes_of(x: bytes) -> None:
            """Has no schema."""

        async def recursive(x: Loop) -> None:
            """Has a schema that contains itself."""

        async def keys(x: dict[int, str]) -> None:
            """Has keys that JSON does not have."""

        for function, why in (
            (untold, "docstring"),
            (positional, "no name for callers"),
            (wrong, "must be a SyncCall"),
            (bytes_of, "no JSON Schema"),
            (recursive, "contains itself"),
            (keys, "keys of a dict are str"),
        ):
            with self.subTest(why), self.assertRaisesRegex(TypeError, why):
                offer_of(function)
        with self.assertRaisesRegex(ValueError, "malformed"):
            offer_of(lambda: None, name="a b", description="Has a malformed name.")


class Arguments(unittest.IsolatedAsyncioTestCase):
    """What arguments become."""

    async def read(self, annotation: Any, value: Any) -> Any:
        """Calls a tool with a value, and returns what the function got."""
        got = []

        async def function(x: annotation) -> None:
            """Keeps its argument."""
            got.append(x)

        await offer_of(function).prepare({"x": value})(None, None)  # type: ignore[arg-type]
        return got[0]

    async def test_values(self) -> None:
        """Arguments become what the annotations say."""
        now = datetime(2026, 1, 31, 12, 30, tzinfo=timezone.utc)
        for annotation, value, wanted in (
            (int, 1.0, 1),
            (float, 1, 1.0),
            (Color, "blue", Color.BLUE),
            (datetime, "2026-01-31T12:30:00Z", now),
            (date, "2026-01-31", now.date()),
            (Point, {"x": 1, "tags": ["a"]}, Point(1, 0, ["a"])),
            (list[Point], [{"x": 1}], [Point(1)]),
            (dict[str, Color], {"a": "red"}, {"a": Color.RED}),
            (tuple[int, str], [1, "a"], (1, "a")),
            (set[int], [1, 2], {1, 2}),
            (Union[int, Point, None], {"x": 2}, Point(2)),
            (Optional[int], None, None),
            (Size, {}, {}),
            (Model, {"name": "ab"}, Model(name="ab")),
        ):
            with self.subTest(annotation=annotation):
                got = await self.read(annotation, value)
                self.assertEqual((got, type(got)), (wanted, type(wanted)))

    async def test_refused(self) -> None:
        """The errors of wrong arguments name the place."""
        for annotation, value, why in (
            (int, True, "x is a boolean, not an integer"),
            (int, 1.5, "x is a number, not an integer"),
            (str, None, "x is null, not a string"),
            (Literal[1, 2], True, "x is none of 1, 2"),
            (list[Point], [{"x": 1}, {"x": "a"}], "x[1].x is a string, not an integer"),
            (Point, {"y": 1}, "x.x is missing"),
            (Point, {"x": 1, "z": 1}, "x.z is unknown"),
            (Model, {"name": "a"}, "x.name: String should have at least 2 characters"),
            (datetime, "yesterday", "x is a string, not a date and time"),
        ):
            with self.subTest(why), self.assertRaises(ArgumentError) as caught:
                await self.read(annotation, value)
            self.assertIn(why, str(caught.exception))

    async def test_others(self) -> None:
        """A function with ** takes all arguments; others are refused."""
        got = []

        async def function(**rest: int) -> None:
            """Takes all numbers."""
            got.append(rest)

        offer = offer_of(function)
        await offer.prepare({"a": 1})(None, None)  # type: ignore[arg-type]
        self.assertEqual(got, [{"a": 1}])
        with self.assertRaises(ArgumentError):
            offer.prepare({"a": "x"})


if __name__ == "__main__":
    unittest.main()
