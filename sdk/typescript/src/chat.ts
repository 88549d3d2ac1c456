import { FarhandError } from "./errors.js";
import { list, number, text, type Received } from "./frames.js";

/** What a turn shows as it runs, in order. */
export type TurnEvent =
  /** A piece of the answer. */
  | { readonly type: "chunk"; readonly content: string }
  /** A piece of the model's reasoning. */
  | { readonly type: "thinking"; readonly content: string }
  /** Discard the chunks: the answer has the whole text. */
  | { readonly type: "chunk_reset" }
  /** The model calls a tool. It comes again when a pending call begins. */
  | { readonly type: "tool_call"; readonly id: string; readonly name: string; readonly args: unknown;
      readonly status: "pending" | "executing" }
  | { readonly type: "tool_result"; readonly id: string; readonly name: string; readonly output: string;
      readonly status: "completed" | "failed"; readonly parts: readonly TurnPart[] }
  /** With debug: the coming request to the model, as JSON. */
  | { readonly type: "debug_prompt"; readonly messages: string; readonly estimatedTokens: number };

/** An image, a sound or a file of a tool's result, as the gateway sends it. */
export interface TurnPart {
  readonly type: string;
  readonly mime_type: string;
  readonly data?: string;
  readonly url?: string;
  readonly size?: number;
  readonly name?: string;
}

export interface TurnOptions {
  /** Gets what the turn shows. */
  onEvent?: (event: TurnEvent) => void;
  /** Aborts the turn. */
  signal?: AbortSignal;
  /** Asks for debug_prompt. */
  debug?: boolean;
}

/**
 * Chat is the conversation of the person at the device with the gateway's model. One turn runs at a time. The error of
 * a turn is a FarhandError: `aborted`, `busy`, `disconnected` (the turn has ended, too), or a code of docs/protocol.md.
 */
export class Chat {
  #turn: { readonly options: TurnOptions; readonly end: (result: string | FarhandError) => void } | undefined;

  /** @internal */
  constructor(private readonly transmit: (frame: object) => boolean) {}

  /** Whether a turn runs. */
  get running(): boolean {
    return this.#turn !== undefined;
  }

  /** Sends a message, and returns the whole answer. */
  send(content: string, options: TurnOptions = {}): Promise<string> {
    return this.#begin({ type: "message", content }, options);
  }

  /** Answers the last message again. */
  regenerate(options: TurnOptions = {}): Promise<string> {
    return this.#begin({ type: "regenerate" }, options);
  }

  /** Ends the running turn; its promise is rejected with `aborted`. */
  abort(): void {
    if (this.#turn) this.transmit({ type: "abort" });
  }

  #begin(frame: object, options: TurnOptions): Promise<string> {
    return new Promise((resolve, reject) => {
      options.signal?.throwIfAborted();
      if (this.#turn) throw new FarhandError("busy", "a turn is running");
      const abort = (): void => this.abort();
      this.#turn = {
        options,
        end: (result) => {
          this.#turn = undefined;
          options.signal?.removeEventListener("abort", abort);
          if (typeof result === "string") resolve(result);
          else reject(result);
        },
      };
      options.signal?.addEventListener("abort", abort);
      try {
        if (!this.transmit(options.debug ? { ...frame, debug: true } : frame)) this.lost();
      } catch (error) {
        this.#turn.end(error as FarhandError);
      }
    });
  }

  /** Takes a frame of a turn. @internal */
  take(frame: Received): void {
    switch (frame.type) {
      case "done":
        return this.#turn?.end(text(frame["full_response"]));
      case "aborted":
        return this.#turn?.end(new FarhandError("aborted", "the turn was aborted"));
      case "chunk":
      case "thinking":
        return this.#tell({ type: frame.type, content: text(frame["content"]) });
      case "chunk_reset":
        return this.#tell({ type: "chunk_reset" });
      case "tool_call":
        return this.#tell({
          type: "tool_call", id: text(frame["id"]), name: text(frame["name"]), args: frame["args"],
          status: frame["status"] === "pending" ? "pending" : "executing",
        });
      case "tool_result":
        return this.#tell({
          type: "tool_result", id: text(frame["id"]), name: text(frame["name"]), output: text(frame["output"]),
          status: frame["status"] === "failed" ? "failed" : "completed", parts: list(frame["parts"]),
        });
      case "debug_prompt":
        return this.#tell({
          type: "debug_prompt", messages: text(frame["messages"]), estimatedTokens: number(frame["estimated_tokens"]),
        });
    }
  }

  /** Takes an error frame. Returns whether it ended a turn. @internal */
  fail(error: FarhandError): boolean {
    if (!this.#turn || notOfTurns.has(error.code)) return false;
    this.#turn.end(error);
    return true;
  }

  /** The connection is gone, and the turn with it. @internal */
  lost(): void {
    this.#turn?.end(new FarhandError("disconnected", "the connection to the gateway is gone, and the turn with it"));
  }

  #tell(event: TurnEvent): void {
    try {
      this.#turn?.options.onEvent?.(event);
    } catch (error) {
      console.error(error);
    }
  }
}

/** Errors of other frames, which come while a turn runs. */
const notOfTurns = new Set([
  "INVALID_JSON", "UNKNOWN_MESSAGE_TYPE", "MESSAGE_TOO_BIG", "RATE_LIMITED", "PROGRESS_REFUSED", "APPROVAL_NOT_FOUND",
  "SESSION_OWNER_MISMATCH", "PAIRING_REQUIRED",
]);
