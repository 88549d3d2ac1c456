// The parts of a conversation: messages, calls with their results, reasoning.

import type { ComponentChildren } from "preact";
import { Link } from "wouter-preact";
import type { Message, Part } from "../../api/types";
import { Badge, classes, Time, type Tone } from "../../ui/parts";
import { words } from "../../words/en";
import { to } from "../query";
import { bytes } from "./bits";
import { Markdown } from "./chat-markdown";

const text = words.chat;

interface BubbleProps {
  who: "user" | "assistant" | "system";
  at?: string | undefined;
  marks?: ComponentChildren;
  children: ComponentChildren;
}

const names = { user: text.you, assistant: text.assistant, system: text.system };

export function Bubble({ who, at, marks, children }: BubbleProps) {
  return (
    <article class={classes("bubble", who)} aria-label={names[who]}>
      {children}
      {(at || marks) && (
        <footer>
          {marks}
          {at && <Time at={at} />}
        </footer>
      )}
    </article>
  );
}

export function Thinking({ content }: { content: string }) {
  return (
    <details class="thinking">
      <summary>{text.thinking}</summary>
      <p class="pre">{content}</p>
    </details>
  );
}

export interface ShownCall {
  id: string;
  name: string;
  args: unknown;
  state: "running" | "waits" | "done" | "failed";
  output: string;
  parts: Part[];
  result?: Message;
}

const tones: Record<ShownCall["state"], Tone> = { running: "accent", waits: "warn", done: "good", failed: "bad" };

/** Stored conversations have the model's own ids of calls, which lead nowhere. */
const isCallID = /^[0-9a-f]{8}-[0-9a-f-]{27}$/;

export function Call({ call }: { call: ShownCall }) {
  const { result } = call;
  const args = typeof call.args === "string" ? call.args : JSON.stringify(call.args ?? {}, null, 2);
  const label = { running: text.running, waits: text.waits, done: "✓", failed: text.failed }[call.state];
  return (
    <section class="tool" aria-label={call.name}>
      <details open={call.state === "failed" || call.parts.length > 0}>
        <summary>
          <span class="mono cut">{call.name}</span>
          <Badge tone={tones[call.state]}>{label}</Badge>
          {result?.approved && <Badge tone="good">{text.approved}</Badge>}
          {result?.source === "outside" && (
            <Badge tone="warn" title={text.outsideHint}>
              {text.outside}
            </Badge>
          )}
        </summary>
        {args !== "{}" && (
          <>
            <h3>{text.arguments}</h3>
            <pre class="args">{args}</pre>
          </>
        )}
        {result?.suspects && result.suspects.length > 0 && (
          <>
            <h3>{text.suspects}</h3>
            <ul class="suspects">
              {result.suspects.map((one) => (
                <li key={one.pointer}>
                  <code>{one.pointer}</code> <span class="bidi">{one.value}</span>
                  {one.where && <span class="muted"> · {one.where}</span>}
                </li>
              ))}
            </ul>
          </>
        )}
        {(call.state === "done" || call.state === "failed") && (
          <>
            <h3 class="bar">
              {text.result}
              {isCallID.test(call.id) && <Link href={to.call(call.id)}>{words.approvals.call}</Link>}
            </h3>
            {call.output ? <pre class="args">{call.output}</pre> : <p class="muted">{text.noOutput}</p>}
          </>
        )}
        <Parts list={call.parts} />
      </details>
    </section>
  );
}

/** The address of a part, if it is one of this gateway's files. */
function fileOf(part: Part): string | undefined {
  if (!part.url || !URL.canParse(part.url, location.origin)) return undefined;
  const url = new URL(part.url, location.origin);
  return url.origin === location.origin && url.pathname.startsWith("/blobs/") ? url.pathname : undefined;
}

const pictures = ["image/png", "image/jpeg", "image/gif", "image/webp"];

function Parts({ list }: { list: Part[] }) {
  if (list.length === 0) return null;
  return (
    <div class="parts">
      {list.map((part, i) => (
        <PartView key={i} part={part} />
      ))}
    </div>
  );
}

function PartView({ part }: { part: Part }) {
  const file = fileOf(part);
  const name = text.file(part.name ?? part.mime_type, bytes(part.size));
  if (!file) {
    return (
      <span class="muted">
        {name} ({text.notStored})
      </span>
    );
  }
  if (part.type === "image" && pictures.includes(part.mime_type)) {
    return (
      <a href={file} target="_blank" rel="noopener noreferrer">
        <img src={file} alt={part.name ?? text.picture} loading="lazy" />
      </a>
    );
  }
  if (part.type === "audio") return <audio controls src={file} title={name} />;
  return (
    <a href={file} target="_blank" rel="noopener noreferrer" download>
      {name}
    </a>
  );
}

/** Transcript shows stored messages. Results stand with their calls. */
export function Messages({ list, busy }: { list: Message[]; busy: boolean }) {
  const results = new Map(list.filter((m) => m.role === "tool").map((m) => [m.tool_call_id, m]));
  return (
    <>
      {list.map((message, i) => {
        if (message.role === "tool") return null;
        return <Stored key={i} message={message} results={results} open={busy && i === list.length - 1} />;
      })}
    </>
  );
}

interface StoredProps {
  message: Message;
  results: Map<string | undefined, Message>;
  open: boolean;
}

function Stored({ message, results, open }: StoredProps) {
  const who = message.role === "user" || message.role === "system" ? message.role : "assistant";
  const marks = (
    <>
      {message.interrupted && <Badge tone="warn">{text.interrupted}</Badge>}
      {message.tainted && (
        <Badge tone="warn" title={text.outsideHint}>
          {text.outside}
        </Badge>
      )}
    </>
  );
  return (
    <>
      {message.thinking && <Thinking content={message.thinking} />}
      {message.content && (
        <Bubble who={who} at={message.at} marks={marks}>
          {who === "assistant" ? <Markdown text={message.content} /> : <p class="pre">{message.content}</p>}
        </Bubble>
      )}
      {message.tool_calls?.map((call) => {
        const result = results.get(call.id);
        const shown: ShownCall = {
          ...call,
          state: result ? (result.failed ? "failed" : "done") : open ? "running" : "failed",
          output: result?.content ?? "",
          parts: result?.parts ?? [],
        };
        return <Call key={call.id} call={result ? { ...shown, result } : shown} />;
      })}
    </>
  );
}
