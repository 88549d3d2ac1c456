import { useEffect, useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { path, Problem } from "../../api/client";
import type { Approval, AuditPage, CallRecord } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { Copy, Empty, Failure, Loading, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { nameOf } from "../fleet";
import { to } from "../query";
import { client, may, me } from "../session";
import { duration, Fact, Head, isFinal } from "./bits";
import { isMissing, useCall } from "./call";
import { CallView } from "./callview";
import { Counts, isGroup } from "./group";

const text = words.call;

/** The whole story of one call. */
export function OneCall({ id }: { id: string }) {
  const [version, setVersion] = useState(0);
  const watched = useCall(id, version);
  const { record, error } = watched;
  useLateAnswer(record, () => setVersion((n) => n + 1));
  const back = <Link href="/calls">{text.back}</Link>;
  if (!record && isMissing(error)) {
    return (
      <Empty title={text.missing.title}>
        <p class="muted">{text.missing.text}</p>
        {back}
      </Empty>
    );
  }
  if (!record)
    return error === undefined ? <Loading /> : <Failure error={error} retry={() => setVersion(version + 1)} />;
  return (
    <>
      <Head back={back} title={<span class="mono">{record.tool}</span>} />
      <div class="columns">
        <div class="stack">
          <CallView watched={watched} />
        </div>
        <div class="stack">
          <About record={record} />
          {record.approval_id && may("approver") && <ApprovalOf id={record.approval_id} state={record.state} />}
          {may("admin") && <Decisions call={record} />}
        </div>
      </div>
    </>
  );
}

const lateStates = ["cancelled", "timed_out", "lost"];
const lateReads = 7; // after 1 s, and then after twice the time before

/** useLateAnswer reads a call again a few times after its end, if the device may still answer. No event says so. */
function useLateAnswer(record: CallRecord | undefined, read: () => void): void {
  const waits = record && lateStates.includes(record.state) && record.dispatched !== "no";
  const done = useRef(0);
  useEffect(() => {
    if (!waits || done.current >= lateReads) return;
    const timer = setTimeout(read, 1000 * 2 ** done.current++);
    return () => clearTimeout(timer);
  }, [waits, record]);
}

function About({ record }: { record: CallRecord }) {
  const { facts, group: groups } = text;
  const session = record.session_id;
  const delivered = record.timeline.some((step) => step.state === "delivered" || step.state === "running");
  return (
    <Panel title={text.about}>
      <dl class="facts">
        <Fact
          name={facts.id}
          value={
            <>
              <span class="mono">{record.call_id}</span> <Copy text={record.call_id} />
            </>
          }
        />
        <Fact name={facts.tool} value={<Link href={to.tool(session, record.tool)}>{record.tool}</Link>} />
        <Fact
          name={facts.device}
          value={session && <Link href={to.device(session)}>{nameOf(session) ?? (record.device_id || session)}</Link>}
        />
        <Fact name={facts.source} value={record.source} />
        <Fact name={facts.user} value={record.user_id} />
        <Fact name={facts.mode} value={isGroup(record) ? groups.modes[record.mode] : record.mode} />
        <Fact name={groups.title} value={record.counts && <Counts counts={record.counts} />} />
        <Fact
          name={groups.title}
          value={isGroup(record) && <Link href={to.calls({ parent: record.call_id })}>{groups.children}</Link>}
        />
        <Fact
          name={groups.parent}
          value={record.parent_id && <Link class="mono" href={to.call(record.parent_id)}>{record.parent_id}</Link>}
        />
        <Fact
          name={facts.turn}
          value={
            record.turn_id &&
            (session && me.value?.chat ? (
              <Link class="mono" href={to.chat(session)}>
                {record.turn_id}
              </Link>
            ) : (
              <span class="mono">{record.turn_id}</span>
            ))
          }
        />
        <Fact
          name={facts.approval}
          value={
            record.approval_id && (
              <Link class="mono" href={to.approval(record.approval_id)}>
                {record.approval_id}
              </Link>
            )
          }
        />
        <Fact name={facts.timeout} value={record.timeout_ms > 0 && duration(record.timeout_ms)} />
        <Fact name={facts.pod} value={<span class="mono">{record.pod}</span>} />
        <Fact name={facts.owner} value={record.owner && <span class="mono">{record.owner}</span>} />
        <Fact
          name={facts.receipts}
          value={
            session &&
            (delivered ? text.delivered(record.owner ?? record.pod) : isFinal(record.state) && text.noReceipt)
          }
        />
        <Fact
          name={facts.digest}
          value={
            record.args_digest && (
              <span class="mono cut" title={record.args_digest}>
                {record.args_digest.slice(0, 16)}…
              </span>
            )
          }
        />
      </dl>
    </Panel>
  );
}

function ApprovalOf({ id, state }: { id: string; state: string }) {
  const { value, error } = useLoaded(
    (signal) => client.get<Approval>(path("api", "approvals", id), { signal }),
    [id, state],
  );
  if (error instanceof Problem && error.status === 404) return null;
  if (!value) return error === undefined ? <Loading /> : <Failure error={error} />;
  return (
    <Panel title={text.facts.approval} actions={<Link href={to.approval(id)}>{text.decide}</Link>}>
      <dl class="facts">
        <Fact name={words.calls.filters.state} value={value.state} />
        <Fact name={text.rule} value={<code>{value.rule}</code>} />
        <Fact name="" value={value.reason} />
        <Fact name={text.by} value={value.decided_by} />
        <Fact name={words.calls.filters.time} value={value.decided_at && <Time at={value.decided_at} />} />
      </dl>
    </Panel>
  );
}

/** What decided about the call: the lines of the audit log about it. */
function Decisions({ call }: { call: CallRecord }) {
  const { value, error } = useLoaded(
    (signal) => client.get<AuditPage>("/api/audit", { signal, query: { call_id: call.call_id, limit: 20 } }),
    [call.call_id, call.state],
  );
  return (
    <Panel title={text.decisions}>
      {error !== undefined && <Failure error={error} />}
      {value?.lines.length === 0 && <p class="muted">{text.noDecisions}</p>}
      <ul class="stack">
        {value?.lines.toReversed().map((line) => (
          <li key={line.id}>
            <strong>{line.action}</strong> <span class="muted">{line.outcome}</span>
            <dl class="facts">
              <Fact
                name={text.rule}
                value={line.rule ? <code>{line.rule}</code> : line.action === "call" && text.byDefault}
              />
              <Fact name={text.by} value={line.actor.user ?? line.actor.name ?? line.actor.credential} />
              <Fact name={text.problem} value={line.reason} />
              <Fact name={words.calls.filters.time} value={<Time at={line.at} />} />
            </dl>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
