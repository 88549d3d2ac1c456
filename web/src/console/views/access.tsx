// Access: who and what may come in, and what they did. Each part has its own address.

import { Redirect, Route, Switch } from "wouter-preact";
import { words } from "../../words/en";
import { may } from "../session";
import { Audit } from "./access-audit";
import { Keys } from "./access-keys";
import { PairedDevices } from "./access-devices";
import { Pairing } from "./access-pairing";
import { Policy } from "./access-policy";
import { Usage } from "./access-usage";
import { Subtabs } from "./subtabs";
import "./access.css";

const text = words.access;

export function Access() {
  const views = [
    { name: "pairing", View: Pairing, shown: may("approver") },
    { name: "devices", View: PairedDevices, shown: may("approver") },
    { name: "keys", View: Keys, shown: may("admin") },
    { name: "policy", View: Policy, shown: may("admin") },
    { name: "audit", View: Audit, shown: may("admin") },
    { name: "usage", View: Usage, shown: may("caller") },
  ] as const;
  const mine = views.filter((view) => view.shown);
  return (
    <>
      <Subtabs title={text.title} tabs={mine.map(({ name }) => ({ to: "/access/" + name, name: text.tabs[name] }))} />
      <Switch>
        {mine.map(({ name, View }) => (
          <Route key={name} path={"/access/" + name} component={View} />
        ))}
        <Route>
          <Redirect to={"/access/" + mine[0]!.name} replace />
        </Route>
      </Switch>
    </>
  );
}
