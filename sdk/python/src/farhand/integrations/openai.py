"""Tools for OpenAI's chat completions.

tools = await openai.tools(farhand, device="phone")
answer = await client.chat.completions.create(model=model, messages=messages, tools=tools.definitions)
messages += [answer.choices[0].message, *await tools.run(answer.choices[0].message)]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._calls import Target
from .._effects import Operation
from .._toolset import ModelTool, Picture, Toolset

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam, ChatCompletionToolParam

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
        self.definitions: list[ChatCompletionToolParam] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in loaded
        ]
        """The argument ``tools`` of a request."""

    def _run(self, message: ChatCompletionMessage) -> Operation[list[ChatCompletionMessageParam]]:
        messages: list[ChatCompletionMessageParam] = []
        pictures: list[Picture] = []
        for call in message.tool_calls or []:
            if call.type != "function":
                continue
            name = call.function.name
            answer = yield from self._toolset.answer(self._names.get(name, name), call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": answer.text})
            pictures += answer.pictures
        if pictures:  # the format has no place for them in a tool's message
            images: Any = [{"type": "image_url", "image_url": {"url": picture.data_url}} for picture in pictures]
            text = {"type": "text", "text": "The images that the tools returned:"}
            seen: Any = {"role": "user", "content": [text, *images]}
            messages.append(seen)
        return messages


class Tools(_Base):
    """The tools of a target, for the synchronous client. ``sync_tools`` returns them."""

    def run(self, message: ChatCompletionMessage) -> list[ChatCompletionMessageParam]:
        """Run the calls of a model's message in order. Return the messages that answer them."""
        return self._driver.run(self._run(message))


class AsyncTools(_Base):
    """The tools of a target, for asyncio."""

    async def run(self, message: ChatCompletionMessage) -> list[ChatCompletionMessageParam]:
        """Run the calls of a model's message in order. Return the messages that answer them."""
        return await self._driver.run(self._run(message))
