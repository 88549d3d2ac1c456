// A group call: one tool of many devices, and the table of their answers as they come.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { path } from "../../api/client";
import { read } from "../../api/events";
import type { CallRecord, GroupAnswer, GroupCounts, GroupRequest, GroupResult } from "../../api/types";
import { Button, failed, Field, Loading, Panel } from "../../ui/parts";
import { words } from "../../words/en";
import { nameOf } from "../fleet";
import type { Known } from "../known";
import { to } from "../query";
import { client } from "../session";
import { duration, isFinal, State } from "./bits";
import { Table } from "./table";

const text = words.tool.group;
const most = 200; // rows that are shown

/** Which devices are called, and until when. devices is "" for the tool's own device. */
export interface Choice {
  devices: string;
  mode: NonNullable<GroupRequest["mode"]>;
  quorum: string;
}

export const oneDevice: Choice = { devices: "", mode: "all", quorum: "2" };

interface Several {
  title: string;
  target?: NonNullable<GroupRequest["target"]>;
}

/** The devices that can be called together with a session's device, by the key of a choice. */
function choices({ user_id: user, labels = {} }: Known): Map<string, Several> {
  const found = new Map<string, Several>([["", { title: text.one }]]);
  if (user) found.set("user", { title: text.user(user), target: { user_id: user } });
  for (const [key, value] of Object.entries(labels))
    found.set("label:" + key, { title: text.label(`${key}=${value}`), target: { labels: { [key]: value } } });
  return found.set("all", { title: text.all });
}

export function requestOf(choice: Choice, session: Known, tool: string, args: Record<string, unknown>): GroupRequest {
  const target = choices(session).get(choice.devices)?.target;
  const { mode } = choice;
  return { tool, args, mode, ...(target && { target }), ...(mode === "quorum" && { quorum: Number(choice.quorum) }) };
}

interface ChooseProps {
  session: Known;
  choice: Choice;
  onChange: (choice: Choice) => void;
}

/** The fields of a group call. */
export function Choose({ session, choice, onChange }: ChooseProps) {
  return (
    <>
      <Field label={text.devices}>
        <select
          class="input"
          value={choice.devices}
          onChange={(event) => onChange({ ...choice, devices: event.currentTarget.value })}
        >
          {[...choices(session)].map(([key, { title }]) => (
            <option key={key} value={key}>
              {title}
            </option>
          ))}
        </select>
      </Field>
      {choice.devices && (
        <Field label={text.mode}>
          <select
            class="input"
            value={choice.mode}
            onChange={(event) => onChange({ ...choice, mode: event.currentTarget.value as Choice["mode"] })}
          >
            {Object.entries(text.modes).map(([mode, title]) => (
              <option key={mode} value={mode}>
                {title}
              </option>
            ))}
          </select>
        </Field>
      )}
      {choice.devices && choice.mode === "quorum" && (
        <Field label={text.quorum}>
          <input
            class="input"
            type="number"
            min="1"
            required
            value={choice.quorum}
            onInput={(event) => onChange({ ...choice, quorum: event.currentTarget.value })}
          />
        </Field>
      )}
    </>
  );
}

/** A group call as far as it has come. end is there when it has ended. */
export interface Group {
  id?: string;
  results: GroupResult[];
  end?: Pick<GroupAnswer, "state" | "counts" | "error" | "problem">;
}

/** useGroup makes group calls, one at a time. Leaving the page ends the one that runs. */
export function useGroup(): [Group | undefined, (request: GroupRequest) => Promise<void>] {
  const [group, setGroup] = useState<Group>();
  const control = useRef(new AbortController());
  useEffect(() => () => control.current.abort(), []);
  const call = async (body: GroupRequest) => {
    const { signal } = control.current;
    const headers = { Accept: "text/event-stream" };
    const response = await client.request("POST", "/api/calls", { body, headers, signal });
    setGroup({ results: [] });
    const follow = async () => {
      for await (const { type, data } of read(response)) {
        if (type === "call") setGroup((g) => ({ ...g!, id: (data as { call_id: string }).call_id }));
        if (type === "result") setGroup((g) => ({ ...g!, results: [...g!.results, data as GroupResult] }));
        if (type === "done") setGroup((g) => ({ ...g!, end: data as NonNullable<Group["end"]> }));
      }
    };
    follow().catch((error: unknown) => signal.aborted || failed(error));
  };
  return [group, call];
}

export function GroupView({ group: { id, results, end } }: { group: Group }) {
  const cancel = id && !end && (
    <Button small look="danger" onClick={() => client.delete(path("api", "calls", id))}>
      {words.tool.cancel}
    </Button>
  );
  return (
    <>
      <Panel
        title={`${text.title} (${results.length})`}
        actions={end ? <State call={{ state: end.state }} /> : cancel}
        flush
      >
        {results.length === 0 && !end && <Loading />}
        {results.length > 0 && <Results rows={results.slice(0, most)} />}
        {results.length > most && <p class="body muted">{text.more(results.length - most)}</p>}
        {end && (
          <div class="body stack">
            <Counts counts={end.counts} />
            {(end.problem ?? end.error) && <p class="notice warn bidi">{end.problem?.detail ?? end.error}</p>}
          </div>
        )}
      </Panel>
      {id && <Link href={to.call(id)}>{text.open}</Link>}
    </>
  );
}

function Results({ rows }: { rows: GroupResult[] }) {
  const { columns } = text;
  return (
    <Table
      label={text.title}
      rows={rows}
      keyOf={(row) => row.call_id ?? row.session_id ?? row.device_id ?? ""}
      columns={[
        { title: columns.device, cell: deviceOf },
        { title: columns.state, cell: (row) => <State call={row} /> },
        { title: columns.answer, wide: true, cell: answerOf },
        { title: columns.took, number: true, cell: (row) => duration(row.duration_ms) },
      ]}
    />
  );
}

function deviceOf({ call_id: id, session_id: session, device_id: device }: GroupResult): ComponentChildren {
  const name = nameOf(session) ?? device ?? session ?? "–";
  return id ? <Link href={to.call(id)}>{name}</Link> : name;
}

const longest = 300; // characters of an answer that are shown; the call's page has all

function answerOf({ output, problem, error }: GroupResult): ComponentChildren {
  return <span class="bidi">{(problem?.detail ?? error ?? output ?? "").slice(0, longest)}</span>;
}

/** How many devices ended how. */
export function Counts({ counts }: { counts: GroupCounts }) {
  const names = Object.entries(words.call.group.counts) as [keyof GroupCounts, string][];
  return (
    <p class="muted">
      {names
        .filter(([name]) => counts[name] > 0)
        .map(([name, title]) => `${title}: ${counts[name].toLocaleString("en")}`)
        .join(" · ")}
    </p>
  );
}

/** isGroup reports whether a call is the parent of calls of many devices. */
export function isGroup(call: CallRecord): call is CallRecord & { mode: keyof typeof words.call.group.modes } {
  return call.mode in words.call.group.modes;
}

export const runs = (group: Group | undefined) => group !== undefined && (!group.end || !isFinal(group.end.state));
