// Pairing: requests of devices, by their code or from the list, and the devices that are paired.

import { useEffect, useState } from "preact/hooks";
import { path } from "../../api/client";
import type { Pairing as Request, PairingDecision, PairingList, SetupCode } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { Button, Copy, Dialog, Empty, Field, notify, Panel, Time } from "../../ui/parts";
import { QR } from "../../ui/qr";
import { words } from "../../words/en";
import { client, loopback, me } from "../session";
import { Table } from "./table";

const text = words.pairing;
const lan = "farhand demo --lan";
const pause = 5000; // ms between looks for new requests, which no event announces

export function Pairing() {
  const [chosen, setChosen] = useState<{ request: Request; code?: string }>();
  const requests = useLoaded((signal) => client.get<PairingList>("/api/pairings", { signal }), []);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || requests.reload(), pause);
    return () => clearInterval(timer);
  }, []);
  if (me.value?.pairing === "off") {
    return (
      <Empty title={text.off.title}>
        <p class="muted">{text.off.text}</p>
      </Empty>
    );
  }
  return (
    <div class="halves">
      <div class="stack">
        <NewDevice onFound={(request, code) => setChosen({ request, code })} />
        <NewNode />
      </div>
      <Panel title={text.waiting} flush>
        {requests.value ? (
          <Requests list={requests.value.pairings} onReview={(request) => setChosen({ request })} />
        ) : (
          <NotYet loaded={requests} />
        )}
      </Panel>
      {chosen && (
        <Review
          key={chosen.request.id}
          {...chosen}
          onClose={() => {
            setChosen(undefined);
            requests.reload();
          }}
        />
      )}
    </div>
  );
}

function NewDevice({ onFound }: { onFound: (request: Request, code: string) => void }) {
  const [code, setCode] = useState("");
  const url = location.origin + "/device";
  const command = `farhand device --server ${location.origin} --pair`;
  const find = async () => {
    onFound(await client.post<Request>("/api/pairings", { code: code.trim() }), code.trim());
    setCode("");
  };
  return (
    <Panel title={text.new}>
      <div class="stack">
        {loopback ? (
          <div class="notice warn">
            <p>{text.loopback}</p>
            <code>{lan}</code>
          </div>
        ) : (
          <QR text={url} label={text.qr(url)} />
        )}
        <p class="muted">{loopback ? text.localText : text.newText}</p>
        <dl class="commands">
          <dt class="hidden">{text.new}</dt>
          <dd>
            <code>{url}</code>
            <Copy text={url} />
          </dd>
          <dd>
            <code>{command}</code>
            <Copy text={command} />
          </dd>
        </dl>
        <form class="with-button" onSubmit={(event) => event.preventDefault()}>
          <Field label={text.code}>
            <input
              class="input mono"
              placeholder={text.codeHint}
              autocomplete="off"
              autocapitalize="characters"
              spellcheck={false}
              value={code}
              onInput={(event) => setCode(event.currentTarget.value)}
            />
          </Field>
          <Button type="submit" look="first" disabled={!code.trim()} onClick={find}>
            {text.find}
          </Button>
        </form>
      </div>
    </Panel>
  );
}

// NewNode makes setup codes, each of which pairs one OpenClaw node.
function NewNode() {
  const [made, setMade] = useState<SetupCode>();
  const command = made && `openclaw node run --pair ${made.pair_url}`;
  return (
    <Panel title={text.node.title}>
      <div class="stack">
        <p class="muted">{text.node.text}</p>
        {made && (
          <>
            <QR text={made.setup_code} label={text.node.qr} />
            <dl class="commands">
              <dt class="hidden">{text.node.code}</dt>
              <dd>
                <code>{made.setup_code}</code>
                <Copy text={made.setup_code} />
              </dd>
              <dt class="hidden">{text.node.command}</dt>
              <dd>
                <code>{command}</code>
                <Copy text={command!} />
              </dd>
            </dl>
            <p class="muted">
              {text.node.url(made.url)} {text.facts.expires}: <Time at={made.expires_at} />
            </p>
          </>
        )}
        <div>
          <Button onClick={async () => setMade(await client.post<SetupCode>("/api/pairings/setup", {}))}>
            {made ? text.node.another : text.node.make}
          </Button>
        </div>
      </div>
    </Panel>
  );
}

function Requests({ list, onReview }: { list: Request[]; onReview: (request: Request) => void }) {
  if (list.length === 0) return <p class="muted body-text">{text.none}</p>;
  return (
    <Table
      label={text.waiting}
      rows={list}
      keyOf={(one) => one.id}
      columns={[
        {
          title: text.facts.device,
          cell: (one) => (
            <>
              <span class="bidi">{one.device_name || one.device_id}</span>
              {one.device_name && <span class="sub bidi">{one.device_id}</span>}
            </>
          ),
        },
        { title: text.facts.from, cell: (one) => one.source },
        { title: text.facts.expires, cell: (one) => <Time at={one.expires_at} /> },
      ]}
      actions={(one) => (
        <Button small onClick={() => onReview(one)}>
          {text.review}
        </Button>
      )}
    />
  );
}

interface ReviewProps {
  request: Request;
  code?: string;
  onClose: () => void;
}

function Review({ request, code, onClose }: ReviewProps) {
  const [name, setName] = useState(request.device_name ?? "");
  const [user, setUser] = useState("");
  const [tools, setTools] = useState(request.tools.join("\n"));
  const [replace, setReplace] = useState(false);
  const decide = (decision: PairingDecision) =>
    client.post<Request>(code ? "/api/pairings" : path("api", "pairings", request.id), {
      ...decision,
      ...(code ? { code } : {}),
    });
  const approve = async () => {
    await decide({
      decision: "approve",
      tools: tools.split(/\s+/).filter(Boolean),
      ...(name.trim() ? { name: name.trim() } : {}),
      ...(user.trim() ? { user: user.trim() } : {}),
      ...(replace ? { replace } : {}),
    });
    notify(text.approved, "good");
  };
  const warnings = [
    request.looks_like && text.alike(request.looks_like),
    ...(request.remarks ?? []).map((remark) => text.remarks[remark]),
    request.already_paired && text.known,
  ].filter(Boolean);
  return (
    <Dialog title={text.request} open onClose={onClose} onSubmit={approve} submit={text.approve}>
      {warnings.length > 0 && (
        <ul class="notice warn">
          {warnings.map((warning, i) => (
            <li key={i} class="bidi">
              {warning}
            </li>
          ))}
        </ul>
      )}
      <Facts request={request} />
      <Field label={text.facts.name}>
        <input class="input" maxLength={100} value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </Field>
      <Field label={text.user} hint={text.userHint}>
        <input class="input" maxLength={200} value={user} onInput={(event) => setUser(event.currentTarget.value)} />
      </Field>
      <Field label={text.tools} hint={text.toolsHint}>
        <textarea class="input mono" rows={4} value={tools} onInput={(event) => setTools(event.currentTarget.value)} />
      </Field>
      {request.already_paired && (
        <label class="check">
          <input type="checkbox" checked={replace} onChange={(event) => setReplace(event.currentTarget.checked)} />
          {text.replace}
        </label>
      )}
      <div>
        <Button
          look="danger"
          onClick={async () => {
            await decide({ decision: "reject" });
            notify(text.rejected);
            onClose();
          }}
        >
          {text.reject}
        </Button>
      </div>
    </Dialog>
  );
}

function Facts({ request }: { request: Request }) {
  return (
    <dl class="facts">
      <dt>{text.facts.device}</dt>
      <dd class="mono bidi">{request.device_id}</dd>
      {request.platform && (
        <>
          <dt>{text.facts.platform}</dt>
          <dd class="bidi">{request.platform}</dd>
        </>
      )}
      {request.client && (
        <>
          <dt>{text.facts.client}</dt>
          <dd class="bidi">{request.client}</dd>
        </>
      )}
      <dt>{text.facts.from}</dt>
      <dd>{request.source}</dd>
      {request.key_fingerprint && (
        <>
          <dt>{text.facts.key}</dt>
          <dd class="mono">{request.key_fingerprint}</dd>
        </>
      )}
      <dt>{text.facts.tools}</dt>
      <dd class="bidi">{request.tools.length > 0 ? request.tools.join(", ") : text.anyTools}</dd>
    </dl>
  );
}
