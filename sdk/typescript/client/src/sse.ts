import { FarhandError, unreachable } from "./errors.js";
import type { Asking, Http } from "./http.js";
import { Retries } from "./wait.js";

/** A server-sent event, with its data as JSON. */
export interface ServerEvent {
  id: string | undefined;
  type: string;
  data: unknown;
}

/** The gateway sends a comment every 15 seconds. A stream that is silent for longer than this is dead. */
const silence = 45_000;
/** The largest event, in characters. */
const largest = 16 << 20;

/** events yields the events of a response until it ends. Without a sign of life it throws `unreachable`. */
export async function* events(response: Response): AsyncGenerator<ServerEvent, void, undefined> {
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event: ServerEvent = { id: undefined, type: "message", data: "" };
  try {
    for (;;) {
      const { done, value } = await alive(reader.read());
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop()!;
      if (rest.length + String(event.data).length > largest) throw new Error("an event is too large");
      for (const line of lines) {
        const complete = take(event, line.endsWith("\r") ? line.slice(0, -1) : line);
        if (!complete) continue;
        if (event.data !== "") yield { ...event, data: JSON.parse(event.data as string) };
        event = { id: event.id, type: "message", data: "" };
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the connection is over, or its stream is left
  }
}

/** take adds a line to an event, and reports whether it ends the event. */
function take(event: ServerEvent, line: string): boolean {
  if (line === "") return true;
  const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line)!;
  if (field === "id") event.id = value;
  if (field === "event") event.type = value!;
  if (field === "data") event.data += (event.data === "" ? "" : "\n") + value;
  return false;
}

/** alive is what a read returns, unless it takes longer than the silence. */
async function alive<T>(read: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const dead = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`silent for ${silence} ms`)), silence);
  });
  try {
    return await Promise.race([read, dead]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * follow yields the events of a stream, and continues after the last one on another connection, on any pod. It ends
 * when the stream has ended for good (204). It throws the signal's reason, an error that no retry helps against, or the
 * last one when the gateway was away for longer than the client's `retryFor`.
 */
export async function* follow(
  http: Http,
  path: string,
  asking: Asking & { after?: string | undefined },
): AsyncGenerator<ServerEvent, void, undefined> {
  const retries = new Retries(http.retryFor);
  let { after } = asking;
  for (;;) {
    try {
      const headers: Record<string, string> = after ? { "Last-Event-ID": after } : {};
      const response = await http.stream("GET", path, { ...asking, headers });
      if (response.status === 204) return;
      retries.connected();
      for await (const event of events(response)) {
        after = event.id ?? after;
        retries.succeeded();
        yield event;
      }
    } catch (cause) {
      asking.signal?.throwIfAborted();
      const error = cause instanceof FarhandError ? cause : unreachable(cause, http.resolve("/").origin);
      await retries.wait(error, asking.signal);
      continue;
    }
    await retries.pause(asking.signal); // the pod stops, or has dropped a slow reader
  }
}
