// The frames of docs/protocol.md, as far as a device reads them.

/** Limits are what a gateway announces with session_start. */
export interface Limits {
  frame_bytes: number;
  output_bytes: number;
  frames_per_second: number;
  frame_burst: number;
}

/** Of a gateway that announces nothing. */
export const defaultLimits: Limits = {
  frame_bytes: 1 << 20,
  output_bytes: 1 << 20,
  frames_per_second: 500,
  frame_burst: 1000,
};

/** Returns the limits of a frame. What is missing or no positive number keeps its default. */
export function limitsOf(announced: unknown): Limits {
  const limits = { ...defaultLimits };
  for (const key of Object.keys(limits) as (keyof Limits)[]) {
    const value = (announced as Record<string, unknown> | null | undefined)?.[key];
    if (typeof value === "number" && value > 0) limits[key] = value;
  }
  return limits;
}

/** Rejection names a tool that the gateway does not offer, and why. */
export interface Rejection {
  name: string;
  reason: string;
}

/** Returns the rejections of a frame. Entries without a name are left out, whatever else they are. */
export const rejections = (value: unknown): Rejection[] =>
  list<Partial<Record<keyof Rejection, unknown>> | null>(value)
    .map((one) => ({ name: text(one?.name), reason: text(one?.reason) }))
    .filter((one) => one.name !== "");

/** Received is a frame of the gateway. Its type says which fields it has. */
export interface Received {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** Returns the frame of a message, undefined if it is none. */
export function parse(message: string): Received | undefined {
  try {
    const frame: unknown = JSON.parse(message);
    if (typeof frame === "object" && frame !== null && typeof (frame as Received).type === "string") {
      return frame as Received;
    }
  } catch {
    // not JSON
  }
  return undefined;
}

/** The readers of fields give a default for what is missing or has another type. */
export const text = (value: unknown): string => (typeof value === "string" ? value : "");
export const number = (value: unknown, otherwise = 0): number =>
  typeof value === "number" && Number.isFinite(value) ? value : otherwise;
export const list = <T>(value: unknown): T[] => (Array.isArray(value) ? (value as T[]) : []);
/** A time to wait, at least nothing and at most a day: timers take no more than 24 days. */
export const wait = (value: unknown, otherwise = 0): number =>
  Math.min(Math.max(number(value, otherwise), 0), 24 * 60 * 60 * 1000);

const utf8 = new TextEncoder();

/** Returns the length of a text in bytes. */
export const bytes = (value: string): number => utf8.encode(value).length;

/** Returns the beginning of a text that has at most n bytes, whole characters only. */
export function cut(value: string, n: number): string {
  const into = new Uint8Array(Math.max(0, Math.floor(n)));
  return value.slice(0, utf8.encodeInto(value, into).read);
}
