import { useCallback, useMemo } from "preact/hooks";
import { Link } from "wouter-preact";
import type { CallRecord, CallState } from "../../api/types";
import { Button, Dot, Empty, Failure, Loading, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { sessions, titleOf } from "../fleet";
import { to, useQuery } from "../query";
import { type Column, Rows } from "../rows";
import { duration, toneOf, tookOf } from "./bits";
import { useCalls } from "./callstore";
import { sourceOf } from "./callview";
import "./calls.css";

const text = words.calls;
const columns: Column[] = [
  { name: "state", title: text.columns.state },
  { name: "tool", title: text.columns.tool },
  { name: "device", title: text.columns.device },
  { name: "user", title: text.columns.user },
  { name: "pod", title: text.columns.pod },
  { name: "took", title: text.columns.took, number: true },
  { name: "at", title: text.columns.at },
];

const states = ["succeeded", "failed", "cancelled", "timed_out", "lost", "rejected", "expired"] as const;
const times: Record<string, number> = { m5: 300_000, h1: 3_600_000, d1: 86_400_000 };
const between = "between";
const names = ["tool", "device", "session", "user", "pod", "parent"] as const;
const filters = ["state", ...names, "time", "from", "to"] as const;

export function Calls() {
  const [query, setQuery] = useQuery();
  const state = query("state");
  const time = Object.hasOwn(times, query("time")) ? query("time") : "";
  const since = useMemo(() => (time ? new Date(Date.now() - times[time]!).toISOString() : ""), [time]);
  const from = since || instant(query("from"));
  const to = since ? "" : instant(query("to"));
  const { calls, fresh, showFresh, searched, more: older, loading, error, reload } = useCalls({
    state: (states as readonly string[]).includes(state) ? state : "",
    tool: query("tool"),
    device_id: query("device"),
    session_id: query("session"),
    user: query("user"),
    pod: query("pod"),
    parent: query("parent"),
    from,
    to,
  });
  const titles = useMemo(() => new Map(sessions.value.map((row) => [row.session_id, titleOf(row)])), [sessions.value]);
  const cellsOf = useCallback((call: CallRecord) => cells(call, titles), [titles]);
  const shown = useMemo(
    () => calls.filter((call) => state !== "running" || call.status === "executing" || call.status === "pending"),
    [calls, state],
  );
  const more = state === "running" ? undefined : older;
  const filtered = filters.some(query);
  if (error !== undefined && calls.length === 0) return <Failure error={error} retry={reload} />;
  return (
    <>
      <header class="head">
        <h1>{text.title}</h1>
        <span class="muted">{text.searched(searched)}</span>
        {fresh > 0 && (
          <Button small look="first" onClick={showFresh}>
            {text.fresh(fresh)}
          </Button>
        )}
      </header>
      <div class="bar filters" role="search">
        <select
          class="input"
          aria-label={text.filters.state}
          value={state}
          onChange={(event) => setQuery({ state: event.currentTarget.value })}
        >
          <option value="">{text.states.all}</option>
          <option value="running">{text.states.running}</option>
          {states.map((name) => (
            <option key={name} value={name}>
              {words.call.states[name]}
            </option>
          ))}
        </select>
        {names.map((name) => (
          <Filter key={name} name={name} value={query(name)} onChange={(value) => setQuery({ [name]: value })} />
        ))}
        <select
          class="input"
          aria-label={text.filters.time}
          value={time || (from || to ? between : "")}
          onChange={({ currentTarget: { value } }) =>
            setQuery(
              value === between
                ? { time: "", from: new Date(Date.now() - times.h1!).toISOString(), to: "" }
                : { time: value, from: "", to: "" },
            )
          }
        >
          <option value="">{text.times.all}</option>
          {[...Object.keys(times), between].map((name) => (
            <option key={name} value={name}>
              {text.times[name as keyof typeof text.times]}
            </option>
          ))}
        </select>
        {!time &&
          (from || to) &&
          (["from", "to"] as const).map((name) => (
            <label key={name} class="pick">
              {text.filters[name]}
              <input
                class="input"
                type="datetime-local"
                value={local(name === "from" ? from : to)}
                onChange={(event) => setQuery({ [name]: instant(event.currentTarget.value) })}
              />
            </label>
          ))}
        {filtered && (
          <Button look="plain" onClick={() => setQuery(Object.fromEntries(filters.map((name) => [name, ""])))}>
            {text.clear}
          </Button>
        )}
      </div>
      {shown.length > 0 ? (
        <Rows
          label={text.title}
          look="calls"
          columns={columns}
          items={shown}
          keyOf={(call) => call.call_id}
          cells={cellsOf}
        />
      ) : loading ? (
        <Loading />
      ) : filtered ? (
        <Empty title={more ? text.notYet.title : text.noMatch}>
          {more && <p class="muted">{text.notYet.text}</p>}
        </Empty>
      ) : (
        <Empty title={text.none.title}>
          <p class="muted">{text.none.text}</p>
          <Link href="/devices">{words.notFound.back}</Link>
        </Empty>
      )}
      {more && (
        <div class="actions more">
          <Button onClick={more}>{text.more}</Button>
        </div>
      )}
    </>
  );
}

/** instant returns a time as the gateway takes it, or "" for what is none. */
function instant(time: string): string {
  const at = new Date(time);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString();
}

/** local returns a time as its input takes it: in the browser's zone, without one. */
function local(time: string): string {
  if (!time) return "";
  const at = new Date(time);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

interface FilterProps {
  name: (typeof names)[number];
  value: string;
  onChange: (value: string) => void;
}

/** A filter that takes effect when it is complete, because the gateway compares whole names. */
function Filter({ name, value, onChange }: FilterProps) {
  return (
    <input
      class="input"
      type="search"
      aria-label={text.filters[name]}
      placeholder={text.filters[name]}
      value={value}
      onChange={(event) => onChange(event.currentTarget.value.trim())}
    />
  );
}

function cells(call: CallRecord, titles: Map<string, string>) {
  const waits = call.state === "accepted" && call.approval_id;
  const device = call.session_id ? (titles.get(call.session_id) ?? call.device_id ?? call.session_id) : undefined;
  return [
    <>
      <Dot tone={waits ? "warn" : toneOf(call.state)} />
      <span class="cut">{waits ? words.call.waits : words.call.states[call.state as CallState]}</span>
    </>,
    <Link class="lead mono" href={to.call(call.call_id)}>
      <span class="cut">{call.tool || call.call_id}</span>
    </Link>,
    device ?? <span class="muted">{sourceOf(call)}</span>,
    call.user_id ?? <span class="muted">–</span>,
    <span class="muted" title={call.owner}>
      {call.pod}
    </span>,
    duration(tookOf(call)),
    <Time at={call.timeline[0]?.at} />,
  ];
}
