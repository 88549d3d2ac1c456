// What the policy decides about a question.

import { useState } from "preact/hooks";
import type { PolicyDecision, PolicyDemand, PolicyQuestion } from "../../api/types";
import { Button, Failure, Field, Panel } from "../../ui/parts";
import { words } from "../../words/en";
import { client } from "../session";

const text = words.policy;

const contexts = ["main", "group", "group sandboxed"] as const;
const levels = ["safe", "user_confirm", "admin_only"] as const;
const sources = ["", "remote", "builtin", "mcp"] as const;
const effects = ["read_only", "destructive", "open_world"] as const;
const roles = ["caller", "approver", "device", "admin"] as const;

export function Explain() {
  const [question, setQuestion] = useState<PolicyQuestion>({ tool: "", roles: ["caller"] });
  const [answer, setAnswer] = useState<PolicyDecision>();
  const [error, setError] = useState<unknown>();
  const change = (part: Partial<PolicyQuestion>) => setQuestion((now) => ({ ...now, ...part }));
  const ask = async () => {
    setError(undefined);
    try {
      const { source, user_id: user, ...rest } = question;
      setAnswer(
        await client.post<PolicyDecision>("/api/policy/explain", {
          ...rest,
          ...(source ? { source } : {}),
          ...(user ? { user_id: user } : {}),
        }),
      );
    } catch (thrown) {
      setAnswer(undefined);
      setError(thrown);
    }
  };
  const declared = question.effects ?? [];
  return (
    <Panel title={text.explain}>
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          void ask();
        }}
      >
        <Field label={text.tool}>
          <input
            class="input mono"
            required
            maxLength={64}
            value={question.tool}
            onInput={(event) => change({ tool: event.currentTarget.value })}
          />
        </Field>
        <Field label={text.user} hint={text.userHint}>
          <input class="input" maxLength={200} onInput={(event) => change({ user_id: event.currentTarget.value })} />
        </Field>
        <div class="pair">
          <Choice
            label={text.role}
            options={roles.map((role) => [role, role])}
            onChange={(role) => change({ roles: [role] })}
          />
          <Choice
            label={text.context}
            options={contexts.map((one) => [one, text.contexts[one]])}
            onChange={(context) => change({ context })}
          />
          <Choice
            label={text.level}
            options={levels.map((one) => [one, text.levels[one]])}
            onChange={(level) => change({ security_level: level })}
          />
          <Choice
            label={text.source}
            options={sources.map((one) => [one, text.sources[one]])}
            onChange={(source) => change({ source: source as NonNullable<PolicyQuestion["source"]> })}
          />
        </div>
        <fieldset class="checks">
          <legend class="label">{text.effects}</legend>
          {effects.map((effect) => (
            <Check
              key={effect}
              label={text.effect[effect]}
              onChange={(on) => {
                const others = declared.filter((one) => one !== effect);
                change({ effects: on ? [...others, effect] : others });
              }}
            />
          ))}
        </fieldset>
        <div class="checks">
          <Check label={text.model} onChange={(model) => change({ model })} />
          <Check label={text.mcp} onChange={(over) => change({ over_mcp: over })} />
          <Check label={text.register} onChange={(register) => change({ register })} />
        </div>
        <Button type="submit" look="first" disabled={!question.tool.trim()}>
          {text.ask}
        </Button>
        <div aria-live="polite">
          {answer && <Answer answer={answer} register={question.register === true} />}
          {error !== undefined && <Failure error={error} />}
        </div>
      </form>
    </Panel>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  options: (readonly [T, string])[];
  onChange: (value: T) => void;
}

function Choice<T extends string>({ label, options, onChange }: ChoiceProps<T>) {
  return (
    <Field label={label}>
      <select class="input" onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map(([value, name]) => (
          <option key={value} value={value}>
            {name}
          </option>
        ))}
      </select>
    </Field>
  );
}

function Check({ label, onChange }: { label: string; onChange: (on: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" onChange={(event) => onChange(event.currentTarget.checked)} />
      {label}
    </label>
  );
}

function Answer({ answer, register }: { answer: PolicyDecision; register: boolean }) {
  return (
    <section class={answer.allowed ? "verdict good" : "verdict bad"} aria-label={text.explain}>
      <h3>{answer.allowed ? text.allowed : text.denied}</h3>
      <dl class="facts">
        <dt>{text.rule}</dt>
        <dd>{answer.rule ? <code>{answer.rule}</code> : text.noRule}</dd>
        {answer.reason && (
          <>
            <dt>{text.reason}</dt>
            <dd class="bidi">{answer.reason}</dd>
          </>
        )}
        {!register && (
          <>
            <Demands title={text.needs} list={answer.approvals} />
            <Demands title={text.forbids} list={answer.forbidden} />
            <dt>{text.level}</dt>
            <dd>{answer.security_level}</dd>
            {answer.effects.length > 0 && (
              <>
                <dt>{text.effectsOf}</dt>
                <dd>{answer.effects.join(", ")}</dd>
              </>
            )}
            {answer.destinations && (
              <>
                <dt>{text.destinations}</dt>
                <dd>
                  <code>{answer.destinations.join(" ")}</code>
                </dd>
              </>
            )}
            {answer.limits.length > 0 && (
              <>
                <dt>{text.limits}</dt>
                <dd>
                  {answer.limits.map((limit, i) => (
                    <span key={i} class="line">
                      {text.limit(limit.calls, limit.window_seconds, limit.per)}{" "}
                      <span class="muted">{text.byRule(limit.rule)}</span>
                    </span>
                  ))}
                </dd>
              </>
            )}
          </>
        )}
      </dl>
    </section>
  );
}

function Demands({ title, list }: { title: string; list: PolicyDemand[] }) {
  if (list.length === 0) return null;
  return (
    <>
      <dt>{title}</dt>
      <dd>
        {list.map((demand, i) => (
          <span key={i} class="line">
            {demand.when}
            {demand.only_urls && ` (${text.onlyURLs})`} <code>{demand.rule}</code>
          </span>
        ))}
      </dd>
    </>
  );
}
