import { lazy, Suspense } from "preact/compat";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { path } from "../../api/client";
import type { CallAccepted, CallAnswer, Tool, ToolList } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { Button, Empty, Failure, Field, Loading, Panel } from "../../ui/parts";
import { words } from "../../words/en";
import { titleOf } from "../fleet";
import { type Known, readSession } from "../known";
import { useEvents } from "../feed";
import { to, useQuery } from "../query";
import { client } from "../session";
import { Boundary, Head, isFinal, Segmented } from "./bits";
import { useCall } from "./call";
import { CallView } from "./callview";
import { CopyAs } from "./copybox";
import { Choose, GroupView, oneDevice, requestOf, runs, useGroup } from "./group";
import { isSmall } from "./schemasize";
import { ToolMarks } from "./toollist";
import type { Violation } from "./validate";
import "./tool.css";

const text = words.tool;
const firstWait = "3600000"; // ms that a call of a sleeping device may wait
const Form = lazy(() => import("./form"));

export type Args = Record<string, unknown>;

/** OnCall calls the tool, unless the arguments do not fit its schema: then it returns why. */
export type OnCall = (args: Args) => Promise<Violation[]>;

interface Found {
  tool: Tool | undefined;
  session: Known | undefined;
}

/** One tool: its arguments, a call of it, and what happens with it. Without a session, the tool is the gateway's. */
export function TryTool({ session: id, name }: { session?: string; name: string }) {
  const shown = useRef<Tool>(); // stays while its device connects, and has not registered it again
  useEffect(() => () => void (shown.current = undefined), [id, name]);
  const { value, error, reload } = useLoaded<Found>(
    async (signal) => {
      if (id) {
        const session = await readSession(id, signal);
        shown.current = session.tools.find((tool) => tool.name === name) ?? shown.current;
        return { session, tool: shown.current };
      }
      const { tools } = await client.get<ToolList>("/api/tools", { signal, query: { name } });
      return { session: undefined, tool: tools.find((tool) => tool.source_type !== "remote") };
    },
    [id, name],
  );
  useEvents(({ type, session_id: changed, device_id: device }) => {
    const its = id !== undefined && (changed === id || (device && device === value?.session?.device_id));
    if (its && type.startsWith("session.")) reload();
  });
  if (error !== undefined && !value) return <Failure error={error} retry={reload} />;
  if (!value) return <Loading />;
  const back = (
    <>
      <Link href="/devices">{words.device.back}</Link>
      {id ? (
        <Link href={to.device(id)}>{value.session ? titleOf(value.session) : id}</Link>
      ) : (
        <Link href="/tools">{words.tools.title}</Link>
      )}
    </>
  );
  if (!value.tool) {
    return (
      <Empty title={text.missing.title}>
        <p class="muted">{text.missing.text}</p>
        <div class="crumbs">{back}</div>
      </Empty>
    );
  }
  return (
    <>
      <Head
        back={back}
        title={
          <>
            <span class="mono">{name}</span>
            <ToolMarks tool={value.tool} />
          </>
        }
      />
      <p class="tool-about">{value.tool.description}</p>
      <Desk key={value.tool.schema_hash} tool={value.tool} session={value.session} />
    </>
  );
}

function Desk({ tool, session }: { tool: Tool; session: Known | undefined }) {
  const [query, setQuery] = useQuery();
  const [args, setArgs] = useState<Args>({});
  const [seconds, setSeconds] = useState("");
  const [problem, setProblem] = useState<unknown>();
  const id = query("call") || undefined;
  const watched = useCall(id);
  const timeout = Number(seconds) > 0 ? Math.round(Number(seconds) * 1000) : undefined;
  const [sending, setSending] = useState(false);
  const left = useRef(false);
  useEffect(() => () => void (left.current = true), []);
  const state = watched.record?.state;
  const running = state ? !isFinal(state) && state !== "queued" : id !== undefined && watched.error === undefined;
  const [choice, setChoice] = useState(oneDevice);
  const [group, callGroup] = useGroup();
  const [wait, setWait] = useState(firstWait);
  const asleep = session?.last_seen !== undefined;
  const waits = asleep && (!choice.devices || choice.mode === "all");
  const queue = waits ? Number(wait) : undefined;
  const busy = sending || running || runs(group);
  const call: OnCall = async (given) => {
    setProblem(undefined);
    setSending(true);
    try {
      const { check } = await import("./validate");
      const violations = await check(tool.parameters, given);
      if (violations.length > 0 || left.current) return violations;
      if (session && choice.devices) {
        const times = { ...(timeout && { device_timeout_ms: timeout }), ...(queue && { queue: { ttl_ms: queue } }) };
        await callGroup({ ...requestOf(choice, session, tool.name, given), ...times });
        setQuery({ call: "" });
        return [];
      }
      const at = path("api", ...(session ? ["sessions", session.session_id] : []), "tools", tool.name, "call");
      const body = {
        args: given,
        mode: "async",
        ...(timeout && { timeout_ms: timeout }),
        ...(queue && { queue: { ttl_ms: queue } }),
      };
      const accepted = await client.post<CallAccepted | CallAnswer>(at, body);
      if (!left.current) setQuery({ call: accepted.call_id });
    } catch (error) {
      setProblem(error);
    } finally {
      setSending(false);
    }
    return [];
  };
  const label = choice.devices
    ? text.group.call
    : asleep
      ? text.queue.call
      : id !== undefined
        ? text.again
        : text.call;
  return (
    <div class="halves">
      <div class="stack">
        <Editor tool={tool} args={args} onChange={setArgs} onCall={call} busy={busy} label={label}>
          {session && <Choose session={session} choice={choice} onChange={setChoice} />}
          {waits && <Wait value={wait} onChange={setWait} />}
          <Field label={text.timeout} hint={text.timeoutUnit}>
            <input
              class="input"
              type="number"
              min="0.1"
              step="any"
              inputMode="decimal"
              value={seconds}
              placeholder={tool.timeout_ms ? String(tool.timeout_ms / 1000) : ""}
              onInput={(event) => setSeconds(event.currentTarget.value)}
            />
          </Field>
        </Editor>
        {!choice.devices && <CopyAs call={{ tool: tool.name, session: session?.session_id, args, timeout, queue }} />}
        <SchemaPanel tool={tool} />
      </div>
      <div class="stack">
        {problem !== undefined && <Failure error={problem} />}
        {group && !id ? (
          <GroupView group={group} />
        ) : id ? (
          <>
            <CallView watched={watched} />
            <Link href={to.call(id)}>{words.call.view}</Link>
          </>
        ) : (
          <Panel>
            <Empty title={text.ready.title}>
              <p class="muted">{text.ready.text}</p>
              {tool.approval === "required" && <p class="muted">{text.confirm}</p>}
            </Empty>
          </Panel>
        )}
      </div>
    </div>
  );
}

/** How long a call of a sleeping device may wait for it. */
function Wait({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  return (
    <>
      <p class="notice">{text.queue.text}</p>
      <Field label={text.queue.wait}>
        <select class="input" value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          {Object.entries(text.queue.waits).map(([ms, title]) => (
            <option key={ms} value={ms}>
              {title}
            </option>
          ))}
        </select>
      </Field>
    </>
  );
}

interface EditorProps {
  tool: Tool;
  args: Args;
  onChange: (args: Args) => void;
  onCall: OnCall;
  busy: boolean;
  label: string;
  children: preact.ComponentChildren;
}

function Editor({ tool, args, onChange, onCall, busy, label, children }: EditorProps) {
  const fields = Object.keys((tool.parameters.properties as Args | undefined) ?? {}).length > 0;
  const object = tool.parameters.type === undefined || tool.parameters.type === "object";
  const simple = useMemo(() => object && isSmall(tool.parameters), [tool]);
  const [as, setAs] = useState(fields && simple ? "form" : "json");
  const disabled = busy || !tool.enabled;
  const footer = (
    <>
      {children}
      <div class="actions">
        <Button type="submit" look="first" disabled={disabled}>
          {label}
        </Button>
      </div>
    </>
  );
  const json = <JSONEditor tool={tool} args={args} onChange={onChange} onCall={onCall} footer={footer} />;
  return (
    <Panel
      title={text.arguments}
      actions={
        fields &&
        simple && (
          <Segmented
            label={text.arguments}
            value={as}
            options={{ form: text.form, json: text.json }}
            onChange={setAs}
          />
        )
      }
    >
      {tool.reason && <p class="notice warn">{tool.reason}</p>}
      {as === "form" ? (
        <Boundary
          fallback={() => (
            <div class="stack">
              <p class="notice warn">{text.formFailed}</p>
              {json}
            </div>
          )}
        >
          <Suspense fallback={<Loading />}>
            <Form schema={tool.parameters} args={args} onChange={onChange} onCall={onCall} footer={footer} />
          </Suspense>
        </Boundary>
      ) : (
        json
      )}
    </Panel>
  );
}

interface JSONEditorProps {
  tool: Tool;
  args: Args;
  onChange: (args: Args) => void;
  onCall: OnCall;
  footer: preact.ComponentChildren;
}

function JSONEditor({ tool, args, onChange, onCall, footer }: JSONEditorProps) {
  const [written, setWritten] = useState(() => JSON.stringify(args, null, 2));
  const [errors, setErrors] = useState<string[]>([]);
  const send = async (event: Event) => {
    event.preventDefault();
    const { value, error } = read(written);
    if (!value) return setErrors([error!]);
    const found = await onCall(value);
    setErrors(
      found.length > 0 ? [text.invalid, ...found.map(({ pointer, message }) => `${pointer || "/"} ${message}`)] : [],
    );
  };
  return (
    <form class="stack" onSubmit={send}>
      <textarea
        class="input code"
        aria-label={text.jsonLabel}
        spellcheck={false}
        rows={tool.parameters.properties ? 10 : 4}
        value={written}
        onInput={(event) => {
          const now = event.currentTarget.value;
          setWritten(now);
          const { value } = read(now);
          if (value) onChange(value);
        }}
      />
      {errors.length > 0 && (
        <div class="notice bad" role="alert">
          <ul>
            {errors.map((error) => (
              <li key={error}>{error}</li>
            ))}
          </ul>
        </div>
      )}
      {footer}
    </form>
  );
}

function read(written: string): { value?: Args; error?: string } {
  try {
    const value: unknown = JSON.parse(written.trim() || "{}");
    if (value === null || typeof value !== "object" || Array.isArray(value)) return { error: text.notObject };
    return { value: value as Args };
  } catch (error) {
    return { error: text.notJSON(error instanceof Error ? error.message : String(error)) };
  }
}

function SchemaPanel({ tool }: { tool: Tool }) {
  const schema = useMemo(() => JSON.stringify(tool.parameters, null, 2), [tool]);
  return (
    <>
      <details class="panel fold">
        <summary>{text.schema}</summary>
        <pre class="output">{schema}</pre>
      </details>
      {tool.output_schema && (
        <details class="panel fold">
          <summary>{text.outputSchema}</summary>
          <pre class="output">{JSON.stringify(tool.output_schema, null, 2)}</pre>
        </details>
      )}
    </>
  );
}
