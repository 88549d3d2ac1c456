import type { Limits } from "./frames.js";

/** Pace limits the frames that the gateway did not ask for, to two fifths of what it takes. */
export class Pace {
  #next = 0; // when the next frame would be due at an even pace, in ms

  constructor(private readonly limits: () => Limits) {}

  /** Whether a frame may be sent now. If so, it counts. */
  try(): boolean {
    return this.#reserve(true) <= 0;
  }

  /** Waits until a frame may be sent. */
  async wait(signal?: AbortSignal): Promise<void> {
    const ms = this.#reserve(false);
    if (ms > 0) await sleep(ms, signal);
    signal?.throwIfAborted();
  }

  #reserve(onlyNow: boolean): number {
    const { frames_per_second, frame_burst } = this.limits();
    const interval = 2500 / frames_per_second;
    const burst = Math.max(1, Math.floor(frame_burst / 5));
    const now = performance.now();
    const next = Math.max(this.#next, now);
    const ms = next - now - (burst - 1) * interval;
    if (ms <= 0 || !onlyNow) this.#next = next + interval;
    return ms;
  }
}

/** Resolves after a time, or rejects when the signal ends. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error);
    const end = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    signal?.addEventListener("abort", end, { once: true });
  });
}
