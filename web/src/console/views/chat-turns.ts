// Turns that this page has begun. They go on while other views are shown.

import { effect, signal } from "@preact/signals";
import { path, Problem } from "../../api/client";
import { read } from "../../api/events";
import type { Approval, MessageRequest, Part, TurnCallStatus, TurnEvent } from "../../api/types";
import { client, me } from "../session";

export type LiveItem =
  | { kind: "text" | "thinking"; text: string }
  | { kind: "call"; id: string; name: string; args: unknown; status: TurnCallStatus; output: string; parts: Part[] }
  | { kind: "approval"; approval: Approval };

export interface LiveTurn {
  /** What the person said; empty: the last message is answered again. */
  said: string;
  items: LiveItem[];
  state: "running" | "done" | "aborted" | "failed";
  error?: string;
}

/** By session. A turn stays until its conversation has been read again. */
export const liveTurns = signal<Record<string, LiveTurn>>({});

effect(() => {
  if (me.value === null) liveTurns.value = {}; // another identity may sign in
});

const pause = 40; // ms between changes of what is shown

export function forget(session: string): void {
  const { [session]: _gone, ...others } = liveTurns.value;
  liveTurns.value = others;
}

/** say begins a turn, and resolves when it has ended, whatever its end is. It is rejected if it cannot begin. */
export async function say(session: string, request: MessageRequest): Promise<void> {
  const turn: LiveTurn = { said: request.content ?? "", items: [], state: "running" };
  const person = me.value;
  const show = () => {
    if (me.value === person) liveTurns.value = { ...liveTurns.value, [session]: { ...turn, items: [...turn.items] } };
  };
  show();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const showSoon = () => {
    timer ??= setTimeout(() => {
      timer = undefined;
      show();
    }, pause);
  };
  try {
    const response = await client.request("POST", path("api", "sessions", session, "messages"), {
      body: { ...request, stream: true },
      headers: { Accept: "text/event-stream" },
    });
    for await (const event of read(response)) {
      apply(turn, event.data as TurnEvent);
      showSoon();
    }
    if (turn.state === "running") fail(turn, Problem.unreachable().message);
  } catch (error) {
    if (error instanceof Problem && error.status > 0) {
      forget(session);
      throw error;
    }
    fail(turn, Problem.unreachable().message);
  } finally {
    clearTimeout(timer);
  }
  show();
}

function fail(turn: LiveTurn, error: string): void {
  turn.state = "failed";
  turn.error = error;
}

/** apply changes a turn by an event. `chunk_reset` changes nothing: the conversation is read again at the end. */
function apply(turn: LiveTurn, event: TurnEvent): void {
  switch (event.type) {
    case "chunk":
      return append(turn, "text", event.content);
    case "thinking":
      return append(turn, "thinking", event.content);
    case "tool_call":
      return putCall(turn, event.id, { name: event.name, args: event.args, status: event.status });
    case "tool_result":
      return putCall(turn, event.id, {
        name: event.name,
        status: event.status,
        output: event.output,
        parts: event.parts ?? [],
      });
    case "approval_request":
    case "approval_decided":
      return putApproval(turn, event);
    case "done":
      turn.state = "done";
      return;
    case "aborted":
      turn.state = "aborted";
      return;
    case "error":
      return fail(turn, event.message);
  }
}

function append(turn: LiveTurn, kind: "text" | "thinking", text: string): void {
  const last = turn.items.at(-1);
  if (last?.kind === kind) turn.items[turn.items.length - 1] = { kind, text: last.text + text };
  else turn.items.push({ kind, text });
}

type Call = Extract<LiveItem, { kind: "call" }>;

function putCall(turn: LiveTurn, id: string, change: Partial<Call>): void {
  const at = turn.items.findIndex((item) => item.kind === "call" && item.id === id);
  const before: Call =
    at >= 0
      ? (turn.items[at] as Call)
      : { kind: "call", id, name: "", args: undefined, status: "executing", output: "", parts: [] };
  const after: Call = { ...before, ...change };
  if (at >= 0) turn.items[at] = after;
  else turn.items.push(after);
}

function putApproval(turn: LiveTurn, approval: Approval): void {
  const at = turn.items.findIndex((item) => item.kind === "approval" && item.approval.id === approval.id);
  const item: LiveItem = { kind: "approval", approval };
  if (at >= 0) turn.items[at] = item;
  else turn.items.push(item);
}
