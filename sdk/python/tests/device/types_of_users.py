"""A user's program, which mypy checks with strict options."""

from farhand.device import (
    Call,
    Decision,
    Device,
    FileStore,
    MemoryStore,
    Question,
    Result,
    State,
    Store,
    SyncCall,
    Tool,
    image,
    pair,
)


async def ask(question: Question) -> Decision | None:
    """Decides."""
    return "deny" if question.remarks else None


stores: list[Store] = [MemoryStore(), FileStore("device.jsonl")]
phases: list[State] = []
device = Device("https://gateway.example.com", store=stores[0], approver=ask, on_state=phases.append)


@device.tool
def plain(word: str, call: SyncCall) -> str:
    """Does something."""
    call.progress(1)
    return word


@device.tool(name="other", security="user_confirm", hints={"readOnlyHint": True}, timeout=3)
async def awaited(word: str, call: Call) -> Result:
    """Does something."""
    await call.chunk(word)
    return Result(word, [await call.upload(image(b"", "image/png"))])


async def raw(args: dict[str, object], call: Call) -> int:
    """Does something."""
    return len(args)


async def main() -> None:
    """Uses the rest."""
    device.add_tool(Tool("raw", "Does something.", raw, {"type": "object"}))
    credential = await pair("https://gateway.example.com", show=print)
    async with Device("https://gateway.example.com", credential=credential) as other:
        text: str = await other.chat.send("Hello")
        print(text, plain("x", ...))  # type: ignore[arg-type]
