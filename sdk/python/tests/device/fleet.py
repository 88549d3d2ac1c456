"""A device whose tool writes down what it does. fleet.py URL STORE EFFECTS"""

import sys
import time
from pathlib import Path

from farhand.device import Device, FileStore, SyncCall

device = Device(sys.argv[1], device_id="worker", store=FileStore(sys.argv[2]), backoff=(0.05, 0.5))


@device.tool
def work(n: int, call: SyncCall) -> int:
    """Write a line, and take some time."""
    with Path(sys.argv[3]).open("a") as effects:
        effects.write(f"{call.id} {n}\n")
    time.sleep(0.05)
    return n


device.run()
