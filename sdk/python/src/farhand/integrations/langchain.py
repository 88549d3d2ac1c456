"""Tools for LangChain and LangGraph.

agent = create_agent(model, await langchain.tools(farhand, device="phone"))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .._calls import Target
from .._toolset import Answer, ModelTool, Toolset

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from .. import AsyncFarhand


async def tools(
    farhand: AsyncFarhand,
    *,
    session: str | None = None,
    device: str | None = None,
    user: str | None = None,
    labels: Mapping[str, str] | None = None,
    timeout: float | None = None,
    pictures: bool = False,
) -> list[BaseTool]:
    """Return the tools of a target. They run asynchronously (``ainvoke``).

    pictures gives images to the model, if it accepts them in the results of tools, as Anthropic's and Google's do.
    The artifact of a tool's message is a farhand.Result in any case; None if the tool did not run.
    """
    toolset = Toolset(farhand, Target(session, device, user, labels), timeout)
    return [_tool(farhand, toolset, one, pictures) for one in await farhand._driver.run(toolset.load())]


def _tool(farhand: AsyncFarhand, toolset: Toolset, one: ModelTool, pictures: bool) -> BaseTool:
    from langchain_core.tools import StructuredTool

    async def run(**arguments: Any) -> tuple[Any, Any]:
        answer = await farhand._driver.run(toolset.answer(one.tool, arguments))
        return _content(answer) if pictures and answer.pictures else answer.text, answer.result

    return StructuredTool(
        name=one.name,
        description=one.description or one.tool,
        args_schema=one.parameters,
        coroutine=run,
        response_format="content_and_artifact",
    )


def _content(answer: Answer) -> list[dict[str, Any]]:
    images = [
        {"type": "image", "base64": picture.base64, "mime_type": picture.mime_type} for picture in answer.pictures
    ]
    return [{"type": "text", "text": answer.text}, *images]
