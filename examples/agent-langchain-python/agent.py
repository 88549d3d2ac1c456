"""An agent with LangChain, which answers a question with the tools of a device.

pip install ./sdk/python langchain langchain-openai
export FARHAND_URL=https://gateway.example.com FARHAND_TOKEN=… OPENAI_API_KEY=…
python agent.py phone "What does the camera see?"
"""

import asyncio
import os
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from farhand import AsyncFarhand
from farhand.integrations import langchain as device_tools

MODEL = os.environ.get("MODEL", "gpt-5-mini")


async def answer(device: str, question: str) -> str:
    """Return the answer to a question."""
    async with AsyncFarhand() as farhand:
        # Each tool is a StructuredTool. Its messages have the farhand.Result, with images and files, as their artifact.
        tools = await device_tools.tools(farhand, device=device, timeout=60)
        agent = create_agent(ChatOpenAI(model=MODEL), tools)
        state = await agent.ainvoke({"messages": [{"role": "user", "content": question}]})

        for message in state["messages"]:
            result = getattr(message, "artifact", None)
            for image in result.images if result else []:
                print(f"{message.name}: {image['mime_type']}, {len(await farhand.read(image))} bytes")
        return state["messages"][-1].text


if __name__ == "__main__":
    print(asyncio.run(answer(sys.argv[1], sys.argv[2])))
