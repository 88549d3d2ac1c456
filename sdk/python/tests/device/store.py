"""Writes to a file until it is killed. store.py FILE: it prints the number of each value that is kept."""

import asyncio
import sys

from farhand.device import DeviceError, FileStore


async def main(path: str) -> None:
    """Checks what is kept, and goes on."""
    store = FileStore(path)
    try:
        first = await store.get("n") or 0
    except DeviceError as error:
        print(error.code)
        return
    kept = dict(await store.entries("v/"))
    for n in range(max(0, first - 50), first):
        if kept.get(f"v/{n}") != n:
            print(f"lost {n}", flush=True)
    if await store.add("once", 1) == (first > 0):
        print("added twice", flush=True)
    n = first
    while True:
        filler = store.set("filler", "x" * 20_000)
        await asyncio.gather(store.set(f"v/{n}", n), store.set("n", n + 1), store.delete(f"v/{n - 60}"), filler)
        print(n, flush=True)
        n += 1


asyncio.run(main(sys.argv[1]))
