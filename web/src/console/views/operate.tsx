// Operate: the pods of the fleet, and what a pod finds when it checks what it uses.

import { Redirect, Route, Switch } from "wouter-preact";
import { words } from "../../words/en";
import { Checks } from "./operate-checks";
import { Pods } from "./operate-pods";
import { Subtabs } from "./subtabs";
import "./operate.css";

const text = words.operate;

export function Operate() {
  return (
    <>
      <Subtabs
        title={text.title}
        tabs={[
          { to: "/operate/pods", name: text.tabs.pods },
          { to: "/operate/checks", name: text.tabs.checks },
        ]}
      />
      <Switch>
        <Route path="/operate/pods" component={Pods} />
        <Route path="/operate/checks" component={Checks} />
        <Route>
          <Redirect to="/operate/pods" replace />
        </Route>
      </Switch>
    </>
  );
}
