// The event stream of the fleet. The console opens it once, whatever views are shown.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { follow } from "../api/events";
import type { Activity } from "../api/types";
import { client } from "./session";

type Listener = (event: Activity) => void;

const listeners = new Set<Listener>();
const restarts = new Set<() => void>();

/** Whether the stream is open. undefined: it was not open yet. */
export const live = signal<boolean | undefined>(undefined);

/** listen calls listener for each event, until the returned function is called. */
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** onRestart calls again when events may have been missed: everything must be read once more. */
export function onRestart(again: () => void): () => void {
  restarts.add(again);
  return () => restarts.delete(again);
}

/** useEvents listens while a component is shown. */
export function useEvents(listener: Listener, restarted?: () => void): void {
  const latest = useRef({ listener, restarted });
  latest.current = { listener, restarted };
  useEffect(() => {
    const ends = [listen((event) => latest.current.listener(event)), onRestart(() => latest.current.restarted?.())];
    return () => ends.forEach((end) => end());
  }, []);
}

/** run follows the stream until the signal is aborted. */
export async function run(abort: AbortSignal): Promise<void> {
  try {
    const events = follow(client, "/api/events", {
      signal: abort,
      connected: (is) => (live.value = is),
      restarted: () => restarts.forEach((again) => again()),
    });
    for await (const event of events) listeners.forEach((listener) => listener(event.data as Activity));
  } finally {
    live.value = false;
  }
}

/** onceOpen resolves when the stream is open, or after a second without one. */
export function onceOpen(): Promise<void> {
  if (live.value) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      stop();
      resolve();
    };
    const timer = setTimeout(end, 1000);
    const stop = live.subscribe((is) => is && queueMicrotask(end));
  });
}
