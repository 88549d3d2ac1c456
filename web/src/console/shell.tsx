// The frame of the console: sign-in, navigation, and the view that the address names.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Link, Redirect, Route, Router, Switch, useLocation, useRoute } from "wouter-preact";
import { Button, classes, Dot, Empty, failed, Failure, Field, Loading, Toasts } from "../ui/parts";
import { later } from "../ui/later";
import { useLoaded } from "../ui/load";
import type { OIDC } from "../api/types";
import { words } from "../words/en";
import { keep } from "./fleet";
import { live, run } from "./feed";
import { pending, watchPending } from "./pending";
import { base } from "./place";
import { nameIn } from "./query";
import { useCurrentInSight } from "./sight";
import { howToSignIn, may, me, signedIn, signIn, signInNote, signInWith, signOut, start } from "./session";
import { Calls } from "./views/calls";
import { Device } from "./views/device";
import { Fleet } from "./views/fleet";
import { GatewayTools } from "./views/gatewaytools";
import { OneCall } from "./views/onecall";
import { TryTool } from "./views/tool";
import "./shell.css";

const Approvals = later(async () => (await import("./views/approvals")).Approvals);
const Chat = later(async () => (await import("./views/chat")).Chat);
const Access = later(async () => (await import("./views/access")).Access);
const Operate = later(async () => (await import("./views/operate")).Operate);

export function App() {
  const [error, setError] = useState<unknown>();
  const begin = () => {
    setError(undefined);
    start().catch((thrown: unknown) => me.value === null || setError(thrown));
  };
  useEffect(begin, []);
  return (
    <>
      {me.value === null ? (
        <SignIn />
      ) : error !== undefined ? (
        <main class="alone">
          <Failure error={error} retry={begin} />
        </main>
      ) : me.value === undefined ? (
        <Loading />
      ) : (
        <Router base={base}>
          <Console />
        </Router>
      )}
      <Toasts />
    </>
  );
}

function Console() {
  const [location] = useLocation();
  const nav = useCurrentInSight(location);
  useEffect(() => {
    const control = new AbortController();
    void run(control.signal).catch(failed);
    if (may("caller")) keep(control.signal);
    const unwatch = watchPending();
    return () => {
      control.abort();
      unwatch();
    };
  }, []);
  return (
    <div class="shell">
      <header class="top">
        <Link class="brand" href="/devices">
          {words.product}
        </Link>
        <nav aria-label={words.product} ref={nav}>
          {may("caller") && <Tab to="/devices">{words.views.fleet}</Tab>}
          {may("caller") && <Tab to="/calls">{words.views.calls}</Tab>}
          {may("approver") && <Tab to="/approvals" count={pending.value?.length}>{words.views.approvals}</Tab>}
          {me.value?.chat && may("caller") && <Tab to="/chat">{words.views.chat}</Tab>}
          {(may("approver") || may("caller")) && <Tab to="/access">{words.views.access}</Tab>}
          {may("admin") && <Tab to="/operate">{words.views.operate}</Tab>}
        </nav>
        <Account />
      </header>
      <main class="view">
        <Switch>
          <Route path="/">
            <Redirect to={may("caller") ? "/devices" : "/approvals"} replace />
          </Route>
          {may("caller") && (
            <>
              <Route path="/devices" component={Fleet} />
              <Route path="/devices/:id">{({ id }) => <Device id={nameIn(id)} />}</Route>
              <Route path="/devices/:id/tools/:tool">
                {({ id, tool }) => <TryTool session={nameIn(id)} name={nameIn(tool)} />}
              </Route>
              <Route path="/tools" component={GatewayTools} />
              <Route path="/tools/:tool">{({ tool }) => <TryTool name={nameIn(tool)} />}</Route>
              <Route path="/calls" component={Calls} />
              <Route path="/calls/:id">{({ id }) => <OneCall id={nameIn(id)} />}</Route>
            </>
          )}
          {may("approver") && <Route path="/approvals/*?" component={Approvals} />}
          {me.value?.chat && may("caller") && <Route path="/chat/*?" component={Chat} />}
          {(may("approver") || may("caller")) && <Route path="/access/*?" component={Access} />}
          {may("admin") && <Route path="/operate/*?" component={Operate} />}
          <Route>
            <Empty title={words.notFound.title}>
              <Link href="/">{words.notFound.back}</Link>
            </Empty>
          </Route>
        </Switch>
      </main>
    </div>
  );
}

interface TabProps {
  to: string;
  count?: number | undefined;
  children: ComponentChildren;
}

function Tab({ to, count, children }: TabProps) {
  const [here] = useRoute(to + "/*?");
  return (
    <Link href={to} class="tab" aria-current={here ? "page" : undefined}>
      {children}
      {count ? <span class="count">{count}</span> : null}
    </Link>
  );
}

function Account() {
  const { name, user_id: user } = me.value!;
  return (
    <div class="account">
      {live.value !== undefined && (
        <span class="live" role="status">
          <Dot tone={live.value ? "good" : "warn"} />
          <span class="muted">{live.value ? words.connection.live : words.connection.lost}</span>
        </span>
      )}
      <span class="muted cut">{user ?? name}</span>
      {signedIn() && (
        <Button small look="plain" onClick={signOut}>
          {words.signIn.out}
        </Button>
      )}
    </div>
  );
}

function SignIn() {
  const how = useLoaded(howToSignIn, []);
  if (how.loading && !how.error) return <Loading />;
  return (
    <main class="alone">
      <div class="panel sign-in">
        <h1>{words.signIn.title}</h1>
        {signInNote.value && (
          <p class={classes("notice", signInNote.value !== words.signIn.oidc.ended && "bad")} role="alert">
            {signInNote.value}
          </p>
        )}
        {how.error !== undefined && <Failure error={how.error} retry={how.reload} />}
        {how.value && <WithProvider how={how.value} />}
        <WithKey alone={!how.value} />
      </div>
    </main>
  );
}

function WithProvider({ how }: { how: OIDC }) {
  const { host } = new URL(how.provider.issuer);
  if (!isSecureContext) return <p class="notice">{words.signIn.oidc.insecure(host)}</p>;
  return (
    <Button look="first" onClick={() => signInWith(how)}>
      {words.signIn.oidc.with(host)}
    </Button>
  );
}

function WithKey({ alone }: { alone: boolean }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState<unknown>();
  const send = (event: Event) => {
    event.preventDefault();
    setError(undefined);
    signIn(token).catch((thrown: unknown) => me.value === null || setError(thrown));
  };
  return (
    <form class="keyed" onSubmit={send}>
      <Field label={words.signIn.token} hint={words.signIn.hint}>
        <input
          class="input"
          type="password"
          autocomplete="off"
          required
          value={token}
          onInput={(event) => setToken(event.currentTarget.value)}
        />
      </Field>
      {error !== undefined && <Failure error={error} />}
      <Button type="submit" {...(alone ? { look: "first" as const } : {})}>
        {words.signIn.submit}
      </Button>
    </form>
  );
}
