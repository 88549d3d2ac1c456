"""Tools for Pydantic AI.

agent = Agent("openai:gpt-5-mini", tools=await pydantic_ai.tools(farhand, device="phone"))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._calls import Target
from .._toolset import ModelTool, Toolset

if TYPE_CHECKING:
    from pydantic_ai import Tool

    from .. import AsyncFarhand


async def tools(
    farhand: AsyncFarhand,
    *,
    session: str | None = None,
    device: str | None = None,
    user: str | None = None,
    labels: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> list[Tool[Any]]:
    """Return the tools of a target. The model sees images; the metadata of a result is a farhand.Result."""
    toolset = Toolset(farhand, Target(session, device, user, labels), timeout)
    return [_tool(farhand, toolset, one) for one in await farhand._driver.run(toolset.load())]


def _tool(farhand: AsyncFarhand, toolset: Toolset, one: ModelTool) -> Tool[Any]:
    from pydantic_ai import BinaryContent, Tool, ToolReturn

    async def run(**arguments: Any) -> Any:
        answer = await farhand._driver.run(toolset.answer(one.tool, arguments))
        images = [BinaryContent(picture.data, media_type=picture.mime_type) for picture in answer.pictures]
        return ToolReturn(answer.text, content=images or None, metadata=answer.result)

    return Tool.from_schema(run, name=one.name, description=one.description, json_schema=one.parameters)
