// The connection of this page to its gateway: pairing, start, stop, and what the page shows of it.

import {
  Device, FarhandError, forgetCredential, indexedDBStore, pair, storedCredential, type State,
} from "@farhand/device";
import { signal } from "@preact/signals";
import { generation, renew } from "./canvas";
import { deviceId, deviceName, note, record, short, stopped } from "./kept";
import * as live from "./live";
import { approve } from "./prompts";
import { subscribe, wakes } from "./pushes";
import { sleepAgain } from "./tools/body";
import { everOffered, offerTo } from "./toolset";
import { words } from "../words/device";

/** Where the page is. The states of the device are those of the SDK. */
export type Phase =
  | { phase: "new" }
  | { phase: "pairing"; code: string; expires: Date }
  /** Another tab of this browser is the device. */
  | { phase: "elsewhere" }
  /** It does not work, and why. */
  | { phase: "failed"; error: FarhandError }
  | State;

export const phase = signal<Phase>({ phase: deviceName.value ? "closed" : "new" });

const gateway = location.origin;
const store = indexedDBStore("farhand device");
const lockName = "farhand device page"; // the SDK has one of its own, by the name of the store

let device: Device | undefined;
let trying: AbortController | undefined;
let leaving: Promise<unknown> = Promise.resolve(); // of the last connection

/** Connects, and pairs before if the gateway requires it. It never rejects. */
export async function start(steal = false): Promise<void> {
  if (trying) return;
  const control = (trying = new AbortController());
  stopped.value = false;
  phase.value = { phase: "connecting" };
  try {
    await leaving;
    if (!(await alone(control.signal, steal))) return end({ phase: "elsewhere" });
    await admitted(control.signal);
    control.signal.throwIfAborted();
    device ??= make();
    void device.start().catch(() => {}); // its state says so
  } catch (error) {
    if (control.signal.aborted) return;
    const known = error instanceof FarhandError ? error : new FarhandError("internal", String(error));
    end({ phase: "failed", error: known });
  }
}

/** Ends what agents do here, disconnects, and stays so until start, also after a reload. */
export async function stop(): Promise<void> {
  stopped.value = true;
  note(words.log.stopped);
  await leave({ phase: "closed" });
}

/** Tells the gateway how to wake this page, after the person has allowed it. */
export const askAgain = async (): Promise<void> => device?.registerWake();

/** Pairs as a new device, since the gateway does not know the old credential. */
export async function pairAgain(): Promise<void> {
  await leave({ phase: "closed" });
  await forgetCredential(store);
  device = undefined;
  await start();
}

async function leave(next: Phase): Promise<void> {
  const stopping = device?.stop();
  end(next);
  if (generation.value > 0) renew(); // code of an agent may run in it
  await (leaving = Promise.all([stopping, sleepAgain()]));
}

function end(next: Phase): void {
  trying?.abort();
  trying = undefined;
  phase.value = next;
}

/** Makes this tab the only one that is the device. Insecure pages have no locks; the gateway keeps one of them. */
function alone(signal: AbortSignal, steal: boolean): Promise<boolean> {
  if (!navigator.locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    const held = new Promise<void>((release) => signal.addEventListener("abort", () => release()));
    navigator.locks
      .request(lockName, steal ? { steal } : { ifAvailable: true }, (lock) => {
        resolve(lock !== null);
        return lock ? held : undefined;
      })
      .catch(() => void leave({ phase: "elsewhere" })); // another tab took it
  });
}

/** Resolves when the gateway will accept this browser: with its credential, or because it accepts everybody. */
async function admitted(signal: AbortSignal): Promise<void> {
  if (await storedCredential(store)) return;
  const me = await fetch("/api/me", { signal, credentials: "omit" }).catch(() => {
    signal.throwIfAborted();
    throw new FarhandError("unreachable", words.offlineText);
  });
  if (me.ok) return;
  await pair(gateway, {
    deviceId, deviceName: deviceName.value, tools: everOffered(), store, signal,
    show: (code, expires) => (phase.value = { phase: "pairing", code, expires }),
  });
}

function make(): Device {
  const made = new Device(gateway, {
    store, deviceId, name: deviceName.value, deviceName: deviceName.value, platform: "web",
    approver: (question, { signal }) => approve(question, signal, words.prompts.decisions),
    wake: subscribe,
  });
  offerTo(made);
  made.on("state", (state) => became(state));
  made.on("call", ({ id, tool, args }) => live.began({ callId: id, tool }, args));
  made.on("progress", ({ id, progress, total, message }) =>
    live.progressed(id, { done: progress, total, message }));
  made.on("wake", ({ kind }) => (wakes.value = kind !== ""));
  made.on("answered", ({ id, tool, error }) => {
    const call = live.ended(id);
    record({
      id, at: call?.at ?? Date.now(), tool, text: call ? summary(call.args) : "",
      outcome: error === undefined ? "done" : "failed", ...(error !== undefined && { error }),
    });
  });
  return made;
}

function became(state: State): void {
  const before = phase.value.phase;
  if (before === "elsewhere" || (stopped.value && state.phase !== "closed")) return;
  if (state.phase === "connected" && before !== "connected") {
    note(state.resumed ? words.log.resumed : words.log.connected);
  }
  if (state.phase === "waiting" && before === "connected") note(words.log.lost(state.error.message));
  if (state.phase === "refused") {
    note(words.log.refused(state.error.message));
    return end(state);
  }
  phase.value = state;
}

const mostValue = 120; // characters of one argument in the log

/** The arguments in one line, without the names where there is only one. Pictures are left out. */
function summary(args: Record<string, unknown>): string {
  const values = Object.entries(args)
    .filter(([, value]) => typeof value !== "string" || !value.startsWith("data:"))
    .map(([name, value]): [string, string] =>
      [name, short(typeof value === "string" ? value : JSON.stringify(value), mostValue)]);
  return values.length === 1 ? values[0]![1] : values.map(([name, value]) => `${name}: ${value}`).join(", ");
}
