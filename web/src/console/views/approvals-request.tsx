// One request for approval: all that a person needs to decide it.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import type { Approval, ApprovalRow, ArgumentSource, Requester } from "../../api/types";
import { Badge, classes, Time, type Tone } from "../../ui/parts";
import { words } from "../../words/en";
import { to } from "../query";
import { may } from "../session";
import { EffectMarks } from "./effects";
import { Table } from "./table";
import "./approvals.css";

const text = words.approvals;

/** The time until a request expires. */
export function Left({ at }: { at: string }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.max(0, Math.ceil((Date.parse(at) - now) / 1000));
  return (
    <span class={classes("left", seconds < 30 && "soon")} title={new Date(at).toLocaleString("en")}>
      {seconds > 0 ? text.left(clock(seconds)) : text.over}
    </span>
  );
}

function clock(seconds: number): string {
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h` : `${Math.floor(hours / 24)} d`;
}

const tones: Record<Approval["state"], Tone> = {
  pending: "warn",
  allowed: "good",
  denied: "bad",
  expired: "bad",
  withdrawn: "",
};

export function ApprovalState({ approval }: { approval: ApprovalRow }) {
  return <Badge tone={tones[approval.state]}>{text.states[approval.state]}</Badge>;
}

export function nameOf({ user_id: user, name, credential }: Requester): string {
  return user ?? name ?? credential ?? text.someone;
}

/** Who makes the call, with the key's name. */
export function By({ requester }: { requester: Requester }) {
  const { user_id: user, name } = requester;
  return (
    <>
      {requester.model && <span class="muted">{text.model} </span>}
      <span class="bidi">{nameOf(requester)}</span>
      {user && name && <span class="muted"> · {name}</span>}
    </>
  );
}

export function where(row: ApprovalRow): string {
  return row.device_name ?? row.device_id ?? row.session_id ?? text.gateway;
}

export function Request({ approval, children }: { approval: Approval; children?: ComponentChildren }) {
  return (
    <section class="panel" aria-label={approval.tool}>
      <div class="body request">
        <header>
          <h1 class="mono">{approval.tool}</h1>
          <ApprovalState approval={approval} />
          {approval.state === "pending" && <Left at={approval.expires_at} />}
          {approval.decided_by && <span class="muted">{text.decidedBy(approval.decided_by)}</span>}
        </header>
        <p class="why">{approval.reason}</p>
        {approval.comment && <blockquote class="notice bidi">{approval.comment}</blockquote>}
        <Warnings approval={approval} />
        <Facts approval={approval} />
        <div class="stack">
          <h2>{text.arguments}</h2>
          {approval.args_text === "{}" ? (
            <p class="muted">{text.noArguments}</p>
          ) : (
            <pre class="args">{approval.args_text}</pre>
          )}
        </div>
        {approval.arguments && approval.arguments.length > 0 && <Sources list={approval.arguments} />}
        {children}
      </div>
    </section>
  );
}

export function Warnings({ approval }: { approval: Approval }) {
  const own = approval.state === "pending" && !approval.may_decide;
  const all = [
    approval.looks_like && text.alike(approval.looks_like),
    ...approval.remarks.map((remark) => text.remarks[remark]),
    approval.by === "two" && (approval.allowed_by ? text.twoFirst(approval.allowed_by) : text.two),
    own && text.own,
  ].filter(Boolean);
  if (all.length === 0) return null;
  return (
    <ul class="notice warn">
      {all.map((warning, i) => (
        <li key={i} class="bidi">
          {warning}
        </li>
      ))}
    </ul>
  );
}

function Facts({ approval }: { approval: Approval }) {
  return (
    <dl class="facts">
      <dt>{text.by}</dt>
      <dd>
        <By requester={approval.requester} />
      </dd>
      <dt>{text.on}</dt>
      <dd class="bidi">
        {approval.session_id && may("caller") ? (
          <Link href={to.device(approval.session_id)}>{where(approval)}</Link>
        ) : (
          where(approval)
        )}
        {approval.device_name && approval.device_id && <span class="muted"> · {approval.device_id}</span>}
      </dd>
      {approval.effects && (
        <>
          <dt>{text.effects}</dt>
          <dd class="badges">
            <EffectMarks effects={approval.effects} />
          </dd>
        </>
      )}
      {approval.devices && approval.devices.length > 0 && (
        <>
          <dt>{text.devices(approval.devices.length)}</dt>
          <dd class="bidi">
            {approval.devices.map(({ session_id: id, name, device_id: device }) => name ?? device ?? id).join(", ")}
          </dd>
        </>
      )}
      <dt>{text.rule}</dt>
      <dd class="mono">{approval.rule}</dd>
      <dt>{text.call}</dt>
      <dd>
        <Time at={approval.created_at} />
        {may("caller") && (
          <>
            {" · "}
            <Link href={to.call(approval.call_id)} class="mono">
              {approval.call_id.slice(0, 8)}
            </Link>
          </>
        )}
        {" · "}
        <span class="muted">{text.mode[approval.mode]}</span>
      </dd>
      {approval.approvers && approval.approvers.length > 0 && (
        <>
          <dt>{text.approvers}</dt>
          <dd class="bidi">{approval.approvers.join(", ")}</dd>
        </>
      )}
    </dl>
  );
}

export function Sources({ list }: { list: ArgumentSource[] }) {
  return (
    <div class="stack">
      <h2>{text.sources}</h2>
      <Table
        label={text.sources}
        rows={list}
        keyOf={(one) => one.pointer + one.value}
        columns={[
          { title: text.source.argument, cell: (one) => <code>{one.pointer || "/"}</code> },
          { title: text.source.value, cell: (one) => <span class="bidi">{one.value}</span>, wide: true },
          {
            title: text.source.from,
            cell: (one) => (
              <span class="bidi">
                {one.source === "model" ? text.fromModel : one.source}
                {one.record && <span class="sub">{one.record}</span>}
              </span>
            ),
          },
        ]}
      />
    </div>
  );
}
