import { useEffect, useRef, useState } from "preact/hooks";
import { Link, useLocation } from "wouter-preact";
import { path, Problem } from "../../api/client";
import { useLoaded } from "../../ui/load";
import { Badge, Button, Dialog, Dot, Empty, Failure, Field, Loading, notify, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { titleOf } from "../fleet";
import { type Known, readSession } from "../known";
import { to } from "../query";
import { client, may, me } from "../session";
import { Fact, Head } from "./bits";
import { LatestCalls } from "./latest";
import { Identity, usePaired, Waiting } from "./paired";
import { Queue, Reach } from "./reach";
import { ToolList } from "./toollist";
import "./device.css";

const text = words.device;
const reloadAfter = 200; // ms, in which further events of a device change nothing

export function Device({ id }: { id: string }) {
  const { value, error, reload } = useLoaded((signal) => readSession(id, signal), [id]);
  const [, navigate] = useLocation();
  const soon = useSoon(reload);
  useEvents((event) => {
    const back = value?.last_seen && event.type === "session.connected" && event.device_id === value.device_id;
    if (back && event.session_id && event.session_id !== id && event.user_id === value.user_id)
      navigate(to.device(event.session_id), { replace: true });
    if (event.type === "pod.died" || (event.session_id === id && event.type.startsWith("session."))) soon();
  }, reload);
  const status = error instanceof Problem ? error.status : 0;
  if (error !== undefined && (!value || status === 404)) {
    if (status !== 404 && status !== 409) return <Failure error={error} retry={reload} />;
    return (
      <Empty title={text.gone.title}>
        <p class="muted">{text.gone.text}</p>
        <Link href="/devices">{words.notFound.back}</Link>
      </Empty>
    );
  }
  if (!value || value.session_id !== id) return <Loading />;
  const away = status === 409 && value.connected; // it was here, and has no conversation
  return <Shown session={away ? { ...value, connected: false, online: false, tools: [] } : value} onChange={reload} />;
}

function Shown({ session, onChange }: { session: Known; onChange: () => void }) {
  const paired = usePaired(may("approver") ? session.device_id : undefined);
  return (
    <>
      <Head back={<Link href="/devices">{text.back}</Link>} title={<Title session={session} />}>
        {(session.connected || session.message_count > 0) && <Actions session={session} onChange={onChange} />}
      </Head>
      <div class="columns">
        <div class="stack">
          {paired.value && <Waiting device={paired.value} onChange={paired.reload} />}
          {session.device_id && <Queue device={session.device_id} asleep={session.last_seen !== undefined} />}
          <ToolList session={session} tools={session.tools} away={!session.connected} />
          <LatestCalls session={session.session_id} />
        </div>
        <div class="stack">
          <About session={session} />
          {session.device_id && <Reach device={session.device_id} user={session.user_id} />}
          {may("approver") && session.device_id && <Identity paired={paired} />}
        </div>
      </div>
    </>
  );
}

/** useSoon returns a function that runs work a moment later, however often it is called until then. */
function useSoon(work: () => void): () => void {
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => () => clearTimeout(timer.current), []);
  return () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(work, reloadAfter);
  };
}

function Title({ session }: { session: Known }) {
  const { state } = text;
  return (
    <>
      <span>{titleOf(session)}</span>
      <Badge tone={session.connected ? "good" : ""}>
        <Dot tone={session.connected ? "good" : ""} />
        {session.connected ? state.connected : session.last_seen ? state.sleeping : state.away}
      </Badge>
    </>
  );
}

function Actions({ session, onChange }: { session: Known; onChange: () => void }) {
  const [dialog, setDialog] = useState<"rename" | "end" | undefined>();
  const [name, setName] = useState("");
  const [, navigate] = useLocation();
  const at = path("api", "sessions", session.session_id);
  return (
    <>
      {me.value?.chat && (
        <Link class="button" href={to.chat(session.session_id)}>
          {text.conversation}
        </Link>
      )}
      <Button
        onClick={() => {
          setName(session.name ?? "");
          setDialog("rename");
        }}
      >
        {text.rename}
      </Button>
      <Button look="danger" onClick={() => setDialog("end")}>
        {text.end}
      </Button>
      <Dialog
        title={text.rename}
        open={dialog === "rename"}
        onClose={() => setDialog(undefined)}
        submit={text.save}
        onSubmit={async () => {
          await client.put(at, { name });
          onChange();
        }}
      >
        <Field label={text.name}>
          <input
            class="input"
            required
            maxLength={256}
            value={name}
            onInput={(event) => setName(event.currentTarget.value)}
          />
        </Field>
      </Dialog>
      <Dialog
        title={text.end}
        open={dialog === "end"}
        onClose={() => setDialog(undefined)}
        submit={text.end}
        danger
        onSubmit={async () => {
          await client.delete(at);
          notify(text.ended);
          navigate("/devices");
        }}
      >
        <p>{text.endText}</p>
      </Dialog>
    </>
  );
}

function About({ session }: { session: Known }) {
  const { facts } = text;
  const { connected, connected_at: since, last_pong: pong, last_seen: seen, last_activity: active } = session;
  const labels = Object.entries(session.labels ?? {});
  return (
    <Panel title={text.about}>
      <dl class="facts">
        <Fact name={facts.session} value={<span class="mono">{session.session_id}</span>} />
        <Fact name={facts.device} value={session.device_id && <span class="mono">{session.device_id}</span>} />
        <Fact name={facts.user} value={session.user_id} />
        <Fact name={facts.platform} value={session.platform} />
        <Fact
          name={facts.labels}
          value={
            labels.length > 0 && (
              <span class="badges">
                {labels.map(([key, value]) => (
                  <Badge key={key}>
                    {key}={value}
                  </Badge>
                ))}
              </span>
            )
          }
        />
        <Fact name={facts.capabilities} value={session.capabilities?.join(", ")} />
        <Fact name={facts.pod} value={session.pod && <span class="mono">{session.pod}</span>} />
        <Fact name={facts.trip} value={session.round_trip_ms !== undefined && `${session.round_trip_ms} ms`} />
        <Fact name={facts.since} value={session.connected_at && <Time at={session.connected_at} />} />
        <Fact name={facts.seen} value={<Time at={connected ? (pong ?? since) : (seen ?? active)} />} />
        <Fact name={facts.messages} value={String(session.message_count)} />
      </dl>
    </Panel>
  );
}
