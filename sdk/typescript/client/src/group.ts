import { PendingCall } from "./call.js";
import { deadline, mayRetry } from "./calling.js";
import { errorOf, FarhandError, unreachable, withDispatched } from "./errors.js";
import type { Http } from "./http.js";
import { type CallResult, resultOf } from "./result.js";
import { events } from "./sse.js";
import type {
  CallAnswer,
  CallRecord,
  CallState,
  GroupAnswer,
  GroupCounts,
  GroupMode,
  GroupRequest,
  GroupResult,
} from "./types.js";
import { persist } from "./wait.js";

/** Which devices are called, and how. */
export interface GroupOptions {
  /** Devices of this user, with these labels. Without any of the four: all connected devices that offer the tool. */
  user?: string | undefined;
  labels?: Record<string, string> | undefined;
  /** Or devices by their ids, or sessions by theirs. */
  devices?: readonly string[] | undefined;
  sessions?: readonly string[] | undefined;
  /**
   * `all` (default): every device. `first`: until one succeeds. `quorum`: until `quorum` devices succeed. `race`: the
   * next device after `stagger` without an answer, or after a failure, until one succeeds. The others are cancelled.
   */
  mode?: GroupMode | undefined;
  quorum?: number | undefined;
  /** In milliseconds. Default: 500. */
  stagger?: number | undefined;
  /** How long the whole call may take, in milliseconds. Default: 5 minutes. */
  timeout?: number | undefined;
  /** How long each device may take, in milliseconds. Default: the tool's time, else the gateway's (30,000). */
  deviceTimeout?: number | undefined;
  /** How many devices are called at a time. Default: 64. */
  concurrency?: number | undefined;
  /** Devices that sleep are called, too, with the mode `all`: how long their calls may wait for them, in milliseconds. */
  queue?: number | undefined;
  /** Cancels the call at the gateway. */
  signal?: AbortSignal | undefined;
  /** Names the call, so that it runs once, and goes on without this program. */
  idempotencyKey?: string | undefined;
}

/** What became of the call of one device. */
export interface DeviceResult<T = unknown> {
  readonly callId: string | undefined;
  readonly sessionId: string | undefined;
  readonly deviceId: string | undefined;
  /** `queued`: the call waits for its device, and there is neither a result nor an error. */
  readonly state: CallState;
  /** Of a queued call: its place in the queue, from 1 on, and when it expires. */
  readonly place?: number;
  readonly expiresAt?: Date;
  readonly result?: CallResult<T>;
  /** Why there is no result, or `tool_failed`. */
  readonly error?: FarhandError;
}

/**
 * A call of one tool of many devices. It begins with the first iteration, of which there is one. Leaving the iteration
 * early cancels the calls that run, unless the call has an idempotency key.
 */
export class GroupCall<T = unknown> implements AsyncIterable<DeviceResult<T>> {
  readonly #http: Http;
  readonly #options: GroupOptions;
  readonly #body: GroupRequest;
  #iterated = false;
  #id: string | undefined;
  #end: Pick<GroupAnswer, "state" | "counts" | "error" | "problem"> | undefined;

  /** @internal */
  constructor(http: Http, tool: string, args: object, options: GroupOptions) {
    this.#http = http;
    this.#options = options;
    this.#body = requestOf(tool, args, options);
  }

  /** The id of the parent call, when the gateway has begun it. `Farhand.calls({ parent: id })` lists its calls. */
  get id(): string | undefined {
    return this.#id;
  }

  /** How many devices were called, succeeded, failed …; undefined until the iteration has ended. */
  get counts(): GroupCounts | undefined {
    return this.#end?.counts;
  }

  /** `succeeded`: the call has what its mode asks for. Undefined until the iteration has ended. */
  get state(): GroupAnswer["state"] | undefined {
    return this.#end?.state;
  }

  /** Why the call has not what its mode asks for, if known. */
  get reason(): string | undefined {
    return this.#end?.problem?.detail ?? this.#end?.error;
  }

  /**
   * The results, in the order of their coming. It throws if the call does not begin; the client retries while the
   * gateway says that nothing ran. A connection that breaks later throws `unreachable`: `dispatched` is `unknown`.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<DeviceResult<T>, void, undefined> {
    if (this.#iterated) throw new TypeError("the results of a group call are read once");
    this.#iterated = true;
    const { signal } = this.#options;
    const asking = { body: this.#body, signal, within: longest };
    const open = () => this.#http.stream("POST", "/api/calls", asking);
    const response = await persist(open, mayRetry, deadline(this.#http, this.#options), signal);
    try {
      for await (const { type, data } of events(response)) {
        if (type === "call") this.#id = (data as GroupAnswer).call_id;
        if (type === "result") yield this.#resultOf(data as GroupResult);
        if (type === "done") {
          this.#end = data as GroupAnswer;
          return;
        }
      }
      throw new Error("the stream ended early");
    } catch (cause) {
      signal?.throwIfAborted();
      if (cause instanceof FarhandError) throw cause;
      throw withDispatched(unreachable(cause, this.#http.resolve("/").origin), "unknown", this.#id);
    }
  }

  /** results reads all results. */
  async results(): Promise<DeviceResult<T>[]> {
    const all: DeviceResult<T>[] = [];
    for await (const result of this) all.push(result);
    return all;
  }

  /** cancel cancels the calls that run. The iteration goes on to its end. It needs the `id`. */
  async cancel(): Promise<CallRecord> {
    if (this.#id === undefined) throw new TypeError("the group call has not begun");
    return new PendingCall(this.#http, { call_id: this.#id }).cancel();
  }

  #resultOf(row: GroupResult): DeviceResult<T> {
    const { call_id: callId, session_id: sessionId, device_id: deviceId, state } = row;
    const told = { callId, sessionId, deviceId, state };
    if (row.problem) {
      const { code, detail } = row.problem;
      return { ...told, error: errorOf(detail, { code, callId, dispatched: row.dispatched }) };
    }
    if (row.place !== undefined && row.expires_at !== undefined)
      return { ...told, place: row.place, expiresAt: new Date(row.expires_at) };
    if (row.success === undefined) return told;
    try {
      return { ...told, result: resultOf<T>(row as CallAnswer, this.#http) };
    } catch (error) {
      if (!(error instanceof FarhandError)) throw error;
      return { ...told, error };
    }
  }
}

/** How long a group call may take to begin: it may wait for a person. In milliseconds. */
const longest = 3_600_000;

function requestOf(tool: string, args: object, options: GroupOptions): GroupRequest {
  const { user, labels, devices, sessions, stagger, timeout, deviceTimeout } = options;
  const target = { user_id: user, labels, device_ids: devices, session_ids: sessions };
  const named = Object.values(target).some((value) => value !== undefined);
  const request = {
    tool,
    args: args as Record<string, unknown>,
    target: named ? target : undefined,
    mode: options.mode,
    quorum: options.quorum,
    stagger_ms: stagger && Math.ceil(stagger),
    timeout_ms: timeout && Math.ceil(timeout),
    device_timeout_ms: deviceTimeout && Math.ceil(deviceTimeout),
    concurrency: options.concurrency,
    queue: options.queue === undefined ? undefined : { ttl_ms: Math.ceil(options.queue) },
    idempotency_key: options.idempotencyKey,
  };
  return request as GroupRequest; // members that are undefined are not sent
}
