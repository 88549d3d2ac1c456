// What the page shows while it is not connected.

import type { FarhandError } from "@farhand/device";
import { useEffect, useRef, useState } from "preact/hooks";
import { Button, Copy, Field } from "../ui/parts";
import { QR } from "../ui/qr";
import { words } from "../words/device";
import { deviceName } from "./kept";
import { pairAgain, start } from "./link";
import { suggestedName } from "./names";

const mostName = 64; // characters

export function Welcome() {
  const [name, setName] = useState(deviceName.value || suggestedName);
  const connect = (event: Event) => {
    event.preventDefault();
    deviceName.value = name.trim() || suggestedName();
    void start();
  };
  return (
    <form class="panel welcome" onSubmit={connect}>
      <h2>{words.welcome.title}</h2>
      <p>{words.welcome.text}</p>
      <Field label={words.welcome.name}>
        <input
          class="input"
          maxLength={mostName}
          autocomplete="off"
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
      </Field>
      <Button type="submit" look="first">
        {words.welcome.start}
      </Button>
    </form>
  );
}

export const Connecting = () => <p class="notice">{words.welcome.trying}</p>;

/** Seconds until a time, as they pass. */
function useLeft(until: Date): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return Math.max(0, Math.round((until.getTime() - now) / 1000));
}

/** How long a person may take. */
export function Left({ until, text }: { until: Date; text: (time: string) => string }) {
  return <span class="muted left">{text(words.duration(useLeft(until)))}</span>;
}

export function Pairing({ code, expires }: { code: string; expires: Date }) {
  const address = location.origin + "/console/access";
  const command = `farhand pair approve ${code}`;
  return (
    <section class="panel pairing">
      <h2>{words.pairing.title}</h2>
      <p>{words.pairing.text}</p>
      <p class="code" translate={false}>
        {code}
      </p>
      <QR text={address} label={words.pairing.qr(address)} />
      <dl>
        <dt>{words.pairing.console}</dt>
        <dd>
          <a href={address} target="_blank" rel="noopener noreferrer">
            {address}
          </a>
        </dd>
        <dt>{words.pairing.terminal}</dt>
        <dd class="copied">
          <code>{command}</code>
          <Copy text={command} />
        </dd>
      </dl>
      <p role="status">{words.pairing.waiting}</p>
      <Left until={expires} text={words.pairing.left} />
    </section>
  );
}

export function Elsewhere() {
  return (
    <section class="notice">
      <p>{words.elsewhereText}</p>
      <Button look="first" onClick={() => start(true)}>
        {words.useHere}
      </Button>
    </section>
  );
}

export function Failed({ error }: { error: FarhandError }) {
  const revoked = error.status === 401 || error.code === "unauthenticated";
  const notice = useRef<HTMLElement>(null);
  useEffect(() => notice.current?.scrollIntoView({ block: "nearest" }), []);
  return (
    <section class="notice bad" role="alert" ref={notice}>
      <p>{revoked ? words.revoked : reason(error)}</p>
      {revoked && <Button onClick={pairAgain}>{words.pairAgain}</Button>}
    </section>
  );
}

function reason(error: FarhandError): string {
  if (error.code === "rejected") return words.pairing.rejected;
  if (error.code === "session_ended") return words.ended;
  return error.status === 404 ? words.pairing.off : error.message;
}
