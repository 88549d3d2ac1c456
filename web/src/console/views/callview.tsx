// What happens with one call: its timeline, its progress and its result. Shown beside a tool, and on the call's page.

import { useEffect, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { path } from "../../api/client";
import type { CallRecord, CallState } from "../../api/types";
import { Button, classes, Failure, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { nameOf } from "../fleet";
import { to } from "../query";
import { client, may } from "../session";
import { duration, isFinal, State, toneOf, tookOf } from "./bits";
import type { Watched } from "./call";
import { Result } from "./result";
import "./callview.css";

const text = words.call;

export function CallView({ watched }: { watched: Watched }) {
  const { record, error } = watched;
  if (!record) return error === undefined ? null : <Failure error={error} />;
  const waits = record.state === "accepted" && record.approval_id;
  return (
    <>
      {waits && (
        <div class="notice warn" role="status">
          <h3>{text.waits}</h3>
          <p>{text.waitsText}</p>
          {may("approver") && <Link href={to.approval(record.approval_id!)}>{text.decide}</Link>}
        </div>
      )}
      {record.state === "queued" && (
        <div class="notice" role="status">
          <h3>{text.queued(record.place)}</h3>
          <p>
            {text.queuedText} <Time at={record.expires_at} />
          </p>
        </div>
      )}
      <Panel title={text.timeline} actions={<CancelCall record={record} />}>
        <Timeline record={record} />
        <Progress watched={watched} />
      </Panel>
      {error !== undefined && <Failure error={error} />}
      {isFinal(record.state) && <Ended record={record} />}
    </>
  );
}

export function CancelCall({ record, onDone }: { record: CallRecord; onDone?: () => void }) {
  if (isFinal(record.state)) return <State call={record} />;
  return (
    <Button small look="danger" onClick={() => client.delete(path("api", "calls", record.call_id)).then(onDone)}>
      {words.tool.cancel}
    </Button>
  );
}

function Timeline({ record }: { record: CallRecord }) {
  const { timeline } = record;
  const over = isFinal(record.state);
  return (
    <ol class="timeline">
      {timeline.map((step, i) => {
        const before = timeline[i - 1];
        return (
          <li key={step.state + i} class={classes(toneOf(step.state), i === timeline.length - 1 && !over && "current")}>
            <span class="step">{text.states[step.state]}</span>
            <span class="muted cut" title={whereOf(record, step.state)}>
              {whereOf(record, step.state)}
            </span>
            <time class="muted number" dateTime={step.at} title={step.at}>
              {before ? "+" + duration(Date.parse(step.at) - Date.parse(before.at)) : clock(step.at)}
            </time>
          </li>
        );
      })}
      <li class="total">
        <span class="step">{text.total}</span>
        <span />
        <span class="number">{over ? duration(tookOf(record)) : <Elapsed since={timeline[0]?.at} />}</span>
      </li>
    </ol>
  );
}

function whereOf(record: CallRecord, state: CallState): string {
  const device = nameOf(record.session_id) ?? (record.device_id || sourceOf(record));
  if (state === "queued") return text.where.queued(device);
  if (state === "accepted") return text.where.accepted(record.pod);
  if (state === "routed") return text.where.routed(record.owner ?? record.pod);
  if (state === "delivered") return text.where.delivered(device);
  if (state === "running") return text.where.running(device);
  return "";
}

/** Where a tool without a device runs. */
export function sourceOf({ source }: Pick<CallRecord, "source">): string {
  return !source || source === "builtin" ? text.gateway : source;
}

function clock(at: string): string {
  return new Date(at).toLocaleTimeString("en", { hour12: false });
}

function Elapsed({ since }: { since: string | undefined }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  if (!since) return null;
  return <>{Math.max(0, Math.floor((now - Date.parse(since)) / 1000))} s</>;
}

function Progress({ watched }: { watched: Watched }) {
  const { progress, messages, chunks, truncated } = watched;
  if (!progress && messages.length === 0 && !chunks) return null;
  const { progress: done, total } = progress ?? {};
  return (
    <div class="progress">
      {done !== undefined && (
        <div class="progress-bar">
          <progress aria-label={text.progress} {...(total ? { value: done, max: total } : {})} />
          <span class="number">{total ? `${done} / ${total}` : done}</span>
        </div>
      )}
      {messages.length > 0 && (
        <ol class="messages" aria-live="polite">
          {messages.slice(-8).map((event, i) => (
            <li key={event.at + i}>{event.message}</li>
          ))}
        </ol>
      )}
      {chunks && <pre class="output">{chunks}</pre>}
      {truncated && <p class="muted">{text.truncated}</p>}
    </div>
  );
}

function Ended({ record }: { record: CallRecord }) {
  return (
    <Panel title={record.problem ? text.problem : text.result}>
      <div class="stack">
        {record.late && (
          <p class="notice warn" role="status">
            {text.late}
          </p>
        )}
        {record.problem && (
          <div class="notice bad">
            <p>{record.problem.detail}</p>
            <p class="muted">
              <code>{record.problem.code}</code> · {text.dispatched[record.dispatched]}{" "}
              {record.retryable && text.retryable}
            </p>
          </div>
        )}
        {record.success !== undefined && <Result record={record} />}
      </div>
    </Panel>
  );
}
