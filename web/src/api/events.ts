import { createParser } from "eventsource-parser";
import { type Asking, type Client, Problem } from "./client";

export interface ServerEvent {
  id?: string | undefined;
  type: string;
  data: unknown;
}

/** read yields the events of one response, until it ends. */
export async function* read(response: Response): AsyncGenerator<ServerEvent> {
  const waiting: ServerEvent[] = [];
  const parser = createParser({
    onEvent: ({ id, event, data }) => {
      if (data === "[DONE]") return;
      waiting.push({ id, type: event ?? "message", data: JSON.parse(data) });
    },
  });
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      parser.feed(value);
      yield* waiting.splice(0);
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

export interface Following {
  query?: Asking["query"];
  signal: AbortSignal;
  /** Called when the connection is there (true) and when it is lost (false). */
  connected?: (is: boolean) => void;
  /** Called after a pause that was too long to continue: read everything again. */
  restarted?: () => void | Promise<void>;
}

const least = 500;
const longest = 15_000;

/**
 * follow yields the events of a stream for as long as the signal is not aborted. It reconnects with a random, growing
 * pause and continues after the last event. It ends with a Problem that no retry can mend, or when the stream has ended
 * for good (204).
 */
export async function* follow(client: Client, to: string, following: Following): AsyncGenerator<ServerEvent> {
  const { signal, connected } = following;
  let last: string | undefined;
  let pause = least;
  let wasConnected = false;
  while (!signal.aborted) {
    try {
      const response = await client.request("GET", to, {
        signal,
        query: following.query ?? {},
        headers: { Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) },
      });
      if (response.status === 204) return;
      if (wasConnected && !last) await following.restarted?.();
      wasConnected = true;
      connected?.(true);
      for await (const event of read(response)) {
        if (event.id) last = event.id;
        pause = least;
        yield event;
      }
    } catch (error) {
      if (signal.aborted) return;
      const problem = error instanceof Problem ? error : Problem.unreachable();
      if (problem.status >= 400 && problem.status < 500 && problem.status !== 429) throw problem;
      pause = Math.max(pause, problem.retryAfter ?? 0);
    }
    if (signal.aborted) return;
    connected?.(false);
    await sleep(pause * (0.5 + Math.random()), signal);
    pause = Math.min(pause * 2, longest);
  }
}

/** sleep resolves after a time, or when the signal is aborted. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}
