// Chat: the conversations, and one of them.

import { useEffect, useRef, useState } from "preact/hooks";
import { Link, Route } from "wouter-preact";
import type { SessionList, SessionRow } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { classes, Dot, Empty, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { nameIn, to } from "../query";
import { client } from "../session";
import { Conversation } from "./chat-conversation";
import { liveTurns } from "./chat-turns";
import "./approvals.css";
import "./chat.css";

const text = words.chat;
const shown = 200;
const pause = 500; // ms, within which events lead to one read

export function Chat() {
  return (
    <Route path="/chat/:id?">
      {(params) => {
        const chosen = params.id && nameIn(params.id);
        return (
          <div class={classes("chat", chosen && "chosen")}>
            <Conversations chosen={chosen} />
            {chosen ? <Conversation key={chosen} session={chosen} /> : <Empty title={text.choose} />}
          </div>
        );
      }}
    </Route>
  );
}

function Conversations({ chosen }: { chosen: string | undefined }) {
  const [sought, setSought] = useState("");
  const query = { limit: shown };
  const loaded = useLoaded((signal) => client.get<SessionList>("/api/sessions", { query, signal }), []);
  useRereadList(loaded.reload);
  if (!loaded.value) return <NotYet loaded={loaded} />;
  const list = loaded.value.sessions.filter((session) => matches(session, sought.toLowerCase())).sort(byUse);
  return (
    <nav class="panel conversations" aria-label={text.conversations}>
      <header>
        <input
          class="input"
          type="search"
          aria-label={text.conversations}
          placeholder={text.conversations}
          value={sought}
          onInput={(event) => setSought(event.currentTarget.value)}
        />
      </header>
      {list.map((session) => (
        <Entry key={session.session_id} session={session} chosen={session.session_id === chosen} />
      ))}
      {list.length === 0 && (
        <Empty title={text.none.title}>
          <p class="muted">{text.none.text}</p>
        </Empty>
      )}
    </nav>
  );
}

function matches({ name, device_name, device_id, session_id, user_id }: SessionRow, sought: string): boolean {
  return [name, device_name, device_id, session_id, user_id].some((text) => text?.toLowerCase().includes(sought));
}

/** Conversations come before devices without one, the last used first. */
function byUse(a: SessionRow, b: SessionRow): number {
  const begun = Number(b.message_count > 0) - Number(a.message_count > 0);
  return begun || b.last_activity.localeCompare(a.last_activity);
}

function Entry({ session, chosen }: { session: SessionRow; chosen: boolean }) {
  const device = session.device_name ?? session.device_id ?? session.session_id;
  const used = session.message_count > 0 && <Time at={session.last_activity} />;
  const running = liveTurns.value[session.session_id]?.state === "running";
  return (
    <Link class="row" href={to.chat(session.session_id)} aria-current={chosen ? "true" : undefined}>
      <span>
        <strong class="cut">{session.name ?? device}</strong>
        <span class="left">{running ? text.running : used}</span>
      </span>
      <span>
        <span class="muted cut state">
          <Dot tone={session.connected ? "good" : ""} />{" "}
          {session.name && session.name !== device ? device : (session.user_id ?? session.session_id)}
        </span>
      </span>
    </Link>
  );
}

function useRereadList(reload: () => void): void {
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => () => clearTimeout(timer.current), []);
  useEvents((event) => {
    if (!event.type.startsWith("session.") && event.type !== "turn.finished") return;
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      reload();
    }, pause);
  }, reload);
}
