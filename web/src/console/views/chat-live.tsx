// A turn that this page has begun, as it comes.

import { useState } from "preact/hooks";
import type { Approval } from "../../api/types";
import { Failure } from "../../ui/parts";
import { words } from "../../words/en";
import { may } from "../session";
import { Decide } from "./approvals-decide";
import { ApprovalState, By, Left, Sources, Warnings } from "./approvals-request";
import { Bubble, Call, Thinking } from "./chat-message";
import { Markdown } from "./chat-markdown";
import type { LiveItem, LiveTurn } from "./chat-turns";

const text = words.chat;

export function Live({ turn }: { turn: LiveTurn }) {
  const last = turn.items.at(-1);
  const waiting = turn.items.flatMap((item) =>
    item.kind === "approval" && item.approval.state === "pending" ? item.approval.call_id : [],
  );
  const working = turn.state === "running" && waiting.length === 0 && last?.kind !== "text";
  return (
    <>
      {turn.said && (
        <Bubble who="user">
          <p class="pre">{turn.said}</p>
        </Bubble>
      )}
      {turn.items.map((item, i) => (
        <Item key={keyOf(item, i)} item={item} waits={item.kind === "call" && waiting.includes(item.id)} />
      ))}
      {working && <p class="muted working">{text.running}</p>}
      {turn.state === "aborted" && <p class="muted">{text.aborted}</p>}
      {turn.state === "failed" && <Failure error={turn.error} />}
    </>
  );
}

function keyOf(item: LiveItem, i: number): string {
  if (item.kind === "call") return item.id;
  return item.kind === "approval" ? item.approval.id : String(i);
}

function Item({ item, waits }: { item: LiveItem; waits: boolean }) {
  switch (item.kind) {
    case "text":
      return (
        <Bubble who="assistant">
          <Markdown text={item.text} />
        </Bubble>
      );
    case "thinking":
      return <Thinking content={item.text} />;
    case "call": {
      const open = waits ? "waits" : "running";
      const state = item.status === "completed" ? "done" : item.status === "failed" ? "failed" : open;
      return <Call call={{ ...item, state }} />;
    }
    case "approval":
      return <Question approval={item.approval} />;
  }
}

/** A request for approval within the conversation. */
function Question({ approval: asked }: { approval: Approval }) {
  const [decided, setDecided] = useState<Approval>();
  const approval = decided && asked.state === "pending" ? decided : asked;
  return (
    <section class="panel question" aria-label={words.approvals.title}>
      <div class="body request">
        <header>
          <h2 class="mono">{approval.tool}</h2>
          <ApprovalState approval={approval} />
          {approval.state === "pending" && <Left at={approval.expires_at} />}
        </header>
        <p>{approval.reason}</p>
        <Warnings approval={approval} />
        <dl class="facts">
          <dt>{words.approvals.by}</dt>
          <dd>
            <By requester={approval.requester} />
          </dd>
          <dt>{words.approvals.rule}</dt>
          <dd class="mono">{approval.rule}</dd>
        </dl>
        <pre class="args">{approval.args_text}</pre>
        {approval.arguments && approval.arguments.length > 0 && <Sources list={approval.arguments} />}
        {approval.state === "pending" &&
          (may("approver") ? (
            <Decide approval={approval} onDecided={setDecided} />
          ) : (
            <p class="muted">{text.approver}</p>
          ))}
      </div>
    </section>
  );
}
