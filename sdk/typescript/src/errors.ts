/**
 * The error of a connection, a pairing or a conversation. Codes of the SDK: `unreachable` (no gateway answers),
 * `disconnected`, `silent` (a connection without a sign of life), `stopped`, `rejected` (a pairing), `busy`. All others
 * are the gateway's: of its problem documents, its error frames, and the reasons of its close frames.
 */
export class FarhandError extends Error {
  override readonly name: string = "FarhandError";

  constructor(
    readonly code: string,
    message: string,
    /** Status of the HTTP answer; 0: there was none. */
    readonly status = 0,
    /** When to try again at the earliest, in ms; 0: the gateway did not say. */
    readonly retryAfter = 0,
  ) {
    super(message);
  }
}

/** Returns the text of whatever was thrown. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message || thrown.name : String(thrown);
}

export const asError = (thrown: unknown): FarhandError =>
  thrown instanceof FarhandError ? thrown : new FarhandError("internal", messageOf(thrown));
