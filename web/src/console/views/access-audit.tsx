// The audit log: search, and export of all that matches.

import { useEffect, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import type { AuditAction, AuditLine, AuditOutcome, AuditPage } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { Badge, Button, Empty, failed, Panel, Time, type Tone } from "../../ui/parts";
import { download } from "../../ui/download";
import { words } from "../../words/en";
import { to, useQuery } from "../query";
import { client } from "../session";
import { Table } from "./table";

const text = words.audit;
const perPage = 100;
const mostEmpty = 5; // pages without a match that are read before the person is asked

// All actions of the API: a missing one is an error of the type.
const every: Record<AuditAction, true> = {
  "call": true, "register": true, "login": true, "key.create": true, "key.rotate": true, "key.revoke": true,
  "revoke": true, "pair.ask": true, "pair.look": true, "pair.decide": true, "pair.setup": true, "device.import": true,
  "device.update": true, "device.rotate": true, "device.revoke": true, "device.tools": true, "device.wake": true,
  "approval.ask": true, "approval.decide": true, "grant.revoke": true, "policy.reload": true, "session.kick": true,
  "session.rename": true, "turn.abort": true, "call.cancel": true, "doctor": true, "backup": true, "user.erase": true,
  "user.default_device": true, "tenant.key": true, "tenant.budget": true, "budget.warning": true, "budget.spent": true,
};
const actions = Object.keys(every) as AuditAction[];
const outcomes: AuditOutcome[] = ["allowed", "denied", "failed", "seen"];
const tones: Record<string, Tone> = { allowed: "good", denied: "bad", failed: "warn" };
const filters = ["from", "to", "user", "tool", "action", "outcome"] as const;

export function Audit() {
  const [get, set] = useQuery();
  const query = Object.fromEntries(filters.map((name) => [name, name === "to" ? dayAfter(get(name)) : get(name)]));
  const key = JSON.stringify(query);
  const first = useLoaded((signal) => search(query, undefined, signal), [key]);
  const [more, setMore] = useState<AuditPage[]>([]);
  useEffect(() => setMore([]), [first.value]);
  const pages = first.value ? [first.value, ...more] : [];
  const lines = pages.flatMap((page) => page.lines);
  const next = pages.at(-1)?.next_cursor;
  return (
    <Panel
      title={
        <div class="bar filters">
          <Day name="from" label={text.from} value={get("from")} set={set} />
          <Day name="to" label={text.to} value={get("to")} set={set} />
          <Text name="user" label={text.user} value={get("user")} set={set} />
          <Text name="tool" label={text.tool} value={get("tool")} set={set} />
          <Pick label={text.action} options={actions} value={get("action")} onChange={(action) => set({ action })} />
          <Pick
            label={text.outcome}
            options={outcomes}
            value={get("outcome")}
            onChange={(outcome) => set({ outcome })}
          />
        </div>
      }
      actions={
        <>
          <Button small onClick={first.reload}>
            {text.refresh}
          </Button>
          <Button small onClick={() => save(query)}>
            {text.export}
          </Button>
        </>
      }
      flush
    >
      {!first.value ? (
        <NotYet loaded={first} />
      ) : lines.length === 0 ? (
        <Empty title={text.none.title}>
          <p class="muted">{next ? text.scanned : text.none.text}</p>
        </Empty>
      ) : (
        <LineTable lines={lines} />
      )}
      {next && (
        <div class="load-more">
          <Button
            onClick={async () => {
              const page = await search(query, next);
              setMore((pages) => [...pages, page]);
            }}
          >
            {text.more}
          </Button>
        </div>
      )}
    </Panel>
  );
}

type Query = Record<string, string>;

function dayAfter(day: string): string {
  if (!day) return "";
  const date = new Date(day + "T00:00:00Z");
  date.setUTCDate(date.getUTCDate() + 1);
  return date.toISOString().slice(0, 10);
}

/** search reads a page. Pages cover a bounded part of the log, so some are empty: it reads on, a few times. */
async function search(query: Query, cursor: string | undefined, signal?: AbortSignal): Promise<AuditPage> {
  let page: AuditPage = { lines: [] };
  for (let i = 0; i < mostEmpty; i++) {
    page = await client.get<AuditPage>("/api/audit", {
      query: { ...query, limit: perPage, cursor },
      ...(signal ? { signal } : {}),
    });
    cursor = page.next_cursor;
    if (page.lines.length > 0 || !cursor) break;
  }
  return page;
}

/** save stores what matches as JSON lines. The gateway ends an export at 100,000 lines. */
async function save(query: Query): Promise<void> {
  try {
    const response = await client.request("GET", "/api/audit", { query: { ...query, format: "jsonl" } });
    const day = new Date().toISOString().slice(0, 10);
    download(`audit-${day}.jsonl`, "application/x-ndjson", await response.blob());
  } catch (error) {
    failed(error);
  }
}

function LineTable({ lines }: { lines: AuditLine[] }) {
  return (
    <Table
      label={words.access.tabs.audit}
      rows={lines}
      keyOf={(line) => line.id}
      columns={[
        { title: text.columns.at, cell: (line) => <Time at={line.at} /> },
        {
          title: text.columns.who,
          cell: ({ actor }) => (
            <>
              <span class="bidi">{actor.user || actor.name || actor.credential || text.nobody}</span>
              <span class="sub bidi">{[actor.user && actor.name, actor.source].filter(Boolean).join(" · ")}</span>
            </>
          ),
        },
        { title: text.columns.action, cell: (line) => <code class="whole">{line.action}</code> },
        {
          title: text.columns.outcome,
          cell: (line) => (
            <Badge tone={tones[line.outcome] ?? ""} {...(line.code ? { title: line.code } : {})}>
              {line.outcome}
            </Badge>
          ),
        },
        { title: text.columns.what, cell: (line) => <What line={line} /> },
        {
          title: text.columns.reason,
          cell: (line) => (
            <>
              <span class="bidi">{line.reason}</span>
              {line.rule && <span class="sub">{text.rule(line.rule)}</span>}
              {line.omitted ? <span class="sub">{text.omitted(line.omitted)}</span> : null}
            </>
          ),
          wide: true,
        },
      ]}
    />
  );
}

function What({ line }: { line: AuditLine }) {
  const of = line.tool ?? line.target ?? line.device_id ?? line.session_id;
  const where = [line.device_id, line.session_id].find((one) => one && one !== of);
  return (
    <>
      {line.call_id ? (
        <Link href={to.call(line.call_id)} class="bidi">
          {of ?? line.call_id}
        </Link>
      ) : (
        <span class="bidi">{of ?? "–"}</span>
      )}
      {where && <span class="sub bidi">{where}</span>}
    </>
  );
}

interface FilterProps {
  name: string;
  label: string;
  value: string;
  set: (change: Record<string, string>) => void;
}

function Day({ name, label, value, set }: FilterProps) {
  return (
    <label class="pick">
      {label}
      <input class="input" type="date" value={value} onChange={(event) => set({ [name]: event.currentTarget.value })} />
    </label>
  );
}

function Text({ name, label, value, set }: FilterProps) {
  return (
    <input
      class="input"
      type="search"
      aria-label={label}
      placeholder={label}
      value={value}
      onChange={(event) => set({ [name]: event.currentTarget.value.trim() })}
    />
  );
}

interface PickProps {
  label: string;
  options: string[];
  value: string;
  onChange: (value: string) => void;
}

function Pick({ label, options, value, onChange }: PickProps) {
  return (
    <select class="input" aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
      <option value="">{label}</option>
      {options.map((option) => (
        <option key={option} value={option}>
          {option}
        </option>
      ))}
    </select>
  );
}
