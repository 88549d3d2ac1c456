// The components that all pages share. They have no state of the gateway, and take their texts from words.

import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Problem } from "../api/client";
import { words } from "../words/en";
import "./parts.css";

export type Tone = "good" | "warn" | "bad" | "accent" | "";

export function classes(...names: (string | false | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}

interface ButtonProps extends Omit<JSX.HTMLAttributes<HTMLButtonElement>, "onClick"> {
  look?: "first" | "danger" | "plain" | "stop";
  small?: boolean;
  type?: "button" | "submit";
  disabled?: boolean;
  /** While the promise is open, the button is disabled. What it is rejected with is shown as a toast. */
  onClick?: (event: MouseEvent) => unknown;
}

export function Button({ look, small, type = "button", disabled, onClick, children, ...rest }: ButtonProps) {
  const [busy, setBusy] = useState(false);
  const click = async (event: MouseEvent) => {
    const result = onClick?.(event);
    if (!(result instanceof Promise)) return;
    setBusy(true);
    try {
      await result;
    } catch (error) {
      failed(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <button
      {...rest}
      type={type}
      class={classes("button", look, small && "small")}
      disabled={disabled || busy}
      aria-busy={busy}
      onClick={click}
    >
      {children}
    </button>
  );
}

export function Badge({ tone = "", title, children }: { tone?: Tone; title?: string; children: ComponentChildren }) {
  return (
    <span class={classes("badge", tone)} title={title}>
      {children}
    </span>
  );
}

/** A coloured dot beside the text that says the same. */
export function Dot({ tone }: { tone: Tone }) {
  return <span class={classes("dot", tone)} aria-hidden="true" />;
}

export function Panel({
  title,
  actions,
  children,
  flush,
}: {
  title?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
  flush?: boolean;
}) {
  return (
    <section class="panel">
      {title !== undefined && (
        <header>
          <h2>{title}</h2>
          {actions}
        </header>
      )}
      {flush ? children : <div class="body">{children}</div>}
    </section>
  );
}

/** What a view shows when there is nothing: why, and what to do next. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Loading() {
  return (
    <p class="loading" role="status">
      {words.loading}
    </p>
  );
}

export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  return (
    <div class="notice bad" role="alert">
      <p>{textOf(error)}</p>
      {retry && (
        <Button small onClick={retry}>
          {words.retry}
        </Button>
      )}
    </div>
  );
}

export function textOf(error: unknown): string {
  if (error instanceof Problem) return error.message;
  return error instanceof Error ? error.message : String(error);
}

export function Field({
  label,
  hint,
  children,
}: {
  label: string;
  hint?: ComponentChildren;
  children: ComponentChildren;
}) {
  return (
    <label class="field">
      <span class="label">{label}</span>
      {children}
      {hint && <span class="hint">{hint}</span>}
    </label>
  );
}

/** One clock for all relative times of the page. */
const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 10_000);

const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });
const exact = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "long" });
const units: [Intl.RelativeTimeFormatUnit, number][] = [
  ["day", 86_400_000],
  ["hour", 3_600_000],
  ["minute", 60_000],
];

/** A relative time, with the exact one on hover. */
export function Time({ at }: { at: string | number | undefined }) {
  if (!at) return <span class="muted">–</span>;
  const date = new Date(at);
  const distance = date.getTime() - now.value;
  const [unit, size] = units.find(([, ms]) => Math.abs(distance) >= ms) ?? ["second", 1000];
  const text = Math.abs(distance) < 15_000 ? words.now : relative.format(Math.trunc(distance / size), unit);
  return (
    <time dateTime={date.toISOString()} title={exact.format(date)}>
      {text}
    </time>
  );
}

/** write copies a text. Pages without TLS have no clipboard of their own, but may copy what is selected. */
async function write(text: string): Promise<void> {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) throw new Error(words.notCopied);
}

export function Copy({ text, label = words.copy }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <Button
      small
      look="plain"
      onClick={async () => {
        await write(text);
        setCopied(true);
        setTimeout(() => setCopied(false), 2000);
      }}
    >
      {copied ? words.copied : label}
    </Button>
  );
}

interface DialogProps {
  title: string;
  open: boolean;
  onClose: () => void;
  /** Runs when the form is submitted. The dialog closes when it resolves, and shows what it is rejected with. */
  onSubmit?: () => unknown;
  submit?: string;
  danger?: boolean;
  children?: ComponentChildren;
}

export function Dialog({ title, open, onClose, onSubmit, submit, danger, children }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (open && !ref.current?.open) ref.current?.showModal();
    if (!open && ref.current?.open) ref.current.close();
    setError(undefined);
  }, [open]);
  const send = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await onSubmit?.();
      onClose();
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  };
  return (
    <dialog ref={ref} class="dialog" aria-label={title} onClose={onClose}>
      {open && (
        <form onSubmit={send}>
          <h2>{title}</h2>
          {children}
          {error !== undefined && <Failure error={error} />}
          <div class="actions">
            <Button onClick={onClose}>{submit ? words.cancel : words.close}</Button>
            {submit && (
              <Button type="submit" look={danger ? "danger" : "first"} disabled={busy}>
                {submit}
              </Button>
            )}
          </div>
        </form>
      )}
    </dialog>
  );
}

interface Toast {
  id: number;
  text: string;
  tone: Tone;
}

const toasts = signal<Toast[]>([]);
const shown = 6_000;
const most = 4;
let lastToast = 0;

/** notify shows a text for some seconds. */
export function notify(text: string, tone: Tone = ""): void {
  const id = ++lastToast;
  toasts.value = [...toasts.value.slice(1 - most), { id, text, tone }];
  setTimeout(() => (toasts.value = toasts.value.filter((t) => t.id !== id)), shown);
}

export function failed(error: unknown): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  notify(textOf(error), "bad");
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <p key={toast.id} class={classes("toast", toast.tone)}>
          {toast.text}
        </p>
      ))}
    </div>
  );
}
