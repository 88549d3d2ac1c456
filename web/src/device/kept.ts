// What this browser remembers of the page besides what the SDK keeps in IndexedDB: the person's choices and the log.
// None of it is secret.

import { effect, signal } from "@preact/signals";

const prefix = "farhand device ";

function read<T>(key: string, otherwise: T): T {
  try {
    return (JSON.parse(localStorage.getItem(prefix + key) ?? "null") as T | null) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function write(key: string, value: unknown): void {
  try {
    localStorage.setItem(prefix + key, JSON.stringify(value));
  } catch {
    // The storage is full or forbidden: the page works, and forgets.
  }
}

/** A signal whose value outlives the page. */
function kept<T>(key: string, otherwise: T) {
  const value = signal<T>(read(key, otherwise));
  effect(() => write(key, value.value));
  return value;
}

/** A name for people. Empty: none was chosen yet. */
export const deviceName = kept("name", "");
/** Names of the tools that the person switched off. */
export const switchedOff = kept<string[]>("off", []);
/** The person pressed Stop, or has not pressed Start yet. */
export const stopped = kept("stopped", true);

const alphabet = "abcdefghjkmnpqrstuvwxyz23456789";

/** Identifies this browser to the gateway. Made once. */
export const deviceId = kept(
  "id",
  "browser-" + [...crypto.getRandomValues(new Uint8Array(10))].map((byte) => alphabet[byte % alphabet.length]).join(""),
).value;

export type Outcome = "done" | "failed" | "note";

/** One line of the log. */
export interface Entry {
  id: string;
  at: number;
  tool?: string;
  /** What the agent asked for, or what happened. */
  text: string;
  outcome: Outcome;
  /** Why it failed. */
  error?: string;
}

const mostEntries = 100;
const mostText = 300; // characters of one text

export const log = kept<Entry[]>("log", []);

/** Texts of agents can be long, and a log must not be. */
export const short = (text: string, most = mostText): string =>
  text.length > most ? text.slice(0, most - 1).trimEnd() + "…" : text;

export function record(entry: Entry): void {
  const error = entry.error && short(entry.error);
  log.value = [{ ...entry, text: short(entry.text), ...(error && { error }) }, ...log.value].slice(0, mostEntries);
}

let notes = 0;

/** Writes down what happened to the page itself. A tap takes the place of the one before, so that taps fill no log. */
export function note(text: string, kind: "note" | "tap" = "note"): void {
  if (kind === "tap" && log.value[0]?.id.startsWith(kind)) log.value = log.value.slice(1);
  record({ id: `${kind}-${Date.now()}-${++notes}`, at: Date.now(), text, outcome: "note" });
}

/** Empties the log. */
export const forget = (): void => void (log.value = []);
