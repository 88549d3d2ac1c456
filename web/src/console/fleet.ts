// All sessions that the console knows: one listing, and then the event stream.

import { signal } from "@preact/signals";
import { path, Problem, type Query } from "../api/client";
import type { Activity, Session, SessionRow } from "../api/types";
import { listen, onceOpen, onRestart } from "./feed";
import { client } from "./session";

const showEvery = 250; // ms between two changes of what is shown
const most = 50_000; // sessions that are kept
const mostSleeping = 1000; // devices that are listed
const mostGone = 500; // of them, those that are no longer listed
const readAlone = 20; // changed sessions that are read one by one; more are listed again
const listEvery = 5_000; // ms between two listings

/** Changes when a session does. Its value is the newest list, in order of connecting. */
export const sessions = signal<SessionRow[]>([]);
export const listing = signal<{ loading: boolean; error?: unknown }>({ loading: true });

let known = new Map<string, SessionRow>();
let changed = new Set<string>();
let showing: ReturnType<typeof setTimeout> | undefined;
let reading: ReturnType<typeof setTimeout> | undefined;
let lastListing = 0;

function show(): void {
  showing ??= setTimeout(() => {
    showing = undefined;
    sessions.value = [...known.values()];
  }, showEvery);
}

async function list(abort: AbortSignal): Promise<void> {
  lastListing = Date.now();
  listing.value = { loading: true };
  changed.clear();
  const found = new Map<string, SessionRow>();
  try {
    for await (const page of client.pages<SessionRow>("/api/sessions", "sessions", { signal: abort })) {
      for (const row of page) found.set(row.session_id, row);
      if (known.size < found.size) {
        known = new Map(found);
        show();
      }
      if (found.size >= most) break;
    }
    known = found;
    show();
    listing.value = { loading: false };
    await listSleeping({}, abort);
  } catch (error) {
    if (!abort.aborted) listing.value = { loading: false, error };
  }
}

/** listSleeping adds the devices that sleep. */
async function listSleeping(query: Query, abort: AbortSignal): Promise<void> {
  let left = mostSleeping;
  const asking = { signal: abort, query: { ...query, presence: "sleeping" } };
  for await (const page of client.pages<SessionRow>("/api/sessions", "sessions", asking)) {
    for (const row of page) {
      const had = known.get(row.session_id);
      if (had?.connected) continue;
      known.set(row.session_id, { ...had, ...row, message_count: had?.message_count ?? row.message_count });
    }
    show();
    if ((left -= page.length) <= 0) break;
  }
}

/** awake removes what a device was while it slept. */
function awake({ session_id: id, device_id: device, user_id: user }: Session): void {
  if (!device) return;
  for (const row of known.values()) {
    const same = row.device_id === device && row.user_id === user && row.session_id !== id;
    if (same && row.presence === "sleeping") known.delete(row.session_id);
  }
}

async function readChanged(abort: AbortSignal): Promise<void> {
  if (changed.size > readAlone) {
    if (Date.now() - lastListing >= listEvery) return list(abort);
    return readSoon(abort, listEvery);
  }
  const ids = [...changed];
  changed.clear();
  for (const id of ids) {
    try {
      const session = await client.get<Session>(path("api", "sessions", id), { signal: abort });
      known.set(id, { ...session, tools: session.tools.map((tool) => tool.name) });
      awake(session);
    } catch (error) {
      if (abort.aborted) return;
      const status = error instanceof Problem ? error.status : 0;
      if (status === 404) known.delete(id);
      else if (status === 409) await asleep(id, abort);
      else changed.add(id);
    }
  }
  show();
  if (changed.size > 0) readSoon(abort, listEvery);
}

/** asleep takes the connection from a session's row, and reads what the gateway remembers of its device. */
async function asleep(id: string, abort: AbortSignal): Promise<void> {
  leave(id, new Date().toISOString());
  const device = known.get(id)?.device_id;
  if (device) await listSleeping({ device_id: device }, abort).catch(() => {});
}

function readSoon(abort: AbortSignal, wait: number): void {
  reading ??= setTimeout(() => {
    reading = undefined;
    if (!abort.aborted) void readChanged(abort);
  }, wait);
}

function leave(id: string, at: string): void {
  const row = known.get(id);
  if (!row) return;
  const { pod: _pod, generation: _generation, round_trip_ms: _trip, connected_at: _since, ...rest } = row;
  known.set(id, { ...rest, connected: false, online: false, tools: [], last_activity: at });
  const gone = [...known.values()].filter((other) => !other.connected && other.message_count === 0);
  for (const old of gone.slice(0, Math.max(0, gone.length - mostGone))) known.delete(old.session_id);
  show();
}

function hear(event: Activity, abort: AbortSignal): void {
  const id = event.session_id;
  if (event.type === "pod.died") {
    for (const row of known.values()) if (row.pod === event.reason) changed.add(row.session_id);
    readSoon(abort, showEvery);
  }
  if (!id) return;
  switch (event.type) {
    case "session.disconnected":
      changed.delete(id);
      leave(id, event.at);
      if (event.device_id && changed.size < readAlone) {
        changed.add(id);
        readSoon(abort, showEvery);
      }
      break;
    case "session.tools": {
      const row = known.get(id);
      if (row && event.tools) {
        known.set(id, { ...row, tools: event.tools });
        show();
        break;
      }
      changed.add(id);
      readSoon(abort, showEvery);
      break;
    }
    case "session.connected":
    case "session.updated":
      changed.add(id);
      readSoon(abort, showEvery);
  }
}

/** keep lists the sessions and follows their events until the signal is aborted. */
export function keep(abort: AbortSignal): void {
  const ends = [listen((event) => hear(event, abort)), onRestart(() => void list(abort))];
  void onceOpen().then(() => {
    if (!abort.aborted) void list(abort);
  });
  abort.addEventListener("abort", () => {
    ends.forEach((end) => end());
    clearTimeout(reading);
    reading = undefined;
    known = new Map();
    changed = new Set();
    sessions.value = [];
  });
}

/** again lists all sessions once more. */
export const again = (abort: AbortSignal): Promise<void> => list(abort);

/** What people call a session. */
export function titleOf(row: Pick<SessionRow, "session_id" | "name" | "device_name" | "device_id">): string {
  return row.name || row.device_name || row.device_id || row.session_id;
}

/** What people call the session with an id, if it is listed. */
export function nameOf(id: string | undefined): string | undefined {
  const row = id && sessions.value.find(({ session_id }) => session_id === id);
  return row ? titleOf(row) : undefined;
}
