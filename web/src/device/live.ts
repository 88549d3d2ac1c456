// What agents do at this moment, and what they have shown.

import type { Call } from "@farhand/device";
import { signal } from "@preact/signals";

/** A call that runs. */
export interface Running {
  id: string;
  tool: string;
  args: Record<string, unknown>;
  at: number;
  progress?: { done: number; total?: number | undefined; message?: string | undefined };
}

export const running = signal<readonly Running[]>([]);

/** Pictures that were taken since the page was opened, by call: addresses of blobs. */
export const previews = signal<ReadonlyMap<string, string>>(new Map());

const mostPreviews = 8;

/** Shows the person what a call has taken. */
export function preview(callId: string, picture: Blob): void {
  const all = new Map(previews.value).set(callId, URL.createObjectURL(picture));
  for (const [oldest, url] of all) {
    if (all.size <= mostPreviews) break;
    URL.revokeObjectURL(url);
    all.delete(oldest);
  }
  previews.value = all;
}

/** What the tool show puts on the page. */
export interface Shown {
  title?: string;
  text?: string;
  /** An address of the page's own: of a blob. */
  picture?: string;
  place?: { latitude: number; longitude: number; label?: string };
}

export const shown = signal<Shown | undefined>(undefined);

/** Puts something on the page instead of what was there. */
export function show(next: Shown | undefined): void {
  if (shown.value?.picture) URL.revokeObjectURL(shown.value.picture);
  shown.value = next;
}

/** Whether the screen is kept on. */
export const awake = signal(false);

export const began = (call: Pick<Call, "callId" | "tool">, args: Record<string, unknown>): void =>
  void (running.value = [...running.value, { id: call.callId, tool: call.tool, args, at: Date.now() }]);

export const progressed = (id: string, progress: NonNullable<Running["progress"]>): void =>
  void (running.value = running.value.map((one) => (one.id === id ? { ...one, progress } : one)));

/** Takes a call off the list, and returns it. */
export function ended(id: string): Running | undefined {
  const one = running.value.find((call) => call.id === id);
  running.value = running.value.filter((call) => call !== one);
  return one;
}
