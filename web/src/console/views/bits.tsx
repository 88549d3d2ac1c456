// Small components that several views of the console share.

import { Component, type ComponentChildren } from "preact";
import type { CallRecord, CallState } from "../../api/types";
import { Badge, classes, type Tone } from "../../ui/parts";
import { words } from "../../words/en";
import "./bits.css";

interface SegmentedProps {
  label: string;
  value: string;
  options: Record<string, string>;
  onChange: (value: string) => void;
}

/** A choice between few values, all in sight. */
export function Segmented({ label, value, options, onChange }: SegmentedProps) {
  return (
    <div class="segmented" role="group" aria-label={label}>
      {Object.entries(options).map(([key, name]) => (
        <button
          key={key}
          type="button"
          class={classes(key === value && "chosen")}
          aria-pressed={key === value}
          onClick={() => onChange(key)}
        >
          {name}
        </button>
      ))}
    </div>
  );
}

const finals: CallState[] = ["succeeded", "failed", "cancelled", "timed_out", "lost", "rejected", "expired"];

export function isFinal(state: CallState): boolean {
  return finals.includes(state);
}

export function toneOf(state: CallState): Tone {
  if (state === "succeeded") return "good";
  if (state === "cancelled" || state === "expired" || state === "timed_out") return "warn";
  if (isFinal(state)) return "bad";
  return "accent";
}

export function State({ call }: { call: Pick<CallRecord, "state" | "approval_id"> }) {
  const waits = call.state === "accepted" && call.approval_id;
  return (
    <Badge tone={waits ? "warn" : toneOf(call.state)}>{waits ? words.call.waits : words.call.states[call.state]}</Badge>
  );
}

/** The time of a call so far, in ms; undefined if it is not over. */
export function tookOf(call: Pick<CallRecord, "timeline" | "state">): number | undefined {
  const [first, last] = [call.timeline[0], call.timeline.at(-1)];
  if (!first || !last || !isFinal(call.state)) return undefined;
  return Date.parse(last.at) - Date.parse(first.at);
}

export function duration(ms: number | undefined): string {
  if (ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  if (size < 1024 ** 2) return `${(size / 1024).toFixed(1)} KiB`;
  return `${(size / 1024 ** 2).toFixed(1)} MiB`;
}

interface BoundaryProps {
  fallback: (error: unknown) => ComponentChildren;
  children: ComponentChildren;
}

/** Shows fallback in place of children that cannot be shown. */
export class Boundary extends Component<BoundaryProps, { error?: unknown }> {
  override state: { error?: unknown } = {};

  static override getDerivedStateFromError(error: unknown) {
    return { error };
  }

  override render({ fallback, children }: BoundaryProps) {
    return "error" in this.state ? fallback(this.state.error) : children;
  }
}

interface HeadProps {
  back: ComponentChildren;
  title: ComponentChildren;
  children?: ComponentChildren;
}

/** The head of a view: the way back, its title, and what can be done. */
export function Head({ back, title, children }: HeadProps) {
  return (
    <header class="head">
      <div class="heading">
        <nav class="crumbs">{back}</nav>
        <h1>{title}</h1>
      </div>
      <div class="actions push">{children}</div>
    </header>
  );
}

/** A fact, if it is known. */
export function Fact({ name, value }: { name: string; value: ComponentChildren }) {
  if (value === undefined || value === false || value === "") return null;
  return (
    <>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </>
  );
}
