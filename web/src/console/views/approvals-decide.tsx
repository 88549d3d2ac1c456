// The buttons that decide a request. They decide exactly what is shown beside them, and do nothing for a moment after
// they have appeared or moved: a click that was meant for something else must not allow a call.

import { useRef, useState } from "preact/hooks";
import type { Approval, Decision, DecisionRequest } from "../../api/types";
import { path } from "../../api/client";
import { useArmed } from "../../ui/armed";
import { Button, Field, notify } from "../../ui/parts";
import { words } from "../../words/en";
import { readPending } from "../pending";
import { client } from "../session";

const text = words.approvals;

const calm = 700; // ms that buttons must have been in sight at one place

const hour = 3_600_000;
const lives = { hour, day: 24 * hour, week: 7 * 24 * hour, month: 30 * 24 * hour };
type Life = keyof typeof lives;
type Scope = NonNullable<DecisionRequest["scope"]>;

interface DecideProps {
  approval: Approval;
  onDecided: (approval: Approval) => void;
}

export function Decide({ approval, onDecided }: DecideProps) {
  const bar = useRef<HTMLDivElement>(null);
  const armed = useArmed(bar, calm);
  const [comment, setComment] = useState("");
  const [always, setAlways] = useState(false);
  const decide = async (event: MouseEvent, request: DecisionRequest) => {
    if (!armed || !event.isTrusted) return;
    const answer = await client.post<Decision>(path("api", "approvals", approval.id), {
      ...request,
      ...(comment.trim() ? { comment: comment.trim() } : {}),
    });
    if (!answer.decided && answer.decided_by) notify(text.late(answer.decided_by), "warn");
    else notify(text.decided[answer.state], answer.state === "allowed" || answer.state === "pending" ? "good" : "");
    void readPending();
    onDecided(answer);
  };
  const inert = armed ? undefined : "true";
  return (
    <div class="decide" ref={bar} title={armed ? undefined : text.armed}>
      {always && <Always inert={inert} onAllow={(event, request) => decide(event, request)} />}
      <div class="choices">
        <input
          class="input comment"
          aria-label={text.comment}
          title={text.commentHint}
          placeholder={text.comment}
          maxLength={120}
          value={comment}
          onInput={(event) => setComment(event.currentTarget.value)}
        />
        <Button look="danger" aria-disabled={inert} onClick={(event) => decide(event, { decision: "deny" })}>
          {text.deny}
        </Button>
        {approval.may_decide && (
          <>
            {approval.by !== "two" && (
              <Button aria-expanded={always} onClick={() => setAlways(!always)}>
                {text.always}
              </Button>
            )}
            <Button look="first" aria-disabled={inert} onClick={(event) => decide(event, { decision: "allow-once" })}>
              {text.once}
            </Button>
          </>
        )}
      </div>
    </div>
  );
}

interface AlwaysProps {
  inert: "true" | undefined;
  onAllow: (event: MouseEvent, request: DecisionRequest) => unknown;
}

function Always({ inert, onAllow }: AlwaysProps) {
  const [scope, setScope] = useState<Scope>("arguments");
  const [life, setLife] = useState<Life>("day");
  return (
    <div class="always" role="group" aria-label={text.alwaysTitle}>
      <p>{text.alwaysText}</p>
      <Field label={text.scope}>
        <select class="input" value={scope} onChange={(event) => setScope(event.currentTarget.value as Scope)}>
          <option value="arguments">{text.scopes.arguments}</option>
          <option value="tool">{text.scopes.tool}</option>
        </select>
      </Field>
      <Field label={text.expiry}>
        <select class="input" value={life} onChange={(event) => setLife(event.currentTarget.value as Life)}>
          {(Object.keys(lives) as Life[]).map((name) => (
            <option key={name} value={name}>
              {text.expiries[name]}
            </option>
          ))}
        </select>
      </Field>
      <Button
        aria-disabled={inert}
        onClick={(event) => onAllow(event, { decision: "allow-always", scope, expires_in_ms: lives[life] })}
      >
        {text.allowAlways}
      </Button>
    </div>
  );
}
