// Paired devices: each has a credential of its own.

import { useState } from "preact/hooks";
import { path } from "../../api/client";
import type { DeviceList, DeviceRow } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { Badge, Button, Dialog, Dot, Empty, Field, notify, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { client } from "../session";
import { Table } from "./table";

const text = words.pairing;
const devices = text.devices;

export function PairedDevices() {
  const loaded = useLoaded(async (signal) => {
    const all: DeviceRow[] = [];
    for await (const page of client.pages<DeviceRow>("/api/devices", "devices", { signal })) all.push(...page);
    return { devices: all } satisfies DeviceList;
  }, []);
  useEvents((event) => {
    if (event.type === "session.connected" || event.type === "session.disconnected") loaded.reload();
  }, loaded.reload);
  const [renamed, setRenamed] = useState<DeviceRow>();
  const [revoked, setRevoked] = useState<DeviceRow>();
  if (!loaded.value) return <NotYet loaded={loaded} />;
  if (loaded.value.devices.length === 0) {
    return (
      <Empty title={devices.none.title}>
        <p class="muted">{devices.none.text}</p>
      </Empty>
    );
  }
  return (
    <Panel flush>
      <Table
        label={words.access.tabs.devices}
        rows={loaded.value.devices}
        keyOf={(device) => device.id}
        columns={[
          {
            title: devices.columns.device,
            cell: (device) => (
              <>
                <span class="with-dot">
                  <Dot tone={device.online ? "good" : ""} />
                  <span class="bidi">{device.name || device.device_id}</span>
                  {device.online && <span class="hidden">{devices.online}</span>}
                  {device.looks_like && (
                    <Badge tone="warn" title={text.alike(device.looks_like)}>
                      ≈ {device.looks_like}
                    </Badge>
                  )}
                </span>
                <span class="sub mono bidi">{device.device_id}</span>
              </>
            ),
          },
          { title: devices.columns.user, cell: (device) => device.user_id ?? "–" },
          { title: devices.columns.tools, cell: (device) => device.tools.join(", ") || text.anyTools, wide: true },
          { title: devices.columns.used, cell: (device) => <Time at={device.last_used} /> },
          { title: devices.columns.paired, cell: (device) => <Time at={device.created_at} /> },
        ]}
        actions={(device) => (
          <>
            <Button small look="plain" onClick={() => setRenamed(device)}>
              {devices.rename}
            </Button>
            <Button small look="danger" onClick={() => setRevoked(device)}>
              {devices.revoke}
            </Button>
          </>
        )}
      />
      {renamed && <Rename device={renamed} onClose={() => setRenamed(undefined)} onDone={loaded.reload} />}
      <Dialog
        title={devices.revoke}
        open={revoked !== undefined}
        onClose={() => setRevoked(undefined)}
        submit={devices.revoke}
        danger
        onSubmit={async () => {
          await client.delete(path("api", "devices", revoked!.device_id));
          notify(devices.revoked, "good");
          loaded.reload();
        }}
      >
        <p>{devices.revokeText(revoked?.name || revoked?.device_id || "")}</p>
      </Dialog>
    </Panel>
  );
}

interface RenameProps {
  device: DeviceRow;
  onClose: () => void;
  onDone: () => void;
}

function Rename({ device, onClose, onDone }: RenameProps) {
  const [name, setName] = useState(device.name ?? "");
  return (
    <Dialog
      title={devices.rename}
      open
      onClose={onClose}
      submit={devices.rename}
      onSubmit={async () => {
        await client.put(path("api", "devices", device.device_id), { name: name.trim() });
        onDone();
      }}
    >
      <Field label={text.facts.name}>
        <input class="input" required value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </Field>
    </Dialog>
  );
}
