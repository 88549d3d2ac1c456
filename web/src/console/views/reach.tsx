// How a device is reached while it sleeps: the calls that wait for it, what wakes it, and whose default it is.

import { useState } from "preact/hooks";
import { Link } from "wouter-preact";
import { path, Problem } from "../../api/client";
import type { CallRecord, DefaultDevice, DeviceWake, QueuedCalls } from "../../api/types";
import { type Loaded, useLoaded } from "../../ui/load";
import { Button, Dialog, Failure, notify, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { to } from "../query";
import { client, may, me } from "../session";
import { duration, Fact } from "./bits";
import { CancelCall } from "./callview";
import { Table } from "./table";

const text = words.reach;

/** orNone reads what may not be there: then its value is null. */
function orNone<T>(reading: Promise<T>): Promise<T | null> {
  return reading.catch((error: unknown) => {
    if (error instanceof Problem && error.status === 404) return null;
    throw error;
  });
}

/** The calls that wait for a device. It is shown if there are any, or the device sleeps. */
export function Queue({ device, asleep }: { device: string; asleep: boolean }) {
  const { value, error, reload } = useLoaded(
    (signal) => orNone(client.get<QueuedCalls>(path("api", "devices", device, "queue"), { signal })),
    [device, asleep],
  );
  useEvents(({ type, device_id: id, call }) => {
    if (type.startsWith("call.") && (call?.device_id ?? id) === device) reload();
  }, reload);
  const calls = value?.calls ?? [];
  if (error === undefined && calls.length === 0 && !asleep) return null;
  return (
    <Panel title={`${text.queue} (${calls.length})`} flush={calls.length > 0}>
      {error !== undefined && <Failure error={error} retry={reload} />}
      {calls.length === 0 ? (
        <p class="muted">{text.noQueue}</p>
      ) : (
        <Table<CallRecord>
          label={text.queue}
          rows={calls}
          keyOf={(call) => call.call_id}
          columns={[
            {
              title: text.columns.tool,
              cell: (call) => (
                <Link class="mono" href={to.call(call.call_id)}>
                  {call.tool}
                </Link>
              ),
            },
            { title: text.columns.place, number: true, cell: (call) => call.place ?? "–" },
            { title: text.columns.user, cell: (call) => call.user_id ?? "–" },
            { title: text.columns.until, cell: (call) => <Time at={call.expires_at} /> },
          ]}
          actions={(call) => <CancelCall record={call} onDone={reload} />}
        />
      )}
    </Panel>
  );
}

/** What wakes a device, and whether it is its user's default, for admins and the user. */
export function Reach({ device, user }: { device: string; user: string | undefined }) {
  const allowed = may("admin") || (user !== undefined && me.value?.user_id === user);
  const at = path("api", "devices", device, "wake");
  const wake = useLoaded(
    async (signal) => (allowed ? orNone(client.get<DeviceWake>(at, { signal })) : null),
    [device],
  );
  if (!allowed) return null;
  return (
    <Panel title={text.title} actions={wake.value && <Forget at={at} onDone={wake.reload} />}>
      {wake.error !== undefined && <Failure error={wake.error} retry={wake.reload} />}
      <dl class="facts">
        <WakeFacts wake={wake} />
        {user && <Standard device={device} user={user} />}
      </dl>
    </Panel>
  );
}

function WakeFacts({ wake: { value } }: { wake: Loaded<DeviceWake | null> }) {
  if (value === undefined) return null;
  if (value === null) return <Fact name={text.wake} value={<span class="muted">{text.noWake}</span>} />;
  const { kind, host, quiet } = value;
  const name = text.wakes[kind] ?? kind;
  return (
    <>
      <Fact name={text.wake} value={host ? text.at(name, host) : name} />
      <Fact name={text.every} value={duration(value.min_interval_ms)} />
      <Fact name={text.quiet} value={quiet && `${quiet.from}–${quiet.to} ${quiet.zone || "UTC"}`} />
      <Fact name={text.lastPush} value={value.last_push && <Time at={value.last_push} />} />
      <Fact name={text.nextPush} value={value.next_push && <Time at={value.next_push} />} />
      <Fact name={text.error} value={value.error && <span class="bidi">{value.error}</span>} />
    </>
  );
}

function Forget({ at, onDone }: { at: string; onDone: () => void }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button small look="danger" onClick={() => setOpen(true)}>
        {text.forget}
      </Button>
      <Dialog
        title={text.forget}
        open={open}
        onClose={() => setOpen(false)}
        submit={text.forget}
        danger
        onSubmit={async () => {
          await client.delete(at);
          notify(text.forgotten);
          onDone();
        }}
      >
        <p>{text.forgetText}</p>
      </Dialog>
    </>
  );
}

function Standard({ device, user }: { device: string; user: string }) {
  const at = path("api", "users", user, "default-device");
  const { value, error, reload } = useLoaded(
    (signal) => orNone(client.get<DefaultDevice>(at, { signal })),
    [device, user],
  );
  if (error !== undefined) return <Fact name={text.standard} value={<Failure error={error} retry={reload} />} />;
  if (value === undefined) return null;
  const mine = value?.device_id === device;
  const change = async () => {
    await (mine ? client.delete(at) : client.put(at, { device_id: device }));
    reload();
  };
  return (
    <Fact
      name={text.standard}
      value={
        <span class="stack">
          <span>
            {mine
              ? text.standardIs(user)
              : value
                ? text.standardOther(user, value.device_id)
                : text.standardNone(user)}
          </span>
          <span>
            <Button small onClick={change}>
              {mine ? text.dropStandard : text.makeStandard}
            </Button>
          </span>
        </span>
      }
    />
  );
}
