import type { FarhandError } from "./errors.js";
import type { Rejection } from "./frames.js";

/** State of the connection. */
export type State =
  /** Not started, or stopped. */
  | { readonly phase: "closed" }
  | { readonly phase: "connecting" }
  /** The gateway has answered the registration. It comes again after each change of the offered tools. */
  | {
      readonly phase: "connected";
      readonly sessionId: string;
      /** The session existed before. */
      readonly resumed: boolean;
      /** How many tools the session offers. */
      readonly registered: number;
      /** Tools that the gateway does not offer. */
      readonly rejected: readonly Rejection[];
    }
  /** The pod stops. The device finishes its calls, and then connects to another pod. */
  | { readonly phase: "draining"; readonly retryAt: Date }
  /** Waiting for the next attempt. The error says why. */
  | { readonly phase: "waiting"; readonly retryAt: Date; readonly error: FarhandError }
  /** The device does not connect again: it would not help. `error.code` is the reason (docs/protocol.md). */
  | { readonly phase: "refused"; readonly error: FarhandError };

const stableAfter = 5_000; // ms a connection must last for the next failure to count as the first
const rivalGoneAfter = 5 * 60_000; // ms for a rival to count as gone

/** Backoff computes the delays before connections, with full jitter, so that devices do not come back together. */
export class Backoff {
  #ceiling = 0;
  #rival = 0;

  constructor(
    private readonly least: number,
    private readonly most: number,
  ) {}

  lasted(ms: number, restart: boolean): void {
    if (ms >= stableAfter || restart) this.#ceiling = 0; // a stopping pod sends its devices away, which is no failure
    if (ms >= rivalGoneAfter) this.#rival = 0;
  }

  /** Returns the delay after a failure. */
  next(): number {
    const ceiling = this.#ceiling || this.least;
    this.#ceiling = Math.min(2 * ceiling, this.most);
    return Math.random() * ceiling;
  }

  /**
   * Returns the delay before a connection that takes the session from another one. Half of it is not random, so that
   * two programs with the same session do not take it from one another all the time.
   */
  nextRival(): number {
    const ceiling = this.#rival || this.least;
    this.#rival = Math.min(2 * ceiling, this.most);
    return (ceiling / 2) * (1 + Math.random());
  }
}
