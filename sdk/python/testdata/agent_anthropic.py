"""An agent with Anthropic's messages: the first argument is the device, the second the question."""

import asyncio
import sys

from anthropic import AsyncAnthropic

from farhand import AsyncFarhand
from farhand.integrations import anthropic as device_tools


async def answer(device: str, question: str) -> str:
    async with AsyncFarhand() as farhand, AsyncAnthropic(api_key="none") as anthropic:
        tools = await device_tools.tools(farhand, device=device, timeout=60)
        messages = [{"role": "user", "content": [{"type": "text", "text": question}]}]
        for _ in range(10):
            async with anthropic.messages.stream(
                model="scripted", messages=messages, tools=tools.definitions, max_tokens=1024
            ) as stream:
                message = await stream.get_final_message()
            answers = await tools.run(message)
            if not answers:
                return message.content[0].text
            content = [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in message.content]
            messages += [{"role": "assistant", "content": content}, *answers]
    return ""


print(asyncio.run(answer(sys.argv[1], sys.argv[2])))
