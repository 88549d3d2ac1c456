"""An agent with Pydantic AI, which answers a question with the tools of a device.

pip install ./sdk/python "pydantic-ai-slim[openai]"
export FARHAND_URL=https://gateway.example.com FARHAND_TOKEN=… OPENAI_API_KEY=…
python agent.py phone "What does the camera see?"
"""

import asyncio
import os
import sys

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel

from farhand import AsyncFarhand
from farhand.integrations import pydantic_ai as device_tools

MODEL = os.environ.get("MODEL", "gpt-5-mini")


async def answer(device: str, question: str) -> str:
    """Return the answer to a question."""
    async with AsyncFarhand() as farhand:
        agent = Agent(
            OpenAIChatModel(MODEL),
            instructions="Answer with the tools of the person's device.",
            # The model sees the images that the tools return.
            tools=await device_tools.tools(farhand, device=device, timeout=60),
        )
        run = await agent.run(question, usage_limits=UsageLimits(request_limit=10))
        return run.output


if __name__ == "__main__":
    print(asyncio.run(answer(sys.argv[1], sys.argv[2])))
