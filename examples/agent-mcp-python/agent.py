"""An agent with an MCP client: the gateway is an MCP server, so it needs nothing of Farhand.

pip install mcp openai
export FARHAND_URL=https://gateway.example.com FARHAND_TOKEN=… OPENAI_API_KEY=…
python agent.py phone "What does the camera see?"
"""

import asyncio
import json
import os
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from openai import AsyncOpenAI

MODEL = os.environ.get("MODEL", "gpt-5-mini")
URL = os.environ.get("FARHAND_URL", "http://127.0.0.1:8080")
STEPS = 10  # model requests for one question


async def answer(session: str, question: str) -> str:
    """Return the answer to a question."""
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {os.environ.get('FARHAND_TOKEN', '')}"}, timeout=60)
    # The path has the session whose tools the agent gets; /mcp has those of all devices.
    server = streamable_http_client(f"{URL}/mcp/sessions/{session}", http_client=http)
    async with http, Client(server) as mcp, AsyncOpenAI() as openai:
        tools = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
            }
            for tool in (await mcp.list_tools()).tools
        ]
        messages = [{"role": "user", "content": question}]
        for _ in range(STEPS):
            completion = await openai.chat.completions.create(model=MODEL, messages=messages, tools=tools)
            message = completion.choices[0].message
            if not message.tool_calls:
                return message.content or ""
            messages.append(message)
            for call in message.tool_calls:
                result = await mcp.call_tool(call.function.name, json.loads(call.function.arguments))
                text = "\n".join(part.text for part in result.content if part.type == "text")
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
    return "I did not find an answer."


if __name__ == "__main__":
    print(asyncio.run(answer(sys.argv[1], sys.argv[2])))
