// One conversation: what was said, the turn that runs, and the place to write.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { path, Problem } from "../../api/client";
import type { Session, Transcript } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { Badge, Button, Dot, Empty, failed, Failure, notify } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { to } from "../query";
import { client } from "../session";
import { exportJSON, exportMarkdown } from "./chat-export";
import { Live } from "./chat-live";
import { Messages } from "./chat-message";
import { forget, liveTurns, say } from "./chat-turns";

const text = words.chat;
const few = 100;
const many = 1000;
const pause = 200; // ms, within which events lead to one read

export function Conversation({ session }: { session: string }) {
  const [limit, setLimit] = useState(few);
  const about = useLoaded(
    (signal) => client.get<Session>(path("api", "sessions", session), { signal }).catch(unlessGone),
    [session],
  );
  const loaded = useLoaded(
    (signal) => client.get<Transcript>(path("api", "sessions", session, "messages"), { query: { limit }, signal }),
    [session, limit],
  );
  const turn = liveTurns.value[session];
  const running = turn?.state === "running";
  const [problem, setProblem] = useState<string>();
  useLayoutEffect(() => { // before the browser paints, or the turn would be seen twice
    if (!turn || running) return;
    setProblem(turn.error);
    forget(session);
  }, [loaded.value]);
  useReread(session, running, loaded.reload, about.reload);
  const begin = (request: Parameters<typeof say>[1]) => {
    setProblem(undefined);
    return say(session, request).then(loaded.reload, (error: unknown) => {
      failed(error);
      throw error;
    });
  };
  const transcript = loaded.value;
  if (loaded.error instanceof Problem && loaded.error.status === 404) {
    return (
      <Empty title={text.gone.title}>
        <p class="muted">{text.gone.text}</p>
        <Link href="/chat">{text.conversations}</Link>
      </Empty>
    );
  }
  if (!transcript) return <NotYet loaded={loaded} />;
  const hidden = transcript.message_count - transcript.messages.length;
  const messages = turn && turn.said === "" ? withoutAnswer(transcript.messages) : transcript.messages;
  return (
    <section class="conversation">
      <Header session={session} about={about.value} transcript={transcript} />
      <div class="said" aria-live="polite">
        {hidden > 0 && (
          <p class="muted bar">
            {text.earlier(hidden)}
            {limit < many && (
              <Button small look="plain" onClick={() => setLimit(many)}>
                {text.all}
              </Button>
            )}
          </p>
        )}
        {messages.length === 0 && !turn && (
          <Empty title={text.empty.title}>
            <p class="muted">{text.empty.text}</p>
          </Empty>
        )}
        <Messages list={messages} busy={transcript.busy} />
        {turn && <Live turn={turn} />}
        {problem !== undefined && <Failure error={problem} />}
        {transcript.busy && !turn && <p class="muted working">{text.busy}</p>}
      </div>
      <Follow on={[transcript, turn]} />
      <Composer
        session={session}
        running={running || transcript.busy}
        mayRepeat={messages.some((m) => m.role === "user")}
        begin={begin}
      />
    </section>
  );
}

function unlessGone(error: unknown): undefined {
  if (error instanceof Problem && error.status === 404) return undefined;
  throw error;
}

/** The messages up to the last one of a person. */
function withoutAnswer(all: Transcript["messages"]): Transcript["messages"] {
  const last = all.findLastIndex((m) => m.role === "user");
  return all.slice(0, last + 1);
}

/** useReread reads again after what others do in the conversation. */
function useReread(session: string, own: boolean, transcript: () => void, about: () => void): void {
  const timer = useRef<ReturnType<typeof setTimeout>>();
  const state = useRef(own);
  state.current = own;
  useEffect(() => () => clearTimeout(timer.current), []);
  const soon = () => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      transcript();
    }, pause);
  };
  useEvents(
    (event) => {
      if (event.session_id !== session) return;
      if (event.type.startsWith("session.")) about();
      else if (!state.current && (event.type.startsWith("turn.") || event.type.startsWith("call."))) soon();
    },
    () => {
      about();
      if (!state.current) transcript();
    },
  );
}

interface HeaderProps {
  session: string;
  about: Session | undefined;
  transcript: Transcript;
}

function Header({ session, about, transcript }: HeaderProps) {
  const device = about?.device_name ?? about?.device_id ?? session;
  return (
    <header class="bar">
      <div class="heading">
        <nav class="crumbs narrow-only">
          <Link href="/chat">{text.conversations}</Link>
        </nav>
        <h1 class="cut">{transcript.title || about?.name || text.untitled}</h1>
        <span class="bar muted">
          {about ? (
            <Link href={to.device(session)} class="state">
              <Dot tone={about.connected ? "good" : ""} /> {device}
            </Link>
          ) : (
            session
          )}
          {about && !about.connected && <Badge>{text.away}</Badge>}
        </span>
      </div>
      <div class="actions push">
        <Button small look="plain" onClick={() => exportMarkdown(transcript)}>
          {text.exported.markdown}
        </Button>
        <Button small look="plain" onClick={() => exportJSON(transcript)}>
          {text.exported.json}
        </Button>
      </div>
    </header>
  );
}

/** Keeps the end in sight while it grows, unless the person has scrolled up. */
function Follow({ on }: { on: unknown[] }) {
  const near = useRef(true);
  useEffect(() => {
    const note = () => {
      const page = document.documentElement;
      near.current = page.scrollHeight - page.scrollTop - page.clientHeight < 120;
    };
    addEventListener("scroll", note, { passive: true });
    return () => removeEventListener("scroll", note);
  }, []);
  useLayoutEffect(() => {
    if (near.current) scrollTo({ top: document.documentElement.scrollHeight });
  }, on);
  return null;
}

interface ComposerProps {
  session: string;
  running: boolean;
  mayRepeat: boolean;
  begin: (request: Parameters<typeof say>[1]) => Promise<void>;
}

function Composer({ session, running, mayRepeat, begin }: ComposerProps) {
  const [content, setContent] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  const send = () => {
    const said = content.trim();
    if (!said || running) return;
    setContent("");
    begin({ content: said }).catch(() => setContent((now) => now || said));
    field.current?.focus();
  };
  const stop = async () => {
    const { status } = await client.post<{ status: string }>(path("api", "sessions", session, "abort"), {});
    if (status === "aborted") notify(text.aborted);
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        ref={field}
        class="input"
        rows={2}
        aria-label={text.placeholder}
        placeholder={text.placeholder}
        value={content}
        onInput={(event) => setContent(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          send();
        }}
      />
      <div class="actions">
        {mayRepeat && !running && (
          <Button look="plain" onClick={() => void begin({ regenerate: true }).catch(() => {})}>
            {text.regenerate}
          </Button>
        )}
        {running ? (
          <Button onClick={stop}>{text.stop}</Button>
        ) : (
          <Button type="submit" look="first" disabled={!content.trim()}>
            {text.send}
          </Button>
        )}
      </div>
    </form>
  );
}
