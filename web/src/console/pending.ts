// The approvals that wait, for the number in the navigation, the list and the notifications.

import { effect, signal } from "@preact/signals";
import type { ApprovalList, ApprovalRow } from "../api/types";
import { words } from "../words/en";
import { listen, onRestart } from "./feed";
import { base } from "./place";
import { client, may } from "./session";

/** undefined: not read yet. */
export const pending = signal<ApprovalRow[] | undefined>(undefined);
export const pendingError = signal<unknown>(undefined);

const pause = 150; // ms, within which events lead to one read

/** watchPending keeps pending up to date until the returned function is called. */
export function watchPending(): () => void {
  if (!may("approver")) return () => {};
  let timer: ReturnType<typeof setTimeout> | undefined;
  const soon = () => {
    timer ??= setTimeout(() => {
      timer = undefined;
      void readPending();
    }, pause);
  };
  void readPending();
  const ends = [
    listen((event) => {
      if (event.type === "approval.requested" || event.type === "approval.decided") soon();
    }),
    onRestart(soon),
    effect(() => announce(pending.value)),
  ];
  return () => {
    clearTimeout(timer);
    ends.forEach((end) => end());
    reads++; // another identity may sign in
    pending.value = announced = undefined;
  };
}

let reads = 0;

export async function readPending(): Promise<void> {
  const mine = ++reads;
  try {
    const list = await client.get<ApprovalList>("/api/approvals");
    if (mine !== reads) return;
    pending.value = list.approvals;
    pendingError.value = undefined;
  } catch (error) {
    if (mine === reads) pendingError.value = error;
  }
}

const setting = "farhand.notify";

/** Whether the browser shows notifications of new requests. */
export const notifying = signal(
  "Notification" in globalThis && Notification.permission === "granted" && localStorage.getItem(setting) === "on",
);

export async function startNotifying(): Promise<NotificationPermission> {
  const permission = await Notification.requestPermission();
  if (permission === "granted") {
    localStorage.setItem(setting, "on");
    notifying.value = true;
  }
  return permission;
}

export function stopNotifying(): void {
  localStorage.removeItem(setting);
  notifying.value = false;
}

let announced: Set<string> | undefined;

/** announce notifies of requests that are new. It shows no arguments: others may see the screen. */
function announce(now: ApprovalRow[] | undefined): void {
  if (!now) return;
  const known = announced;
  announced = new Set(now.map((row) => row.id));
  if (!known || !notifying.peek() || !document.hidden) return;
  for (const row of now) {
    if (known.has(row.id)) continue;
    const shown = new Notification(words.approvals.notify.title(row.tool), {
      body: [row.device_name ?? row.device_id, words.approvals.notify.body].filter(Boolean).join(" · "),
      tag: row.id,
    });
    shown.onclick = () => {
      window.focus();
      location.assign(base + "/approvals/" + encodeURIComponent(row.id));
      shown.close();
    };
  }
}
