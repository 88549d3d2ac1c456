"""Tools for Anthropic's messages.

tools = await anthropic.tools(farhand, device="phone")
answer = await client.messages.create(model=model, messages=messages, tools=tools.definitions, max_tokens=1024)
messages += [{"role": "assistant", "content": answer.content}, *await tools.run(answer)]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._calls import Target
from .._effects import Operation
from .._toolset import Answer, ModelTool, Toolset

if TYPE_CHECKING:
    from anthropic.types import Message, MessageParam, ToolParam

    from .. import AsyncFarhand, Farhand


async def tools(
    farhand: AsyncFarhand,
    *,
    session: str | None = None,
    device: str | None = None,
    user: str | None = None,
    labels: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> AsyncTools:
    """Return the tools of a target."""
    toolset = Toolset(farhand, Target(session, device, user, labels), timeout)
    return AsyncTools(farhand, toolset, await farhand._driver.run(toolset.load()))


def sync_tools(
    farhand: Farhand,
    *,
    session: str | None = None,
    device: str | None = None,
    user: str | None = None,
    labels: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Tools:
    """Return the tools of a target, for the synchronous client."""
    toolset = Toolset(farhand, Target(session, device, user, labels), timeout)
    return Tools(farhand, toolset, farhand._driver.run(toolset.load()))


class _Base:
    def __init__(self, farhand: Any, toolset: Toolset, loaded: list[ModelTool]) -> None:
        self._driver, self._toolset = farhand._driver, toolset
        self._names = {tool.name: tool.tool for tool in loaded}
        self.definitions: list[ToolParam] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in loaded
        ]
        """The argument ``tools`` of a request."""

    def _run(self, message: Message) -> Operation[list[MessageParam]]:
        blocks: list[Any] = []
        for block in message.content:
            if block.type == "tool_use":
                arguments: Any = block.input
                answer = yield from self._toolset.answer(self._names.get(block.name, block.name), arguments)
                blocks.append(_block(block.id, answer))
        return [{"role": "user", "content": blocks}] if blocks else []


def _block(call_id: str, answer: Answer) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text.strip() else []
    for picture in [] if answer.failed else answer.pictures:  # errors have only text
        source = {"type": "base64", "media_type": picture.mime_type, "data": picture.base64}
        content.append({"type": "image", "source": source})
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": answer.failed}


class Tools(_Base):
    """The tools of a target, for the synchronous client. ``sync_tools`` returns them."""

    def run(self, message: Message) -> list[MessageParam]:
        """Run the calls of a model's message in order. Return the message that answers them; empty without calls."""
        return self._driver.run(self._run(message))


class AsyncTools(_Base):
    """The tools of a target, for asyncio."""

    async def run(self, message: Message) -> list[MessageParam]:
        """Run the calls of a model's message in order. Return the message that answers them; empty without calls."""
        return await self._driver.run(self._run(message))
