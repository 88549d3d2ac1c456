"""Tools for the OpenAI Agents SDK.

agent = Agent(name="helper", tools=await openai_agents.tools(farhand, device="phone"))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._calls import Target
from .._toolset import ModelTool, Toolset

if TYPE_CHECKING:
    from agents import Tool

    from .. import AsyncFarhand


async def tools(
    farhand: AsyncFarhand,
    *,
    session: str | None = None,
    device: str | None = None,
    user: str | None = None,
    labels: Mapping[str, str] | None = None,
    timeout: float | None = None,
    pictures: bool = True,
) -> list[Tool]:
    """Return the tools of a target.

    pictures gives images to the model, which OpenAI's responses accept in the results of tools. Models of chat
    completions do not: set it to False for them.
    """
    toolset = Toolset(farhand, Target(session, device, user, labels), timeout)
    return [_tool(farhand, toolset, one, pictures) for one in await farhand._driver.run(toolset.load())]


def _tool(farhand: AsyncFarhand, toolset: Toolset, one: ModelTool, pictures: bool) -> Tool:
    from agents import FunctionTool, ToolOutputImage, ToolOutputText

    async def run(_: Any, arguments: str) -> Any:
        answer = await farhand._driver.run(toolset.answer(one.tool, arguments))
        if not pictures or not answer.pictures:
            return answer.text
        images = [ToolOutputImage(image_url=picture.data_url) for picture in answer.pictures]
        return [ToolOutputText(text=answer.text), *images]

    return FunctionTool(
        name=one.name,
        description=one.description,
        params_json_schema=one.parameters,
        on_invoke_tool=run,
        strict_json_schema=False,  # strict schemas forbid optional arguments
    )
