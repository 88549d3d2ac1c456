// Approvals: the requests that wait, one of them in full with its decision, and the grants.

import { useEffect, useRef, useState } from "preact/hooks";
import { Link, Route, Switch, useLocation } from "wouter-preact";
import { path, Problem } from "../../api/client";
import type { Approval } from "../../api/types";
import { useLoaded } from "../../ui/load";
import { NotYet } from "../../ui/notyet";
import { Button, classes, Empty, Failure, Loading, notify } from "../../ui/parts";
import { words } from "../../words/en";
import { useEvents } from "../feed";
import { notifying, pending, pendingError, readPending, startNotifying, stopNotifying } from "../pending";
import { nameIn, to } from "../query";
import { client } from "../session";
import { Decide } from "./approvals-decide";
import { Grants } from "./approvals-grants";
import { By, Left, Request, where } from "./approvals-request";
import { Subtabs } from "./subtabs";

const text = words.approvals;

export function Approvals() {
  return (
    <>
      <Subtabs
        title={text.title}
        tabs={[
          { to: "/approvals", name: text.waiting, count: pending.value?.length, exact: "/grants" },
          { to: "/approvals/grants", name: text.grants },
        ]}
      >
        <Notices />
      </Subtabs>
      <Switch>
        <Route path="/approvals/grants" component={Grants} />
        <Route path="/approvals/:id?">{({ id }) => <Waiting chosen={id && nameIn(id)} />}</Route>
      </Switch>
    </>
  );
}

function Notices() {
  if (!("Notification" in globalThis)) return <span class="muted">{text.notify.missing}</span>;
  if (notifying.value) {
    return (
      <span class="bar">
        <span class="muted">{text.notify.on}</span>
        <Button small look="plain" onClick={stopNotifying}>
          {text.notify.off}
        </Button>
      </span>
    );
  }
  return (
    <Button
      small
      onClick={async () => {
        if ((await startNotifying()) === "denied") notify(text.notify.denied, "warn");
      }}
    >
      {text.notify.ask}
    </Button>
  );
}

function Waiting({ chosen }: { chosen: string | undefined }) {
  const list = pending.value;
  const [, go] = useLocation();
  const before = useRef(0);
  useEffect(() => {
    if (!chosen && before.current === 0 && list?.length === 1) go(to.approval(list[0]!.id), { replace: true });
    before.current = list?.length ?? 0;
  }, [list]);
  if (list === undefined) {
    if (pendingError.value === undefined) return <Loading />;
    return <Failure error={pendingError.value} retry={() => void readPending()} />;
  }
  if (list.length === 0 && !chosen) {
    return (
      <Empty title={text.none.title}>
        <p class="muted">{text.none.text}</p>
      </Empty>
    );
  }
  return (
    <div class={classes("requests", chosen && "chosen")}>
      <nav class="panel list" aria-label={text.waiting}>
        {list.map((row) => (
          <Link
            key={row.id}
            class="row"
            href={to.approval(row.id)}
            aria-current={row.id === chosen ? "true" : undefined}
          >
            <span>
              <strong class="mono cut">{row.tool}</strong>
              <Left at={row.expires_at} />
            </span>
            <span>
              <span class="muted cut">
                <By requester={row.requester} />
              </span>
              <span class="muted cut bidi">{where(row)}</span>
            </span>
          </Link>
        ))}
        {list.length === 0 && <p class="row muted">{text.none.title}</p>}
      </nav>
      <div class="detail">
        {chosen ? <Chosen key={chosen} id={chosen} /> : <Empty title={text.choose} />}
      </div>
    </div>
  );
}

function Chosen({ id }: { id: string }) {
  const loaded = useLoaded((signal) => client.get<Approval>(path("api", "approvals", id), { signal }), [id]);
  const [decided, setDecided] = useState<Approval>();
  useEvents((event) => {
    if (event.approval?.id === id) loaded.reload();
  }, loaded.reload);
  useEffect(() => setDecided(undefined), [loaded.value]);
  const approval = decided ?? loaded.value;
  if (loaded.error instanceof Problem && loaded.error.status === 404) {
    return (
      <Empty title={text.gone.title}>
        <p class="muted">{text.gone.text}</p>
        <Link href="/approvals">{text.back}</Link>
      </Empty>
    );
  }
  if (!approval) return <NotYet loaded={loaded} />;
  const others = pending.value?.filter((row) => row.id !== id).length ?? 0;
  return (
    <div class="stack">
      <nav class="crumbs only-narrow">
        <Link href="/approvals">{others > 0 ? text.next(others) : text.back}</Link>
      </nav>
      <Request approval={approval}>
        {approval.state === "pending" && <Decide key={approval.id} approval={approval} onDecided={setDecided} />}
      </Request>
    </div>
  );
}
