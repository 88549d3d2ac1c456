"""An agent with OpenAI's chat completions, which answers a question with the tools of a device.

pip install ./sdk/python openai
export FARHAND_URL=https://gateway.example.com FARHAND_TOKEN=… OPENAI_API_KEY=…
python agent.py phone "What does the camera see?"
"""

import asyncio
import os
import sys

from openai import AsyncOpenAI

from farhand import AsyncFarhand
from farhand.integrations import openai as device_tools

MODEL = os.environ.get("MODEL", "gpt-5-mini")
STEPS = 10  # model requests for one question


async def answer(device: str, question: str) -> str:
    """Return the answer to a question."""
    async with AsyncFarhand() as farhand, AsyncOpenAI() as openai:
        # Definitions for the model, and run() for its calls. Images of results become part of the conversation.
        tools = await device_tools.tools(farhand, device=device, timeout=60)
        messages = [{"role": "user", "content": question}]
        for _ in range(STEPS):
            completion = await openai.chat.completions.create(model=MODEL, messages=messages, tools=tools.definitions)
            message = completion.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages += [message, *await tools.run(message)]
    return "I did not find an answer."


if __name__ == "__main__":
    print(asyncio.run(answer(sys.argv[1], sys.argv[2])))
