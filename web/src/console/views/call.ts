import { useEffect, useState } from "preact/hooks";
import { path, type Problem } from "../../api/client";
import { follow } from "../../api/events";
import type { CallEvent, CallRecord } from "../../api/types";
import { client } from "../session";
import { isFinal } from "./bits";

const mostLines = 500; // reports that are kept
const mostChunks = 256 << 10; // characters of the output's parts that are kept
const recordWait = 5_000; // ms for the record to say what the log said

export interface Watched {
  record: CallRecord | undefined;
  /** The newest report of progress, and all parts of the output so far. */
  progress: CallEvent | undefined;
  messages: CallEvent[];
  chunks: string;
  truncated: boolean;
  error: unknown;
}

const nothing: Watched = {
  record: undefined,
  progress: undefined,
  messages: [],
  chunks: "",
  truncated: false,
  error: undefined,
};

/** useCall reads a call and follows it until it ends. Change version to read it again. */
export function useCall(id: string | undefined, version = 0): Watched {
  const [watched, setWatched] = useState(nothing);
  useEffect(() => setWatched(nothing), [id]);
  useEffect(() => {
    if (!id) return;
    const control = new AbortController();
    watch(id, control.signal, (change) => control.signal.aborted || setWatched(change)).catch(
      (error: unknown) => control.signal.aborted || setWatched((before) => ({ ...before, error })),
    );
    return () => control.abort();
  }, [id, version]);
  return watched;
}

type Change = (change: (before: Watched) => Watched) => void;

async function watch(id: string, signal: AbortSignal, change: Change): Promise<void> {
  const at = path("api", "calls", id);
  let record = await client.get<CallRecord>(at, { signal });
  change((before) => ({ ...before, record, error: undefined }));
  if (isFinal(record.state)) return;
  for await (const event of follow(client, at + "/events", { signal })) {
    const data = event.data as CallEvent;
    change((before) => heard(before, data));
    if (data.state && isFinal(data.state)) break;
  }
  if (signal.aborted) return;
  record = await client.get<CallRecord>(at, { signal, query: { wait_ms: recordWait } });
  change((before) => ({ ...before, record }));
}

function heard(before: Watched, event: CallEvent): Watched {
  if (event.type === "truncated") return { ...before, truncated: true };
  if (event.type === "state" && event.state && before.record) {
    const { record } = before;
    if (isFinal(record.state) || record.timeline.some((step) => step.state === event.state)) return before;
    const timeline = [...record.timeline, { state: event.state, at: event.at }];
    return { ...before, record: { ...record, state: event.state, timeline } };
  }
  if (event.type !== "progress") return before;
  const chunks = event.chunk ? (before.chunks + event.chunk).slice(-mostChunks) : before.chunks;
  const messages = event.message ? [...before.messages.slice(1 - mostLines), event] : before.messages;
  return { ...before, chunks, messages, progress: event.progress === undefined ? before.progress : event };
}

export function isMissing(error: unknown): boolean {
  return (error as Problem | undefined)?.status === 404;
}
