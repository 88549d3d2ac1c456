"""A device's tools for language models, without I/O. farhand.integrations gives them to other libraries."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._calls import CallOperation, Target
from ._effects import Operation, Request, Response, Send, Unreachable
from ._retry import Deadline, fetch
from .errors import FarhandError, ToolFailedError
from .results import Result

if TYPE_CHECKING:
    from ._async_client import AsyncFarhand
    from ._sync_client import Farhand

    Client = Farhand | AsyncFarhand

LARGEST_PICTURE = 5 << 20
"""Bytes of the largest picture that a model gets. Of larger ones it gets a line of text."""

MOST_PICTURES = 8

PICTURE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The images that models accept. With another one the vendor refuses the whole request."""


@dataclass(frozen=True)
class ModelTool:
    """A tool as models accept it."""

    name: str
    """At most 64 letters, digits, ``_`` and ``-``."""
    description: str
    parameters: dict[str, Any]
    """The JSON Schema of the arguments."""
    tool: str
    """The name to call the tool by."""


@dataclass(frozen=True)
class Picture:
    """An image that a tool returned."""

    mime_type: str
    data: bytes

    @property
    def base64(self) -> str:
        """The bytes in base64."""
        return base64.b64encode(self.data).decode()

    @property
    def data_url(self) -> str:
        """The image as a ``data:`` URL."""
        return f"data:{self.mime_type};base64,{self.base64}"


@dataclass(frozen=True)
class Answer:
    """What a model reads of a call."""

    text: str
    pictures: list[Picture] = field(default_factory=list)
    failed: bool = False
    """The tool failed, or did not run. The text says which."""
    result: Result | None = None


class Toolset:
    """The tools of one target."""

    def __init__(self, client: Client, target: Target, timeout: float | None) -> None:
        self._target, self._timeout, self._retry_for = target, timeout, client._retry_for

    def load(self) -> Operation[list[ModelTool]]:
        """Return the tools that the caller may see, each name once."""
        query: dict[str, Any] = self._target.query()
        tools: list[ModelTool] = []
        while True:
            answer = yield from fetch(Request("GET", "/api/tools/openai", query), self._retry_for, Deadline(None))
            page = answer.json()
            for row in page["tools"]:
                function, changed = row["function"], page.get("names", {})
                name = function["name"]
                tools.append(ModelTool(name, function["description"], function["parameters"], changed.get(name, name)))
            if not page.get("next_cursor"):
                return tools
            query = {**query, "cursor": page["next_cursor"]}

    def answer(self, tool: str, arguments: str | Mapping[str, Any]) -> Operation[Answer]:
        """Call a tool for a model. Failures become text that says whether the tool ran."""
        try:
            args = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
            if not isinstance(args, Mapping):
                raise ValueError
        except ValueError:
            return Answer("Error: the arguments are not a JSON object. The tool did not run.", failed=True)
        call = CallOperation(
            tool, args, self._target, select=None, timeout=self._timeout, key=None, retry_for=self._retry_for
        )
        try:
            result = yield from call.run()
        except ToolFailedError as failure:
            pictures = yield from self._pictures(failure.result)
            return Answer(failure.for_model(), pictures, failed=True, result=failure.result)
        except FarhandError as failure:
            return Answer(failure.for_model(), failed=True)
        pictures = yield from self._pictures(result)
        return Answer(result.text(), pictures, result=result)

    def _pictures(self, result: Result) -> Operation[list[Picture]]:
        pictures: list[Picture] = []
        shown = [p for p in result.images if p["mime_type"] in PICTURE_TYPES and p["size"] <= LARGEST_PICTURE]
        for part in shown[:MOST_PICTURES]:
            if "data" in part:
                pictures.append(Picture(part["mime_type"], base64.b64decode(part["data"])))
            elif part.get("url", "").startswith("/blobs/"):
                try:
                    answer: Response = yield Send(Request("GET", part["url"], anonymous=True))
                    answer.check()
                except (Unreachable, FarhandError):
                    continue  # the text has a line for it
                pictures.append(Picture(part["mime_type"], answer.body))
        return pictures
