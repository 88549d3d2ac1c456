import { useMemo } from "preact/hooks";
import { Link } from "wouter-preact";
import type { SessionRow } from "../../api/types";
import { Badge, Button, Copy, Dot, Empty, Failure, Loading, Time } from "../../ui/parts";
import { QR } from "../../ui/qr";
import { words } from "../../words/en";
import { again, listing, sessions, titleOf } from "../fleet";
import { to, useQuery } from "../query";
import { type Column, Rows } from "../rows";
import { loopback, may } from "../session";
import { Segmented } from "./bits";
import "./fleet.css";

const text = words.fleet;
const columns: Column[] = [
  { name: "device", title: text.columns.device },
  { name: "id", title: text.columns.id },
  { name: "user", title: text.columns.user },
  { name: "labels", title: text.columns.labels },
  { name: "tools", title: text.columns.tools, number: true },
  { name: "trip", title: text.columns.trip, number: true },
  { name: "pod", title: text.columns.pod },
  { name: "seen", title: text.columns.seen },
];

type Item = SessionRow | { group: string; count: number };
const labelPrefix = "label:";
const mostNamed = 100; // tools in the title of their number

export function Fleet() {
  const [query, setQuery] = useQuery();
  const [search, shown, group] = [query("q"), query("show"), query("group")];
  const all = sessions.value;
  const found = useMemo(() => filter(all, search, shown), [all, search, shown]);
  const items = useMemo(() => grouped(found, group), [found, group]);
  const keys = useMemo(() => labelKeys(all), [all]);
  const { loading, error } = listing.value;
  if (error !== undefined && all.length === 0)
    return <Failure error={error} retry={() => again(new AbortController().signal)} />;
  if (loading && all.length === 0) return <Loading />;
  return (
    <>
      <header class="head">
        <h1>{text.title}</h1>
        <span class="muted">{text.count(all.filter((row) => row.connected).length, all.length)}</span>
        <span class="bar push">
          <Link href="/tools">{text.gateway}</Link>
          {all.length > 0 && may("approver") && (
            <Link class="button" href="/access/pairing">
              {text.connect}
            </Link>
          )}
        </span>
      </header>
      {all.length === 0 ? (
        <NoDevice />
      ) : (
        <>
          <div class="bar" role="search">
            <input
              class="input"
              type="search"
              aria-label={text.search}
              placeholder={text.search}
              value={search}
              onInput={(event) => setQuery({ q: event.currentTarget.value })}
            />
            <Segmented
              label={text.columns.seen}
              value={shown}
              options={text.shown}
              onChange={(show) => setQuery({ show })}
            />
            <label class="pick">
              <span class="muted">{text.group}</span>
              <select class="input" value={group} onChange={(event) => setQuery({ group: event.currentTarget.value })}>
                <option value="">{text.groups.none}</option>
                <option value="user">{text.groups.user}</option>
                <option value="pod">{text.groups.pod}</option>
                {keys.map((key) => (
                  <option key={key} value={labelPrefix + key}>
                    {text.groups.label(key)}
                  </option>
                ))}
              </select>
            </label>
          </div>
          {items.length === 0 ? (
            <Empty title={text.noMatch}>
              <Button onClick={() => setQuery({ q: "", show: "" })}>{text.clear}</Button>
            </Empty>
          ) : (
            <Rows
              label={text.title}
              look="fleet"
              columns={columns}
              items={items}
              keyOf={keyOf}
              group={groupOf}
              cells={cells}
            />
          )}
        </>
      )}
    </>
  );
}

function NoDevice() {
  const command = `farhand device --server ${location.origin}`;
  const page = location.origin + "/device";
  return (
    <Empty title={text.none.title}>
      <p class="muted">{loopback ? text.none.local : text.none.text}</p>
      {!loopback && <QR text={page} label={words.pairing.qr(page)} />}
      <p class="command">
        <code>{command}</code>
        <Copy text={command} />
      </p>
      <a class="button first" href="/device" target="_blank" rel="noreferrer">
        {text.none.open}
      </a>
    </Empty>
  );
}

const keyOf = (item: Item) => ("group" in item ? "group " + item.group : item.session_id);

const groupOf = (item: Item) => ("group" in item ? `${item.group} · ${item.count.toLocaleString("en")}` : undefined);

function cells(item: Item) {
  if ("group" in item) return [];
  const { device_id: id, device_name: name, labels = {}, round_trip_ms: trip } = item;
  return [
    <Link class="lead" href={to.device(item.session_id)} title={item.session_id}>
      <Dot tone={item.connected ? "good" : presenceOf(item) === "sleeping" ? "accent" : ""} />
      <span class="cut">{titleOf(item)}</span>
      <span class="hidden">{text[presenceOf(item)]}</span>
    </Link>,
    <span class="mono" title={name}>
      {id ?? "–"}
    </span>,
    item.user_id ?? <span class="muted none">–</span>,
    Object.entries(labels).map(([key, value]) => (
      <Badge key={key} title={`${key}=${value}`}>
        {key}={value}
      </Badge>
    )),
    <span title={item.tools.slice(0, mostNamed).join(", ")}>{item.tools.length || (item.connected ? 0 : "–")}</span>,
    trip === undefined ? <span class="muted">–</span> : `${trip} ms`,
    <span class="muted" title={item.pod}>
      {item.pod ?? "–"}
    </span>,
    item.connected ? words.now : <Time at={item.last_seen ?? item.last_activity} />,
  ];
}

function presenceOf({ connected, presence }: SessionRow): "connected" | "sleeping" | "away" {
  return connected ? "connected" : presence === "sleeping" ? presence : "away";
}

function filter(all: SessionRow[], search: string, shown: string): SessionRow[] {
  const terms = search.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((row) => {
    if (shown && presenceOf(row) !== shown) return false;
    if (terms.length === 0) return true;
    const labels = Object.entries(row.labels ?? {}).map(([key, value]) => `${key}=${value}`);
    const words = [row.session_id, row.name, row.device_id, row.device_name, row.user_id, row.platform, row.pod];
    const text = [...words, ...labels, ...row.tools].join("\n").toLowerCase();
    return terms.every((term) => text.includes(term));
  });
}

function grouped(rows: SessionRow[], by: string): Item[] {
  if (!by) return rows;
  const key = by.startsWith(labelPrefix) ? by.slice(labelPrefix.length) : undefined;
  const none = key ? text.ungrouped.label : by === "pod" ? text.ungrouped.pod : text.ungrouped.user;
  const groups = new Map<string, SessionRow[]>();
  for (const row of rows) {
    const name = (key ? row.labels?.[key] : by === "pod" ? row.pod : row.user_id) ?? "";
    const group = groups.get(name);
    if (group) group.push(row);
    else groups.set(name, [row]);
  }
  const last = (name: string) => (name === "" ? 1 : 0);
  return [...groups]
    .sort(([a], [b]) => last(a) - last(b) || a.localeCompare(b))
    .flatMap(([name, members]) => [{ group: name || none, count: members.length }, ...members]);
}

const mostKeys = 50;

function labelKeys(rows: SessionRow[]): string[] {
  const keys = new Set<string>();
  for (const row of rows) for (const key of Object.keys(row.labels ?? {})) if (keys.size < mostKeys) keys.add(key);
  return [...keys].sort();
}
