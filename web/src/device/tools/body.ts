// Small things that a phone can do.

import type { Call } from "@farhand/device";
import { awake } from "../live";
import { lacks, mustBeSeen, using, without } from "../powers";
import { ask } from "../prompts";
import { words } from "../../words/device";
import { pageTool, personTimeout } from "./tool";

const mostClipboard = 256 << 10; // characters

/** Browsers read and write the clipboard only for a page with the focus; some only within a tap. */
async function touching<T>(name: "clipboard_read" | "clipboard_write", detail: string, call: Call,
  run: () => Promise<T>): Promise<T> {
  if (document.hasFocus() && !document.hidden) {
    try {
      return await run();
    } catch (error) {
      if (!(error instanceof DOMException) || error.name !== "NotAllowedError") throw error;
      const asked = { name: "clipboard-read" as PermissionName };
      const state = await navigator.permissions?.query(asked).catch(() => undefined);
      if (name === "clipboard_read" && state?.state === "denied") {
        return using("clipboard-read", () => Promise.reject(error));
      }
    }
  }
  const { question, action } = words.tools[name]!;
  return (await ask(call, { text: question!, detail, choices: [{ label: action!, look: "first", run }] })) as T;
}

async function read(_: object, call: Call): Promise<object> {
  const text = await touching("clipboard_read", "", call, () => navigator.clipboard.readText());
  return { text: text.slice(0, mostClipboard), cut: text.length > mostClipboard };
}

const write = ({ text }: { text: string }, call: Call): Promise<string> =>
  touching("clipboard_write", text, call, () => navigator.clipboard.writeText(text).then(() => "copied"));

function vibrate({ pattern = [300] }: { pattern?: number[] }): string {
  mustBeSeen("vibration");
  if (!navigator.vibrate(pattern)) {
    throw new Error("the browser does not vibrate before the person has tapped the page");
  }
  return "vibrated";
}

let lock: WakeLockSentinel | undefined;

async function hold(): Promise<void> {
  lock = await navigator.wakeLock.request("screen");
  const held = lock;
  held.addEventListener("release", () => held === lock && (lock = undefined));
}

/** Lets the screen go dark again. */
export async function sleepAgain(): Promise<void> {
  awake.value = false;
  await lock?.release();
}

async function wakeLock({ on }: { on: boolean }): Promise<string> {
  if (!on) {
    await sleepAgain();
    return "the screen may go dark";
  }
  mustBeSeen("keeping the screen on");
  await hold();
  awake.value = true;
  return "the screen stays on while the page is visible";
}

/** Browsers let go when the page is hidden; the person gets it back with the page. */
export function keepAwake(): void {
  document.addEventListener("visibilitychange", () => {
    if (awake.value && !document.hidden && !lock) void hold().catch(() => (awake.value = false));
  });
}

export const bodyTools = [
  pageTool({
    name: "clipboard_read", description: "Read the text on the clipboard of this device.", effect: "reads",
    confirm: true,
    timeout: personTimeout,
  }, () => without("clipboard-read", Boolean(navigator.clipboard?.readText)), read),
  pageTool({
    name: "clipboard_write", description: "Put a text on the clipboard of this device.",
    properties: { text: { type: "string", maxLength: mostClipboard } }, required: ["text"], effect: "changes",
    timeout: personTimeout,
  }, () => lacks(Boolean(navigator.clipboard?.writeText), true), write),
  pageTool({
    name: "vibrate", description: "Let this device vibrate.",
    properties: {
      pattern: {
        type: "array", minItems: 1, maxItems: 20, items: { type: "integer", minimum: 0, maximum: 2000 },
        description: "milliseconds on, off, on, …; default: [300]",
      },
    },
    effect: "changes",
  }, () => lacks("vibrate" in navigator), vibrate),
  pageTool({
    name: "wake_lock", description: "Keep the screen of this device on, or let it go dark again.",
    properties: { on: { type: "boolean" } }, required: ["on"], effect: "changes",
  }, () => lacks("wakeLock" in navigator, true), wakeLock),
];
