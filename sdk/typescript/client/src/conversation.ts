import { CancelledError, errorOf, FarhandError, UnreachableError } from "./errors.js";
import { type Http, pathOf } from "./http.js";
import { events } from "./sse.js";
import type { MessageRequest, SessionAborted, Transcript, TurnDone, TurnEvent, TurnFailed } from "./types.js";
import { now, persist } from "./wait.js";

/** How a message is sent. */
export interface SayOptions {
  /** The participants, which determine the offered tools. Default: `main`, one trusted person. */
  context?: MessageRequest["context"];
  /** The format of tool results in events. Default: `plain`. */
  results?: MessageRequest["results"];
  /** Also return each model request, as an event `debug_prompt`. */
  debug?: boolean;
  /** Stops the turn and cancels its calls. */
  signal?: AbortSignal;
}

/** How long a message may wait for the turn before it, in milliseconds. */
const queued = 60_000;

/** The conversation of a session with the gateway's model. */
export class Conversation {
  readonly #http: Http;
  readonly #session: string;

  /** @internal */
  constructor(http: Http, session: string) {
    this.#http = http;
    this.#session = session;
  }

  /**
   * say sends a message, and yields the events of its turn. The last one is `done` or `aborted`; a turn that fails
   * throws. Leaving the loop stops the turn and cancels its calls.
   */
  say(content: string, options: SayOptions = {}): AsyncGenerator<TurnEvent, void, undefined> {
    return this.#turn({ content }, options);
  }

  /** regenerate answers the last message again, and replaces its answer. */
  regenerate(options: SayOptions = {}): AsyncGenerator<TurnEvent, void, undefined> {
    return this.#turn({ regenerate: true }, options);
  }

  /** ask sends a message, and returns the end of its turn, with the answer in `full_response`. */
  async ask(content: string, options: SayOptions = {}): Promise<TurnDone> {
    for await (const event of this.say(content, options)) {
      if (event.type === "done") return event as TurnDone;
    }
    throw new CancelledError("The turn was aborted. Its messages so far are stored.", { code: "cancelled" });
  }

  /** abort ends the running turn, of any caller on any pod. */
  async abort(): Promise<SessionAborted["status"]> {
    const path = pathOf("api", "sessions", this.#session, "abort");
    return (await this.#http.ask<SessionAborted>("POST", path)).status;
  }

  /** transcript returns what was said: the last `limit` messages. Default: 100; at most 1,000. */
  transcript(options: { limit?: number; signal?: AbortSignal } = {}): Promise<Transcript> {
    return this.#http.read<Transcript>(this.#path(), { query: { limit: options.limit }, signal: options.signal });
  }

  #path(): string {
    return pathOf("api", "sessions", this.#session, "messages");
  }

  async *#turn(message: MessageRequest, options: SayOptions): AsyncGenerator<TurnEvent, void, undefined> {
    const { signal, context, results = "plain", debug } = options;
    const body: MessageRequest = {
      ...message,
      stream: true,
      results,
      ...(context === undefined ? {} : { context }),
      ...(debug === undefined ? {} : { debug }),
    };
    const post = () => this.#http.stream("POST", this.#path(), { body, signal, within: queued });
    // Another turn is running, or the pod is full: this one has not begun.
    const busy = (error: FarhandError) => error.status === 429 && error.code !== "budget_exceeded";
    const response = await persist(post, busy, now() + this.#http.retryFor, signal);
    try {
      for await (const { data } of events(response)) {
        const event = data as TurnEvent;
        if (event.type === "error") throw failureOf(event as TurnFailed);
        yield event;
        if (event.type === "done" || event.type === "aborted") return;
      }
    } catch (error) {
      signal?.throwIfAborted();
      throw error instanceof FarhandError ? error : broken(error);
    }
    throw broken(undefined);
  }
}

/** failureOf returns the error of a turn. The message begins with the chat protocol's code, as in other responses. */
function failureOf(event: TurnFailed): FarhandError {
  const code = codes[event.code] ?? "agent_error";
  return errorOf(`${event.code}: ${event.message}`, { code, retryAfter: event.retry_after_ms });
}

/** The codes of the chat protocol that are not agent_error, as over HTTP. */
const codes: Record<string, string> = {
  PROVIDER_ERROR: "provider_error",
  AUTH_ERROR: "provider_error",
  SESSION_BUSY: "busy",
  EMPTY_CONTENT: "invalid_request",
  NO_USER_MESSAGE: "invalid_request",
};

/** broken is the error of a turn whose stream has no end. Its pod is gone; the transcript keeps what was said. */
function broken(cause: unknown): FarhandError {
  return new UnreachableError("The stream of the turn broke off. The transcript has its messages so far.", {
    code: "unreachable",
    cause,
  });
}
