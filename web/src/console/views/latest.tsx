import { useEffect, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import type { CallList, CallRecord } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { Failure, Loading, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { to } from "../query";
import { client } from "../session";
import { duration, State, tookOf } from "./bits";

const most = 15;

/** The latest finished calls of a device, as they end. */
export function LatestCalls({ session }: { session: string }) {
  const { value, error, loading, reload } = useLoaded(
    (signal) => client.get<CallList>("/api/calls", { signal, query: { session_id: session, limit: most } }),
    [session],
  );
  const [calls, setCalls] = useState<CallRecord[]>([]);
  useEffect(() => setCalls(value?.calls ?? []), [value]);
  useEvents((event) => {
    const ended = event.call;
    if (event.type !== "call.finished" || ended?.session_id !== session) return;
    setCalls((before) => [ended, ...before.filter((call) => call.call_id !== ended.call_id)].slice(0, most));
  }, reload);
  const all = <Link href={to.calls({ session })}>{words.device.allCalls}</Link>;
  return (
    <Panel title={words.device.calls} actions={all} flush>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {loading && calls.length === 0 && <Loading />}
      {!loading && calls.length === 0 && error === undefined && (
        <div class="body">
          <p class="muted">{words.device.noCalls}</p>
        </div>
      )}
      <ul class="latest">
        {calls.map((call) => (
          <li key={call.call_id}>
            <State call={call} />
            <Link class="mono cut" href={to.call(call.call_id)}>
              {call.tool}
            </Link>
            <span class="number muted">{duration(tookOf(call))}</span>
            <span class="when">
              <Time at={call.timeline[0]?.at} />
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
