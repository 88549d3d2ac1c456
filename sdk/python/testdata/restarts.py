"""Calls count with ever new numbers, eight at a time, until standard input ends. Prints the outcome of each call."""

import asyncio
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from farhand import AsyncFarhand, Farhand, FarhandError, Result

numbers = count()
ended = threading.Event()


def tell(n: str, result: Result | FarhandError) -> None:
    if isinstance(result, Result):
        outcome = {"n": n, "ok": True, "output": result.output}
    else:
        outcome = {"n": n, "ok": False, "code": result.code, "dispatched": result.dispatched, "detail": result.detail}
        print(json.dumps(outcome), file=sys.stderr)
    sys.stdout.write(json.dumps(outcome) + "\n")
    sys.stdout.flush()


async def call_async(farhand: AsyncFarhand) -> None:
    while not ended.is_set():
        n = str(next(numbers))
        try:
            tell(n, await farhand.call("count", {"n": n}, device="phone", timeout=20))
        except FarhandError as e:
            tell(n, e)


def call_sync(farhand: Farhand) -> None:
    while not ended.is_set():
        n = str(next(numbers))
        try:
            tell(n, farhand.call("count", {"n": n}, device="phone", timeout=20))
        except FarhandError as e:
            tell(n, e)


async def main() -> None:
    async with AsyncFarhand() as farhand:
        await asyncio.gather(*(call_async(farhand) for _ in range(8)))


def wait_for_end() -> None:
    sys.stdin.read()
    ended.set()


waiting = threading.Thread(target=wait_for_end)
waiting.start()
if sys.argv[1] == "async":
    asyncio.run(main())
else:
    with Farhand() as farhand, ThreadPoolExecutor(8) as pool:
        for task in [pool.submit(call_sync, farhand) for _ in range(8)]:
            task.result()
waiting.join()
