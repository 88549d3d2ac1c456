import { cancelling, PendingCall } from "./call.js";
import {
  CancelledError,
  FarhandError,
  NotConnectedError,
  TimeoutError,
  UnreachableError,
  withDispatched,
} from "./errors.js";
import { type Asking, type Http, pathOf } from "./http.js";
import { type CallResult, resultOf } from "./result.js";
import type { CallAccepted, CallAnswer, CallRequest, Dispatched } from "./types.js";
import { now, persist } from "./wait.js";

/** Whose tool: all members must match. Without any, exactly one session may offer the tool. */
export interface TargetOptions {
  session?: string | undefined;
  device?: string | undefined;
  /** The user that the devices' credentials name. */
  user?: string | undefined;
  labels?: Record<string, string> | undefined;
}

/** How a tool is called. */
export interface StartOptions extends TargetOptions {
  /** Which session, if several match. Default: the error `ambiguous_target`. */
  select?: "any" | "newest" | undefined;
  /**
   * How long the tool may take, and how long the client tries to begin the call, in milliseconds. Default: the tool's
   * time, else the gateway's (30,000), and the client's `retryFor`. A call that needs an approval waits for it beyond
   * that.
   */
  timeout?: number | undefined;
  /** Cancels the call at the gateway. */
  signal?: AbortSignal | undefined;
  /**
   * How long the call may wait for a device that is known and not connected, in milliseconds. The target must name one
   * device. `timeout` begins when the device gets the call.
   */
  queue?: number | undefined;
  /** Names the call, so that it runs once however often it is requested. Default: a random key. */
  idempotencyKey?: string | undefined;
}

export interface CallOptions extends Omit<StartOptions, "idempotencyKey"> {
  /**
   * As for `start`. False: the call is one request, without a record that outlives it, and cannot be queued. It is
   * cheaper, and after a broken connection the client cannot know what became of it (`dispatched` is `unknown`).
   */
  idempotencyKey?: string | false | undefined;
}

/** begin has the gateway begin a call that has a record. */
export async function begin<T>(
  http: Http,
  tool: string,
  args: object,
  options: StartOptions,
  until = deadline(http, options),
): Promise<PendingCall<T>> {
  const key = options.idempotencyKey ?? randomKey();
  const body: CallRequest = { ...requestOf(args, options), mode: "async", idempotency_key: key };
  const attempts = new Attempts(http, tool, body, options, until);
  const { signal } = options;
  // Without its id a call cannot be cancelled, so an aborted signal leaves the request some time to return it.
  const hurry = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const abort = () => (timer = setTimeout(() => hurry.abort(signal!.reason), cancelling));
  signal?.addEventListener("abort", abort, { once: true });
  try {
    const accepted = await attempts.make<CallAccepted>(hurry.signal);
    return new PendingCall<T>(http, accepted, signal);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

/** run begins a call and waits for its end. A call that reached no device is begun again, with the same key. */
export async function run<T>(http: Http, tool: string, args: object, options: StartOptions): Promise<CallResult<T>> {
  const until = deadline(http, options);
  const keyed = { ...options, idempotencyKey: options.idempotencyKey ?? randomKey() };
  const { signal, queue } = options;
  // A queued call that ends without a device has waited long enough.
  const may = queue === undefined ? mayRetry : () => false;
  try {
    const once = async () => (await begin<T>(http, tool, args, keyed, until)).result();
    return await persist(once, may, until, signal);
  } catch (cause) {
    if (!signal?.aborted || cause !== signal.reason) throw cause;
    // In a pause before the next try: the last one reached no device.
    throw new CancelledError("The call was not made.", { code: "cancelled", dispatched: "no", cause });
  }
}

/** callOnce makes a call as one request. A broken connection cancels it. */
export async function callOnce<T>(
  http: Http,
  tool: string,
  args: object,
  options: Omit<CallOptions, "idempotencyKey">,
): Promise<CallResult<T>> {
  const attempts = new Attempts(http, tool, requestOf(args, options), options, deadline(http, options));
  return resultOf<T>(await attempts.make<CallAnswer>(options.signal), http);
}

/** How much longer than its own timeout a synchronous call may take: it may wait for a person. In milliseconds. */
const longest = 3_600_000;

/** deadline returns when the client no longer tries to begin a call. */
export function deadline(http: Http, options: Pick<StartOptions, "timeout">): number {
  return now() + (options.timeout ?? http.retryFor);
}

/** randomKey returns a key that no other call has. Pages without HTTPS have no crypto.randomUUID. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
}

/** mayRetry reports whether the gateway says that nothing ran, and that a retry may help. */
export function mayRetry(error: FarhandError): boolean {
  if (!error.retryable) return false;
  // Without a time to come back, an offline device stays offline, and a call that was too slow stays too slow.
  return error.retryAfter !== undefined || !(error instanceof NotConnectedError || error instanceof TimeoutError);
}

/** Attempts are the requests for one call. */
class Attempts {
  /** A request is without an answer. So the call may have begun, whatever later answers say of their own request. */
  #doubt = false;
  readonly #keyed: boolean;

  constructor(
    private readonly http: Http,
    private readonly tool: string,
    private readonly body: CallRequest,
    private readonly options: Pick<StartOptions, "signal">,
    private readonly until: number,
  ) {
    this.#keyed = body.idempotency_key !== undefined;
  }

  /** make repeats the request while the gateway says that nothing ran, and one with a key also without an answer. */
  async make<T>(signal: AbortSignal | undefined): Promise<T> {
    const may = (error: FarhandError) => mayRetry(error) || (this.#keyed && error instanceof UnreachableError);
    try {
      this.options.signal?.throwIfAborted();
      return await persist(() => this.#post<T>(signal), may, this.until, this.options.signal);
    } catch (error) {
      if (this.options.signal?.aborted && error === this.options.signal.reason) throw this.#cancelled(error);
      throw error instanceof FarhandError ? withDispatched(error, this.#dispatched(error)) : error;
    }
  }

  async #post<T>(signal: AbortSignal | undefined): Promise<T> {
    const asking: Asking = { body: this.body, signal, ...(this.#keyed ? {} : { within: longest }) };
    const before = this.#doubt;
    this.#doubt = true;
    try {
      return await this.http.ask<T>("POST", pathOf("api", "tools", this.tool, "call"), asking);
    } catch (error) {
      if (error instanceof FarhandError && !(error instanceof UnreachableError)) this.#doubt = before;
      throw error;
    }
  }

  #dispatched(error: FarhandError): Dispatched {
    if (error.dispatched === "yes") return "yes";
    if (this.#doubt) return "unknown";
    // Errors without the member come before a call begins. Those of the gateway's own faults may come later.
    return error.dispatched ?? (error.status < 500 ? "no" : "unknown");
  }

  /** The signal was aborted in a pause between requests, or a request did not return the call's id in time. */
  #cancelled(cause: unknown): CancelledError {
    return new CancelledError(
      this.#doubt ? "The call was given up: whether the gateway has it is not known." : "The call was not made.",
      { code: "cancelled", dispatched: this.#doubt ? "unknown" : "no", cause },
    );
  }
}

function requestOf(args: object, options: StartOptions | CallOptions): CallRequest {
  const { session, device, user, labels, select, timeout, queue } = options;
  const target = {
    ...(session === undefined ? {} : { session_id: session }),
    ...(device === undefined ? {} : { device_id: device }),
    ...(user === undefined ? {} : { user_id: user }),
    ...(labels === undefined ? {} : { labels }),
  };
  return {
    args: args as Record<string, unknown>,
    ...(Object.keys(target).length === 0 ? {} : { target }),
    ...(select === undefined ? {} : { select }),
    ...(timeout === undefined ? {} : { timeout_ms: Math.ceil(timeout) }),
    ...(queue === undefined ? {} : { queue: { ttl_ms: Math.ceil(queue) } }),
  };
}
