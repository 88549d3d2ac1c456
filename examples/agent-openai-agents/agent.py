"""An agent with the OpenAI Agents SDK, which answers a question with the tools of a device.

pip install ./sdk/python openai-agents
export FARHAND_URL=https://gateway.example.com FARHAND_TOKEN=… OPENAI_API_KEY=…
python agent.py phone "What does the camera see?"
"""

import asyncio
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner
from openai import AsyncOpenAI

from farhand import AsyncFarhand
from farhand.integrations import openai_agents as device_tools

MODEL = os.environ.get("MODEL", "gpt-5-mini")


async def answer(device: str, question: str) -> str:
    """Return the answer to a question."""
    async with AsyncFarhand() as farhand:
        agent = Agent(
            name="helper",
            instructions="Answer with the tools of the person's device.",
            # Chat completions, which all providers offer. They take no images in the results of tools; with
            # model=MODEL the agent uses OpenAI's responses, which do: leave out pictures=False.
            model=OpenAIChatCompletionsModel(MODEL, AsyncOpenAI()),
            tools=await device_tools.tools(farhand, device=device, timeout=60, pictures=False),
        )
        result = await Runner.run(agent, question)
        return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(answer(sys.argv[1], sys.argv[2])))
