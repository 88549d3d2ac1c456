// The calls of the table: finished ones page by page, and what the event stream says since.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Activity, CallList, CallRecord } from "../../api/types";
import { useEvents } from "../feed";
import { client } from "../session";
import { isFinal } from "./bits";

const page = 200;
const most = 5_000; // calls that are kept
const mostRunning = 500;
const mostEmpty = 5; // pages without a match that are read before the person is asked
const showEvery = 250; // ms
const nearTop = 120; // px, within which new calls are shown at once

export interface Filters {
  state: string;
  tool: string;
  device_id: string;
  session_id: string;
  user: string;
  pod: string;
  parent: string;
  /** The times between which a call ended, in RFC 3339. */
  from: string;
  to: string;
}

interface Kept {
  finished: CallRecord[];
  running: Map<string, CallRecord>;
  /** Finished calls that are not shown yet, so that nothing moves under the pointer. */
  fresh: CallRecord[];
  next: string | undefined;
  searched: number;
}

const nothing = (): Kept => ({ finished: [], running: new Map(), fresh: [], next: undefined, searched: 0 });

export function useCalls(filters: Filters) {
  const kept = useRef(nothing());
  const [, redraw] = useState(0);
  const [status, setStatus] = useState<{ loading: boolean; error?: unknown }>({ loading: true });
  const [run, setRun] = useState(0);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const show = () => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      if (scrollY < nearTop) merge(kept.current);
      redraw((n) => n + 1);
    }, showEvery);
  };
  const read = async (signal?: AbortSignal) => {
    const into = kept.current;
    let list: CallList = { calls: [] };
    for (let i = 0; i < mostEmpty; i++) {
      list = await client.get<CallList>("/api/calls", {
        ...(signal && { signal }),
        query: { ...filters, limit: page, cursor: into.next },
      });
      into.next = list.next_cursor;
      if (list.calls.length > 0 || !into.next) break;
    }
    const had = new Set(into.finished.map((call) => call.call_id));
    into.finished.push(...list.calls.filter((call) => !had.has(call.call_id)));
    if (into.finished.length >= most) into.next = undefined;
    into.searched += list.calls.length;
    redraw((n) => n + 1);
  };
  useEffect(() => {
    const control = new AbortController();
    kept.current = nothing();
    setStatus({ loading: true });
    read(control.signal).then(
      () => setStatus({ loading: false }),
      (error: unknown) => control.signal.aborted || setStatus({ loading: false, error }),
    );
    return () => control.abort();
  }, [JSON.stringify(filters), run]);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEvents(
    (event) => hear(kept.current, filters, event) && show(),
    () => setRun((n) => n + 1),
  );
  const { finished, running, fresh, next, searched } = kept.current;
  return {
    calls: [...[...running.values()].reverse(), ...finished],
    fresh: fresh.length,
    showFresh: () => {
      merge(kept.current);
      redraw((n) => n + 1);
      scrollTo({ top: 0 });
    },
    searched,
    more: next ? () => read() : undefined,
    ...status,
    reload: () => setRun((n) => n + 1),
  };
}

function merge(kept: Kept): void {
  if (kept.fresh.length === 0) return;
  const ids = new Set(kept.fresh.map((call) => call.call_id));
  kept.finished = [...kept.fresh, ...kept.finished.filter((call) => !ids.has(call.call_id))].slice(0, most);
  kept.fresh = [];
}

/** hear takes an event, and reports whether the table changes with it. */
function hear(kept: Kept, filters: Filters, event: Activity): boolean {
  if (event.type === "call.finished" && event.call) {
    const was = kept.running.delete(event.call.call_id);
    if (!matches(event.call, filters)) return was;
    kept.searched++;
    kept.fresh = [event.call, ...kept.fresh.filter((call) => call.call_id !== event.call!.call_id)].slice(0, most);
    return true;
  }
  const call = runningOf(event);
  if (!call || isFinal(call.state) || !matches(call, filters)) return false;
  kept.running.set(call.call_id, { ...kept.running.get(call.call_id), ...call });
  for (const id of kept.running.keys()) {
    if (kept.running.size <= mostRunning) break;
    kept.running.delete(id);
  }
  return true;
}

/** runningOf returns the call that an event says has begun, is queued or waits. */
function runningOf({
  type,
  call,
  approval,
  at,
  pod,
  session_id,
  device_id,
  user_id,
}: Activity): CallRecord | undefined {
  const common = { mode: "async", late: false, timeout_ms: 0, pod, session_id, device_id } as const;
  if (type.startsWith("call.") && call) {
    return { ...common, ...call, pod, timeline: call.timeline.length > 0 ? call.timeline : [{ state: call.state, at }] };
  }
  if (type !== "approval.requested" || !approval) return undefined;
  return {
    ...common,
    call_id: approval.call_id,
    tool: approval.tool,
    user_id: approval.user_id ?? user_id,
    approval_id: approval.id,
    state: "accepted",
    status: "pending",
    dispatched: "no",
    timeline: [{ state: "accepted", at }],
  };
}

function matches(call: CallRecord, { state, tool, device_id, session_id, user, pod, parent, from, to }: Filters): boolean {
  const now = Date.now();
  return (
    (!state || call.state === state) &&
    (!tool || call.tool === tool) &&
    (!device_id || call.device_id === device_id) &&
    (!session_id || call.session_id === session_id) &&
    (!user || call.user_id === user) &&
    (!pod || call.pod === pod || call.owner === pod) &&
    (!parent || call.parent_id === parent) &&
    (!from || now >= Date.parse(from)) &&
    (!to || now < Date.parse(to))
  );
}
