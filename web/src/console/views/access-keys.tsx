// API keys. The secret of a new key is shown once.

import { useState } from "preact/hooks";
import { path } from "../../api/client";
import type { CreatedKey, Key, KeyRequest } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { Badge, Button, Copy, Dialog, Empty, Field, notify, Panel, Time } from "../../ui/parts";
import { words } from "../../words/en";
import { client } from "../session";
import { Table } from "./table";

const text = words.keys;

export function Keys() {
  const keys = useLoaded(async (signal) => {
    const all: Key[] = [];
    for await (const page of client.pages<Key>("/api/keys", "keys", { signal })) all.push(...page);
    return all.reverse();
  }, []);
  const [creating, setCreating] = useState(false);
  const [made, setMade] = useState<CreatedKey>();
  const [revoked, setRevoked] = useState<Key>();
  const create = (
    <Button look="first" onClick={() => setCreating(true)}>
      {text.create}
    </Button>
  );
  if (!keys.value) return <NotYet loaded={keys} />;
  return (
    <>
      {keys.value.length === 0 ? (
        <Empty title={text.none.title}>
          <p class="muted">{text.none.text}</p>
          {create}
        </Empty>
      ) : (
        <Panel title={words.access.tabs.keys} actions={create} flush>
          <KeyTable keys={keys.value} onRevoke={setRevoked} />
        </Panel>
      )}
      {creating && (
        <NewKey
          onClose={() => setCreating(false)}
          onMade={(key) => {
            setMade(key);
            keys.reload();
          }}
        />
      )}
      {made && <Secret made={made} onClose={() => setMade(undefined)} />}
      <Dialog
        title={text.revoke}
        open={revoked !== undefined}
        onClose={() => setRevoked(undefined)}
        submit={text.revoke}
        danger
        onSubmit={async () => {
          await client.delete(path("api", "keys", revoked!.id));
          notify(text.revoked, "good");
          keys.reload();
        }}
      >
        <p>{text.revokeText(revoked?.name || revoked?.id || "")}</p>
      </Dialog>
    </>
  );
}

function KeyTable({ keys, onRevoke }: { keys: Key[]; onRevoke: (key: Key) => void }) {
  return (
    <Table
      label={words.access.tabs.keys}
      rows={keys}
      keyOf={(key) => key.id}
      columns={[
        {
          title: text.columns.name,
          cell: (key) => (
            <>
              {key.name ? <span class="bidi">{key.name}</span> : <span class="muted">{text.unnamed}</span>}
              <span class="sub mono">{key.id}</span>
            </>
          ),
        },
        {
          title: text.columns.roles,
          cell: (key) => (
            <span class="badges">
              {key.roles.map((role) => (
                <Badge key={role} tone={role === "admin" ? "warn" : ""}>
                  {role}
                </Badge>
              ))}
            </span>
          ),
        },
        { title: text.columns.user, cell: (key) => <span class="bidi">{key.user_id ?? "–"}</span> },
        {
          title: text.columns.tools,
          cell: (key) => (key.tools ? <code>{key.tools}</code> : <span class="muted">{text.all}</span>),
        },
        { title: text.columns.used, cell: (key) => (key.last_used_at ? <Time at={key.last_used_at} /> : text.never) },
        {
          title: text.columns.expires,
          cell: (key) => (key.expires_at ? <Time at={key.expires_at} /> : <span class="muted">{text.unused}</span>),
        },
      ]}
      actions={(key) => (
        <Button small look="danger" onClick={() => onRevoke(key)}>
          {text.revoke}
        </Button>
      )}
    />
  );
}

const day = 86_400;
const lives = { day, month: 30 * day, year: 365 * day, never: undefined };
type Life = keyof typeof lives;
/** The roles of a tenant's keys. Keys of fleet operators are created with the command only. */
type Role = keyof typeof text.roles;

function NewKey({ onClose, onMade }: { onClose: () => void; onMade: (key: CreatedKey) => void }) {
  const [name, setName] = useState("");
  const [user, setUser] = useState("");
  const [tools, setTools] = useState("");
  const [roles, setRoles] = useState<Role[]>(["caller"]);
  const [life, setLife] = useState<Life>("never");
  const create = async () => {
    const seconds = lives[life];
    const request: KeyRequest = {
      roles,
      ...(name.trim() ? { name: name.trim() } : {}),
      ...(user.trim() ? { user_id: user.trim() } : {}),
      ...(tools.trim() ? { tools: tools.trim() } : {}),
      ...(seconds ? { expires_in: seconds } : {}),
    };
    onMade(await client.post<CreatedKey>("/api/keys", request));
  };
  const toggle = (role: Role, on: boolean) => setRoles(on ? [...roles, role] : roles.filter((one) => one !== role));
  return (
    <Dialog title={text.create} open onClose={onClose} onSubmit={create} submit={text.create}>
      <Field label={text.name} hint={text.nameHint}>
        <input class="input" maxLength={200} value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </Field>
      <fieldset class="field">
        <legend class="label">{text.rolesLabel}</legend>
        {(Object.keys(text.roles) as Role[]).map((role) => (
          <label key={role} class="check">
            <input
              type="checkbox"
              checked={roles.includes(role)}
              onChange={(event) => toggle(role, event.currentTarget.checked)}
            />
            {text.roles[role]}
          </label>
        ))}
      </fieldset>
      <Field label={text.user} hint={text.userHint}>
        <input class="input" maxLength={200} value={user} onInput={(event) => setUser(event.currentTarget.value)} />
      </Field>
      <Field label={text.tools} hint={text.toolsHint}>
        <input class="input mono" value={tools} onInput={(event) => setTools(event.currentTarget.value)} />
      </Field>
      <Field label={text.expiry}>
        <select class="input" value={life} onChange={(event) => setLife(event.currentTarget.value as Life)}>
          {(Object.keys(lives) as Life[]).map((one) => (
            <option key={one} value={one}>
              {text.expiries[one]}
            </option>
          ))}
        </select>
      </Field>
    </Dialog>
  );
}

function Secret({ made, onClose }: { made: CreatedKey; onClose: () => void }) {
  return (
    <Dialog title={text.key} open onClose={onClose} onSubmit={() => {}} submit={text.stored}>
      <p class="notice warn">{text.shown}</p>
      <div class="with-button">
        <code class="secret">{made.key}</code>
        <Copy text={made.key} />
      </div>
    </Dialog>
  );
}
