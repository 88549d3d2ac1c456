import type { Data, Part } from "./parts.js";

/** Call is one call of a tool. */
export interface Call {
  readonly callId: string;
  readonly tool: string;
  /**
   * Ends when the gateway cancels the call, the device stops, or 15 minutes after the deadline: a late answer is kept
   * in the call's record.
   */
  readonly signal: AbortSignal;
  /** When the caller stops waiting. */
  readonly deadline: Date;
  /**
   * The W3C header of the trace that the call belongs to, for requests and spans of the handler. "": the gateway makes
   * no traces.
   */
  readonly traceparent: string;
  /** Like signal, but ends also when the caller stops waiting. For work that is useless then, like asking a person. */
  awaited(): AbortSignal;
  /** Reports progress: done, of how many, and a word for people. Reports are dropped if they come too fast. */
  progress(done: number, total?: number, message?: string): void;
  /** Sends output in advance. The handler must return the complete output all the same. */
  chunk(text: string): Promise<void>;
  /**
   * Uploads a part that is too large for an answer, and returns it for the result. It works while the call runs. Parts
   * of a result that are too large are uploaded by themselves.
   */
  upload(part: Part): Promise<Part>;
}

export type { Data, Part };
