import { useState } from "preact/hooks";
import { path, Problem } from "../../api/client";
import type { Device as PairedDevice, WaitingTool } from "../../api/types";
import { type Loaded, useLoaded } from "../../ui/load";
import { Badge, Button, Dialog, Failure, Loading, notify, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { client } from "../session";
import { Fact } from "./bits";

const text = words.paired;

/** usePaired reads the credential and the waiting tools of a device. Its value is null if the device is not paired. */
export function usePaired(device: string | undefined): Loaded<PairedDevice | null> {
  const loaded = useLoaded<PairedDevice | null>(
    async (signal) => {
      if (!device) return null;
      try {
        return await client.get<PairedDevice>(path("api", "devices", device), { signal });
      } catch (error) {
        if (error instanceof Problem && error.status === 404) return null;
        throw error;
      }
    },
    [device],
  );
  useEvents((event) => {
    if (device && event.device_id === device && event.type.startsWith("session.")) loaded.reload();
  }, loaded.reload);
  return loaded;
}

export function Identity({ paired }: { paired: Loaded<PairedDevice | null> }) {
  const { value: device, error, reload } = paired;
  return (
    <Panel title={text.title} actions={device && <Revoke device={device} onDone={reload} />}>
      {device ? (
        <Facts device={device} />
      ) : device === null ? (
        <p class="muted">{text.none}</p>
      ) : error !== undefined ? (
        <Failure error={error} retry={reload} />
      ) : (
        <Loading />
      )}
    </Panel>
  );
}

function Facts({ device }: { device: PairedDevice }) {
  return (
    <dl class="facts">
      <Fact name={text.name} value={device.name} />
      {device.looks_like && <Fact name="" value={<Badge tone="bad">{text.alike(device.looks_like)}</Badge>} />}
      <Fact name={words.device.facts.user} value={device.user_id} />
      <Fact name={text.credential} value={<span class="mono">{device.id}</span>} />
      <Fact
        name={text.fingerprint}
        value={device.key_fingerprint && <span class="mono">{device.key_fingerprint}</span>}
      />
      <Fact name={text.tools} value={device.tools.join(", ")} />
      <Fact name={text.by} value={device.created_by} />
      <Fact name={text.created} value={<Time at={device.created_at} />} />
      <Fact name={text.used} value={device.last_used && <Time at={device.last_used} />} />
      <Fact name={text.expires} value={device.expires_at && <Time at={device.expires_at} />} />
    </dl>
  );
}

function Revoke({ device, onDone }: { device: PairedDevice; onDone: () => void }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <Button small look="danger" onClick={() => setOpen(true)}>
        {text.revoke}
      </Button>
      <Dialog
        title={text.revoke}
        open={open}
        onClose={() => setOpen(false)}
        submit={text.revoke}
        danger
        onSubmit={async () => {
          await client.delete(path("api", "devices", device.id));
          notify(text.revoked);
          onDone();
        }}
      >
        <p>{text.revokeText}</p>
      </Dialog>
    </>
  );
}

/** The tools of a paired device that wait for approval, if any do. */
export function Waiting({ device, onChange }: { device: PairedDevice; onChange: () => void }) {
  const tools = device.waiting;
  if (tools.length === 0) return null;
  const decide = async (body: { approve?: WaitingTool[]; reject?: WaitingTool[] }) => {
    await client.post(path("api", "devices", device.id, "tools"), {
      ...(body.approve && { approve: body.approve.map(({ name, hash }) => ({ name, hash })) }),
      ...(body.reject && { reject: body.reject.map(({ name }) => name) }),
    });
    onChange();
  };
  const all = tools.length > 1 && (
    <Button small look="first" onClick={() => decide({ approve: tools })}>
      {text.approveAll}
    </Button>
  );
  return (
    <Panel title={text.waiting(tools.length)} actions={all} flush>
      <p class="body muted">{text.waitingText}</p>
      {tools.map((tool) => (
        <div class="waiting" key={tool.name + tool.hash}>
          <div class="head">
            <h3 class="mono">{tool.name}</h3>
            {tool.changed && <Badge tone="warn">{text.changed(tool.changed.join(", "))}</Badge>}
            <div class="actions push">
              <Button small onClick={() => decide({ reject: [tool] })}>
                {text.reject}
              </Button>
              <Button small look="first" onClick={() => decide({ approve: [tool] })}>
                {text.approve}
              </Button>
            </div>
          </div>
          <p>{tool.description}</p>
          <details>
            <summary>{tool.before ? text.now : text.definition}</summary>
            <pre>{JSON.stringify(definition(tool), null, 2)}</pre>
          </details>
          {tool.before && (
            <details>
              <summary>{text.before}</summary>
              <pre>{JSON.stringify(tool.before, null, 2)}</pre>
            </details>
          )}
        </div>
      ))}
    </Panel>
  );
}

function definition({ before: _before, changed: _changed, hash: _hash, approved_hash: _old, ...own }: WaitingTool) {
  return own;
}
