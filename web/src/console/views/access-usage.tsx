// Usage: totals by day as a chart, and by tool or user as a table.

import type { UsageList, UsageRow } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { Button, Empty, Panel } from "../../ui/parts";
import { download } from "../../ui/download";
import { later } from "../../ui/later";
import { words } from "../../words/en";
import { useQuery } from "../query";
import { client } from "../session";
import { bytes, duration, Segmented } from "./bits";
import { Table } from "./table";

const text = words.usage;

const Chart = later(async () => (await import("../../ui/chart")).Chart);

type Shown = keyof typeof text.shows;
type By = keyof typeof text.bys;
const month = 29 * 86_400_000;

export function Usage() {
  const [get, set] = useQuery();
  const from = get("from") || dayOf(Date.now() - month);
  const to = get("to") || dayOf(Date.now());
  const by = (get("by") || "tool") as By;
  const show = (get("show") || "calls") as Shown;
  const days = useLoaded((signal) => read({ from, to, by: "day" }, signal), [from, to]);
  const rows = useLoaded((signal) => read({ from, to, by }, signal), [from, to, by]);
  return (
    <>
      <div class="bar">
        <label class="pick">
          {text.from}
          <input
            class="input"
            type="date"
            value={from}
            max={to}
            onChange={(event) => set({ from: event.currentTarget.value })}
          />
        </label>
        <label class="pick">
          {text.to}
          <input
            class="input"
            type="date"
            value={to}
            min={from}
            onChange={(event) => set({ to: event.currentTarget.value })}
          />
        </label>
        <span class="push" />
        <Segmented label={text.show} value={show} options={text.shows} onChange={(value) => set({ show: value })} />
      </div>
      <Panel title={text.chart(text.shows[show])}>
        {days.value ? (
          <DayChart list={days.value} show={show} from={from} to={to} />
        ) : (
          <NotYet loaded={days} />
        )}
      </Panel>
      <Panel
        title={text.total}
        actions={
          <>
            <Segmented label={text.by} value={by} options={text.bys} onChange={(value) => set({ by: value })} />
            <Button small disabled={!rows.value} onClick={() => save(rows.value ?? [], `usage-${from}-${to}-by-${by}`)}>
              {text.export}
            </Button>
          </>
        }
        flush
      >
        {rows.value ? (
          <Totals list={rows.value} by={by} show={show} />
        ) : (
          <NotYet loaded={rows} />
        )}
      </Panel>
    </>
  );
}

const mostRows = 5000;

async function read(query: { from: string; to: string; by: string }, signal: AbortSignal): Promise<UsageRow[]> {
  const all: UsageRow[] = [];
  for await (const page of client.pages<UsageRow>("/api/usage", "usage", { query, signal })) {
    all.push(...page);
    if (all.length >= mostRows) break;
  }
  return all satisfies UsageList["usage"];
}

function dayOf(at: number): string {
  return new Date(at).toISOString().slice(0, 10);
}

const series: Record<Shown, { names: string[]; of: (row: UsageRow) => number[]; unit: (n: number) => string }> = {
  calls: { names: [text.shows.calls], of: (row) => [row.calls], unit: count },
  failures: { names: [text.shows.failures], of: (row) => [row.failures], unit: count },
  tokens: {
    names: [text.columns.input, text.columns.output],
    of: (row) => [row.input_tokens, row.output_tokens],
    unit: count,
  },
  ms: { names: [text.shows.ms], of: (row) => [row.ms], unit: (n) => duration(n) },
};

interface DayChartProps {
  list: UsageRow[];
  show: Shown;
  from: string;
  to: string;
}

function DayChart({ list, show, from, to }: DayChartProps) {
  const { names, of, unit } = series[show];
  const known = new Map(list.map((row) => [row.day, of(row)]));
  const times: number[] = [];
  const values: number[][] = names.map(() => []);
  for (let at = Date.parse(from); at <= Date.parse(to); at += 86_400_000) {
    times.push(at / 1000);
    const day = known.get(dayOf(at));
    values.forEach((one, i) => one.push(day?.[i] ?? 0));
  }
  return <Chart label={text.chart(text.shows[show])} times={times} names={names} values={values} unit={unit} bars />;
}

function count(n: number): string {
  return n.toLocaleString("en");
}

/** save stores rows as JSON lines. */
function save(rows: UsageRow[], name: string): void {
  download(`${name}.jsonl`, "application/x-ndjson", rows.map((row) => JSON.stringify(row) + "\n").join(""));
}

function Totals({ list, by, show }: { list: UsageRow[]; by: By; show: Shown }) {
  if (list.length === 0) {
    return (
      <Empty title={text.none.title}>
        <p class="muted">{text.none.text}</p>
      </Empty>
    );
  }
  const size = (row: UsageRow) => series[show].of(row).reduce((sum, n) => sum + n, 0);
  const sorted = by === "day" ? list.toReversed() : list.toSorted((a, b) => size(b) - size(a));
  return (
    <Table
      label={text.total}
      rows={sorted}
      keyOf={(row) => [row.day, row.user, row.key, row.tool].join("\n")}
      columns={[
        { title: text.bys[by], cell: (row) => <span class="bidi">{nameOf(row, by)}</span>, wide: true },
        { title: text.columns.calls, cell: (row) => count(row.calls), number: true },
        { title: text.columns.failures, cell: (row) => count(row.failures), number: true },
        { title: text.columns.input, cell: (row) => count(row.input_tokens), number: true },
        { title: text.columns.output, cell: (row) => count(row.output_tokens), number: true },
        { title: text.columns.time, cell: (row) => duration(row.ms), number: true },
        { title: text.columns.bytes, cell: (row) => bytes(row.bytes_in + row.bytes_out), number: true },
      ]}
    />
  );
}

function nameOf(row: UsageRow, by: By): string {
  if (by === "day") return row.day ?? "";
  if (by === "tool") return row.tool || text.chat;
  return row.user || row.key || text.nobody;
}
