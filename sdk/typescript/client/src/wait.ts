import { BusyError, FarhandError, UnavailableError, UnreachableError } from "./errors.js";

const least = 200;
const longest = 5_000;

/** now is a monotonic clock, in milliseconds. */
export const now = (): number => performance.now();

/** sleep resolves after a time. It rejects with the signal's reason when that is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const abort = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** before returns what a promise does, unless the signal is aborted first: then it rejects with the signal's reason. */
export function before<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** passing reports whether a request that changes nothing may succeed later. */
export function passing(error: FarhandError): boolean {
  return error instanceof UnreachableError || error instanceof BusyError || error instanceof UnavailableError;
}

/** Backoff is the pause between attempts: it grows, is random, and is never shorter than the gateway's Retry-After. */
export class Backoff {
  #pause = least;

  /** next returns the next pause in milliseconds. */
  next(retryAfter = 0): number {
    const pause = retryAfter + this.#pause * (0.5 + Math.random() / 2);
    this.#pause = Math.min(this.#pause * 2, longest);
    return pause;
  }

  reset(): void {
    this.#pause = least;
  }
}

/** Retries bounds for how long an operation may fail. The time begins with the first failure after a success. */
export class Retries {
  readonly #backoff = new Backoff();
  #until: number | undefined;

  constructor(private readonly ms: number) {}

  /** connected notes that the gateway answers. */
  connected(): void {
    this.#until = undefined;
  }

  /** succeeded also makes the next pause short. */
  succeeded(): void {
    this.connected();
    this.#backoff.reset();
  }

  /** wait sleeps before the next attempt. It throws the error if none may help, or if it would begin too late. */
  async wait(error: unknown, signal: AbortSignal | undefined): Promise<void> {
    if (!(error instanceof FarhandError) || !passing(error)) throw error;
    this.#until ??= now() + this.ms;
    const pause = this.#backoff.next(error.retryAfter);
    if (now() + pause > this.#until) throw error;
    await sleep(pause, signal);
  }

  /** pause sleeps before an attempt that follows no failure. */
  pause(signal: AbortSignal | undefined): Promise<void> {
    return sleep(this.#backoff.next(), signal);
  }
}

/**
 * persist makes attempts until one succeeds, fails with an error that `may` does not accept, or the next one would
 * begin after `until` (of `now`). Then it throws the last error.
 */
export async function persist<T>(
  attempt: () => Promise<T>,
  may: (error: FarhandError) => boolean,
  until: number,
  signal?: AbortSignal,
): Promise<T> {
  for (const backoff = new Backoff(); ;) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof FarhandError) || !may(error)) throw error;
      const pause = backoff.next(error.retryAfter);
      if (now() + pause > until) throw error;
      await sleep(pause, signal);
    }
  }
}
