"""Connections with a played gateway."""

import asyncio
import json
import logging
import time
import unittest
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from farhand.device import Device, DeviceError, MemoryStore


async def gateway(connection: ServerConnection) -> None:
    """Starts a session, and accepts all tools."""
    async for message in connection:
        kind = json.loads(message)["type"]
        if kind == "connect":
            start: dict[str, Any] = {"type": "session_start", "session_id": "s", "resume_token": "secret-resume"}
            await connection.send(json.dumps(start))
        if kind == "register_tools":
            await connection.send(json.dumps({"type": "tools_registered", "registered": 0, "count": 0}))


class Connections(unittest.IsolatedAsyncioTestCase):
    """One device."""

    async def test_log(self) -> None:
        """A program that logs everything logs no token: neither of a header nor of a frame."""
        silent = logging.getLogger("of the played gateway")
        silent.setLevel(logging.INFO)
        store = MemoryStore()
        with self.assertLogs(level=logging.DEBUG) as logged:
            async with serve(gateway, "127.0.0.1", 0, subprotocols=["clawseed.v1"], logger=silent) as server:
                port = server.sockets[0].getsockname()[1]
                for _ in range(2):  # the second connection sends the token of the first one
                    device = Device(f"ws://127.0.0.1:{port}", token="secret-token", store=store)
                    await asyncio.wait_for(device.start(), 30)
                    await device.stop()
        text = "\n".join(logged.output)
        self.assertIn("connected", text)
        self.assertNotIn("secret", text)

    async def test_reconnect(self) -> None:
        """It ends the delay of the device, and not the one that the gateway asked for."""
        session = Device("ws://127.0.0.1:1")._session
        begun = time.monotonic()
        pause = asyncio.create_task(session._pause(0.3, 1000, DeviceError("draining", "come back")))
        await asyncio.sleep(0.01)
        session.reconnect()
        await asyncio.wait_for(pause, 30)
        self.assertGreaterEqual(time.monotonic() - begun, 0.29)


if __name__ == "__main__":
    unittest.main()
