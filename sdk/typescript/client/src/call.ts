import { CancelledError, errorOf, FarhandError, withDispatched } from "./errors.js";
import { type Http, pathOf } from "./http.js";
import { type CallResult, resultOf } from "./result.js";
import { follow } from "./sse.js";
import type { CallAccepted, CallEvent, CallRecord, CallState } from "./types.js";
import { now, passing, Retries, persist } from "./wait.js";

/** How long one request waits for the end of a call, in milliseconds. */
const wait = 30_000;
/** How much longer its response may take. */
const grace = 10_000;
/** How long the client tries to cancel a call, in milliseconds. */
export const cancelling = 5_000;

const final: readonly CallState[] = ["succeeded", "failed", "cancelled", "timed_out", "lost", "rejected", "expired"];

/**
 * A call that the gateway has a record of. It goes on without this program: another one can read it by its id. Iterate
 * over it for its states, its progress and its output in pieces.
 */
export class PendingCall<T = unknown> implements AsyncIterable<CallEvent> {
  readonly id: string;
  /** The approval that the call waits for, if any, and who may decide. */
  readonly approvalId: string | undefined;
  readonly approvers: readonly string[];
  /** If the call waits in the queue of its device: its place when it was accepted, from 1 on, and when it expires. */
  readonly place: number | undefined;
  readonly expiresAt: Date | undefined;
  readonly #http: Http;
  readonly #signal: AbortSignal | undefined;
  readonly #abort = () => void this.cancel().catch(() => {}); // result() reports it
  #cancelled: Promise<CallRecord> | undefined;

  /** @internal */
  constructor(
    http: Http,
    call: Pick<CallAccepted, "call_id"> & Partial<CallAccepted>,
    signal?: AbortSignal | undefined,
  ) {
    this.id = call.call_id;
    this.approvalId = call.approval_id;
    this.approvers = call.approvers ?? [];
    this.place = call.place;
    this.expiresAt = call.expires_at === undefined ? undefined : new Date(call.expires_at);
    this.#http = http;
    this.#signal = signal;
    if (signal?.aborted) this.#abort();
    else signal?.addEventListener("abort", this.#abort, { once: true });
  }

  /** The call's events from its beginning, to its final state. An aborted signal throws its reason. */
  async *[Symbol.asyncIterator](): AsyncGenerator<CallEvent, void, undefined> {
    const path = pathOf("api", "calls", this.id, "events");
    for await (const { data } of follow(this.#http, path, { signal: this.#signal })) {
      const event = data as CallEvent;
      yield event;
      if (event.state && final.includes(event.state)) return this.#ended();
    }
  }

  /** record returns what the gateway knows of the call now. */
  async record(): Promise<CallRecord> {
    const record = await this.#http.read<CallRecord>(this.#path());
    if (final.includes(record.state)) this.#ended();
    return record;
  }

  /**
   * result waits for the end of the call. It throws the call's error. If the signal is aborted, it cancels the call and
   * throws `cancelled`, with what is known of it, unless the call has ended first.
   */
  async result(): Promise<CallResult<T>> {
    let record: CallRecord;
    try {
      record = await this.#end();
    } catch (error) {
      if (!this.#signal?.aborted || error !== this.#signal.reason) throw error;
      record = await this.#afterCancel(error);
    } finally {
      this.#ended();
    }
    if (record.success === undefined) throw problemOf(record);
    return resultOf<T>(record, this.#http);
  }

  /**
   * cancel ends the call at the gateway, and returns its record. On a call that has ended it has no effect. It can be
   * repeated if it fails.
   */
  cancel(): Promise<CallRecord> {
    this.#cancelled ??= this.#cancel();
    return this.#cancelled;
  }

  async #cancel(): Promise<CallRecord> {
    const request = () => this.#http.ask<CallRecord>("DELETE", this.#path(), { within: cancelling });
    try {
      const record = await persist(request, passing, now() + cancelling);
      this.#ended();
      return record;
    } catch (error) {
      this.#cancelled = undefined;
      throw error;
    }
  }

  #path(): string {
    return pathOf("api", "calls", this.id);
  }

  /** ended stops listening to the signal: there is nothing left to cancel. */
  #ended(): void {
    this.#signal?.removeEventListener("abort", this.#abort);
  }

  /** end waits for the final record. */
  async #end(): Promise<CallRecord> {
    const asking = { query: { wait_ms: wait }, signal: this.#signal, within: wait + grace };
    const retries = new Retries(this.#http.retryFor);
    for (;;) {
      try {
        const record = await this.#http.ask<CallRecord>("GET", this.#path(), asking);
        if (final.includes(record.state)) return record;
        retries.succeeded();
      } catch (error) {
        if (!(error instanceof FarhandError)) throw error;
        await retries.wait(withDispatched(error, "unknown", this.id), this.#signal);
      }
    }
  }

  /** afterCancel returns the record of a call that ended before it could be cancelled. Else it throws what is known. */
  async #afterCancel(cause: unknown): Promise<CallRecord> {
    const record = await this.cancel().catch(() => undefined);
    if (record?.state === "succeeded" || record?.state === "failed") return record;
    const message = record
      ? "The call was cancelled."
      : "The call may go on: the gateway was not reached to cancel it.";
    throw new CancelledError(message, {
      code: "cancelled",
      callId: this.id,
      dispatched: record?.dispatched ?? "unknown",
      cause,
    });
  }
}

/** problemOf returns the error of a call that ended without a result. */
export function problemOf(record: CallRecord): FarhandError {
  const { code = "internal", detail = `The call ended as ${record.state}.` } = record.problem ?? {};
  return errorOf(detail, {
    code,
    callId: record.call_id,
    dispatched: record.dispatched,
    retryable: record.retryable ?? false,
  });
}
