"""Makes a Raspberry Pi a device: relays, a door contact, its temperature, and a camera. python pi.py URL"""

import asyncio
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Annotated, Literal

from pins import BoardPins, Pins

from farhand.device import Call, Device, FileStore, Part, image, pair

RELAYS = {"lamp": 17, "pump": 27}
DOOR = 22  # closed: connected to ground
TEMPERATURE = Path("/sys/class/thermal/thermal_zone0/temp")


def offer_tools(device: Device, pins: Pins) -> None:
    @device.tool
    async def switch(relay: Literal["lamp", "pump"], on: bool) -> str:
        """Switch a relay on or off."""
        pins.set(RELAYS[relay], on)
        return f"The {relay} is {'on' if on else 'off'}."

    @device.tool(hints={"readOnlyHint": True})
    async def status() -> dict:
        """Return which relays are on, whether the door is closed, and the temperature of the board in °C."""
        degrees = int(TEMPERATURE.read_text()) / 1000 if TEMPERATURE.exists() else None
        relays = {name: pins.get(pin) for name, pin in RELAYS.items()}
        return {"relays": relays, "door_closed": pins.get(DOOR), "temperature": degrees}

    @device.tool(timeout=600, hints={"readOnlyHint": True})
    async def wait_for_door(closed: Annotated[bool, "Whether to wait until it is closed, or open."], call: Call) -> str:
        """Wait until the door is closed or opened. Cancel the call to end it."""
        while pins.get(DOOR) != closed:
            await asyncio.wait_for(asyncio.sleep(0.1), call.remaining())
        return f"The door is {'closed' if closed else 'open'}."

    if shutil.which("rpicam-jpeg"):

        @device.tool(security="user_confirm", hints={"readOnlyHint": True})
        async def photo() -> Part:
            """Take a picture."""
            camera = await asyncio.create_subprocess_exec(
                "rpicam-jpeg", "--nopreview", "--timeout", "500", "--output", "-", stdout=asyncio.subprocess.PIPE
            )
            picture, _ = await camera.communicate()
            if camera.returncode != 0:
                raise RuntimeError(f"rpicam-jpeg failed with exit status {camera.returncode}")
            return image(picture, "image/jpeg", "photo.jpg")


async def main(address: str) -> None:
    store = FileStore(Path(os.environ.get("STATE_DIRECTORY", ".")) / "device.jsonl")
    credential = await pair(
        address,
        device_name=platform.node(),
        store=store,
        show=lambda code, _: print(f"farhand pair approve {code}", flush=True),
    )
    device = Device(address, credential=credential, store=store, on_state=lambda s: print(s.phase, flush=True))
    offer_tools(device, BoardPins(inputs=[DOOR]))
    await device.run_async()


asyncio.run(main(sys.argv[1]))
