// The head of a view with parts of its own, each with an address.

import type { ComponentChildren } from "preact";
import { Link, useLocation } from "wouter-preact";
import { useCurrentInSight } from "../sight";
import "./subtabs.css";

interface Subtab {
  to: string;
  name: string;
  count?: number | undefined;
  /** An address below that belongs to another tab. */
  exact?: string;
}

interface SubtabsProps {
  title: string;
  tabs: Subtab[];
  children?: ComponentChildren;
}

export function Subtabs({ title, tabs, children }: SubtabsProps) {
  const [location] = useLocation();
  const nav = useCurrentInSight(location);
  const isHere = ({ to, exact }: Subtab) =>
    (location === to || location.startsWith(to + "/")) && !(exact && location.startsWith(to + exact));
  return (
    <header class="subtabs">
      <h1>{title}</h1>
      <nav aria-label={title} ref={nav}>
        {tabs.map((tab) => (
          <Link key={tab.to} href={tab.to} class="subtab" aria-current={isHere(tab) ? "page" : undefined}>
            {tab.name}
            {tab.count ? <span class="count">{tab.count}</span> : null}
          </Link>
        ))}
      </nav>
      <div class="push">{children}</div>
    </header>
  );
}
