"""Makes this machine a device: it keeps notes, and sets timers. python device.py URL"""

import asyncio
import os
import platform
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from farhand.device import Call, Device, FileStore, image

folder = Path.home() / ".farhand-example"
device = Device(
    sys.argv[1],
    token=os.environ.get("FARHAND_TOKEN"),
    device_name=platform.node(),
    store=FileStore(folder / "device.jsonl"),  # no call runs twice, also if this program is killed
    on_state=lambda state: print(state.phase, state.error or "", flush=True),
)


@dataclass
class Note:
    text: Annotated[str, "What to remember."]
    list: Annotated[Literal["shopping", "work", "other"], "Which list it belongs to."] = "other"


@device.tool(hints={"destructiveHint": False})
def add_notes(notes: Annotated[list[Note], "In the order in which they are kept."]) -> str:
    """Keep notes for the person at this machine."""
    with (folder / "notes.txt").open("a") as file:
        file.writelines(f"{datetime.now():%Y-%m-%d} {note.list}: {note.text}\n" for note in notes)
    return f"{len(notes)} kept."


@device.tool(hints={"readOnlyHint": True})
def find_notes(word: Annotated[str, "A part of the text; empty: all notes."] = "") -> list[str]:
    """Return the notes that contain a word."""
    return [line for line in (folder / "notes.txt").read_text().splitlines() if word.lower() in line.lower()]


@device.tool(timeout=3600)
async def timer(seconds: Annotated[int, "At most an hour."], call: Call) -> str:
    """Wait for some time, and report each second. A cancelled call ends immediately."""
    for second in range(seconds):
        await asyncio.sleep(1)
        call.progress(second + 1, seconds)
    return "The time is over."


@device.tool(security="user_confirm", hints={"readOnlyHint": True})
def picture(path: Annotated[str, "Path of a PNG or JPEG file."]):
    """Show a picture of this machine's disk. A person must approve it."""
    return image(path)


device.run()
