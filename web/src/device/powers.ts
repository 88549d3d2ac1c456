// What this browser lets the page do, and the plain words for what it does not.

import { signal } from "@preact/signals";
import { words } from "../words/device";

const text = words.missing;

export type Power = "camera" | "microphone" | "geolocation" | "notifications" | "clipboard-read";

/** What the person has decided, as far as the browser tells. Without an entry it asks when the power is first used. */
const decided = signal<Partial<Record<Power, PermissionState>>>({});

const powers: readonly Power[] = ["camera", "microphone", "geolocation", "notifications", "clipboard-read"];

/** Follows the decisions. They change while the page is open, in the browser's own settings. */
export async function followPowers(): Promise<void> {
  for (const power of powers) {
    try {
      const status = await navigator.permissions.query({ name: power as PermissionName });
      const take = () => (decided.value = { ...decided.value, [power]: status.state });
      status.addEventListener("change", take);
      take();
    } catch {
      // This browser does not tell about this one.
    }
  }
}

/** The browser refused a power just now. Some browsers tell only so. */
export const refused = (power: Power): void => void (decided.value = { ...decided.value, [power]: "denied" });

export const granted = (power: Power): boolean => decided.value[power] === "granted";

/** Why a power cannot be used; undefined: it can. */
export function without(power: Power, there: boolean): string | undefined {
  if (!isSecureContext) return text.insecure;
  if (!there) return text.unknown;
  return decided.value[power] === "denied" ? text.denied : undefined;
}

/** Why something that needs no permission cannot be used. */
export function lacks(there: boolean, secure = false): string | undefined {
  if (secure && !isSecureContext) return text.insecure;
  return there ? undefined : text.unknown;
}

/** Runs something that may ask the person. A refusal becomes an error that says what to do. */
export async function using<T>(power: Power, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    if (!(error instanceof DOMException) || error.name !== "NotAllowedError") throw error;
    const state = await navigator.permissions?.query({ name: power as PermissionName }).catch(() => undefined);
    if (state?.state !== "prompt") refused(power);
    throw new Error(`the person or the browser did not allow ${power}; ` +
      "the person can change it in the browser's settings");
  }
}

/** The error of a tool that needs the person to look at the page. */
export function mustBeSeen(what: string): void {
  if (document.hidden) {
    throw new Error(`${what} needs the page in the foreground, and it is in the background: ask the person to open it`);
  }
}
