import { useEffect, useRef, useState } from "preact/hooks";
import type { PodList, PodRow, PodStatus } from "../../api/types";
import { later } from "../../ui/later";
import { Badge, Dot, Failure, Loading, notify, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { client } from "../session";
import { bytes, duration } from "./bits";
import { quantile, ratesOf, sampleOf, sum, total, type Rates, type Sample } from "./operate-rates";
import { Table } from "./table";

const text = words.operate;
const Chart = later(async () => (await import("../../ui/chart")).Chart);

const pause = 3000; // ms between questions to the pods, while the view is in sight
const kept = 100; // samples of the chart, five minutes
const window = 4; // samples that a rate covers

/** usePods asks the pods how they are while the view is in sight. */
function usePods() {
  const [samples, setSamples] = useState<Sample[]>([]);
  const [error, setError] = useState<unknown>();
  const asking = useRef(false);
  const ask = async () => {
    if (asking.current || document.hidden) return;
    asking.current = true;
    try {
      const sample = sampleOf(await client.get<PodList>("/api/pods"));
      setSamples((all) => [...all, sample].slice(-kept));
      setError(undefined);
    } catch (thrown) {
      setError(thrown);
    } finally {
      asking.current = false;
    }
  };
  useEffect(() => {
    void ask();
    const timer = setInterval(() => void ask(), pause);
    return () => clearInterval(timer);
  }, []);
  return { samples, error, ask };
}

interface Shown {
  row: PodRow;
  rates: Rates | undefined;
}

function shownOf(now: Sample, before: Sample | undefined): Shown[] {
  return now.pods.map((row) => ({
    row,
    rates: row.status && ratesOf(row.status, before?.pods.find((pod) => pod.pod === row.pod)?.status),
  }));
}

export function Pods() {
  const { samples, error, ask } = usePods();
  useEvents((event) => {
    if (event.type !== "pod.died") return;
    notify(text.died(event.reason ?? ""), "bad");
    void ask();
  });
  const now = samples.at(-1);
  if (!now) return error === undefined ? <Loading /> : <Failure error={error} retry={() => void ask()} />;
  const before = samples.at(-1 - Math.min(window, samples.length - 1));
  const earlier = before === now ? undefined : before;
  const shown = shownOf(now, earlier);
  const fleet = sum(shown.flatMap(({ rates }) => rates ?? []));
  return (
    <>
      {error !== undefined && <Failure error={error} />}
      <Totals shown={shown} fleet={fleet} span={earlier ? now.at - earlier.at : undefined} />
      {samples.length > 2 && <CallChart samples={samples} />}
      <Panel title={text.pods} flush>
        <div class="pods"><PodTable shown={shown} /></div>
      </Panel>
      <Refusals pods={now.pods} />
    </>
  );
}

interface TotalsProps {
  shown: Shown[];
  fleet: Rates | undefined;
  span: number | undefined;
}

function Totals({ shown, fleet, span }: TotalsProps) {
  const sessions = shown.reduce((sum, { row }) => sum + (row.status?.sessions ?? 0), 0);
  const at = (part: number) => (fleet ? quantile(part, fleet.durations, fleet.bounds) : undefined);
  const hint = span ? text.window(Math.round(span / 1000)) : text.since;
  const figures = [
    { name: text.pods, value: String(shown.length) },
    { name: text.sessions, value: sessions.toLocaleString("en") },
    { name: text.calls, value: rate(fleet?.calls), hint },
    { name: text.failed, value: rate(fleet?.failed), hint },
    { name: text.refused, value: rate(fleet?.refused), hint },
    { name: text.p50, value: duration(at(0.5)), hint },
    { name: text.p95, value: duration(at(0.95)), hint },
    { name: text.p99, value: duration(at(0.99)), hint },
  ];
  return (
    <dl class="figures panel">
      {figures.map((figure) => (
        <div key={figure.name} title={figure.hint}>
          <dt>{figure.name}</dt>
          <dd>{figure.value}</dd>
        </div>
      ))}
    </dl>
  );
}

function rate(n: number | undefined): string {
  if (n === undefined) return "–";
  return n.toLocaleString("en", { maximumFractionDigits: n < 10 ? 1 : 0 });
}

function CallChart({ samples }: { samples: Sample[] }) {
  const times: number[] = [];
  const values: number[] = [];
  for (let i = 1; i < samples.length; i++) {
    const fleet = sum(shownOf(samples[i]!, samples[i - 1]).flatMap(({ rates }) => rates ?? []));
    times.push(samples[i]!.at / 1000);
    values.push(fleet?.calls ?? 0);
  }
  return (
    <Panel title={text.chart}>
      <Chart label={text.chart} times={times} names={[text.calls]} values={[values]} unit={rate} span={300} />
    </Panel>
  );
}

function State({ status }: { status: PodStatus | undefined }) {
  if (!status) {
    return (
      <Badge tone="bad" title={text.silentHint}>
        {text.silent}
      </Badge>
    );
  }
  const redisLost = status.redis && !status.redis.ready;
  return (
    <span class="badges">
      {redisLost && <Badge tone="bad">{text.redisLost}</Badge>}
      {status.draining && <Badge tone="warn">{text.draining}</Badge>}
      {status.warnings?.map((warning) => (
        <Badge key={warning} tone="warn">
          {text.warnings[warning] ?? warning}
        </Badge>
      ))}
      {!redisLost && !status.draining && <Badge tone="good">{text.ready}</Badge>}
    </span>
  );
}

function PodTable({ shown }: { shown: Shown[] }) {
  const figure = (title: string, of: (status: PodStatus, rates: Rates) => string) => ({
    title,
    number: true,
    cell: ({ row, rates }: Shown) => (row.status && rates ? of(row.status, rates) : "–"),
  });
  return (
    <Table
      label={text.pods}
      rows={shown}
      keyOf={({ row }) => row.pod}
      columns={[
        {
          title: text.pod,
          cell: ({ row }) => (
            <>
              <span class="with-dot">
                <Dot tone={!row.status ? "bad" : row.status.draining ? "warn" : "good"} />
                <span class="mono pod">{row.pod}</span>
              </span>
              {row.self && <span class="sub">{text.self}</span>}
            </>
          ),
        },
        { title: text.state, cell: ({ row }) => <State status={row.status} /> },
        figure(text.sessions, (status) => status.sessions.toLocaleString("en")),
        figure(text.calls, (_, rates) => rate(rates.calls)),
        figure(text.p50, (_, rates) => duration(quantile(0.5, rates.durations, rates.bounds))),
        figure(text.p99, (_, rates) => duration(quantile(0.99, rates.durations, rates.bounds))),
        figure(text.refused, (_, rates) => rate(rates.refused)),
        figure(text.running, (status) => String(status.in_progress)),
        figure(text.turns, (status) => String(status.turns)),
        figure(text.streams, (status) => String(status.streams)),
        figure(text.memory, (status) => bytes(status.memory_bytes)),
        figure(text.redis, (status, rates) =>
          status.redis ? text.redisP99(duration(quantile(0.99, rates.redis, rates.redisBounds))) : text.inMemory,
        ),
        {
          title: text.up,
          cell: ({ row }) =>
            row.status ? (
              <>
                <Time at={row.status.started_at} />
                <span class="sub">{row.status.version}</span>
              </>
            ) : (
              "–"
            ),
        },
      ]}
    />
  );
}

function Refusals({ pods }: { pods: PodRow[] }) {
  const codes: Record<string, number> = {};
  for (const { status } of pods) {
    for (const [code, n] of Object.entries(status?.refused ?? {})) codes[code] = (codes[code] ?? 0) + n;
  }
  const sorted = Object.entries(codes).sort(([, a], [, b]) => b - a);
  return (
    <Panel title={text.refusals}>
      {total(codes) === 0 ? (
        <p class="muted">{text.noRefusals}</p>
      ) : (
        <dl class="facts">
          {sorted.map(([code, n]) => (
            <Refusal key={code} code={code} n={n} />
          ))}
        </dl>
      )}
    </Panel>
  );
}

function Refusal({ code, n }: { code: string; n: number }) {
  return (
    <>
      <dt class="mono">{code}</dt>
      <dd>{n.toLocaleString("en")}</dd>
    </>
  );
}
