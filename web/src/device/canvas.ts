// The canvas: a frame in which agents draw. Its document has an opaque origin (the attribute sandbox, and the sandbox
// of its own Content-Security-Policy), so what runs there reaches neither this page nor the gateway. What it says is
// checked like what a stranger says.

import { signal } from "@preact/signals";
import { note } from "./kept";
import { words } from "../words/device";
import { within } from "./tools/tool";

/** What a canvas shows. The page keeps it, so that a new frame shows the same. */
interface Content {
  url: string;
  /** A2UI objects, each as JSON. */
  lines: string[];
}

export const visible = signal(false);
/** Changes when the frame is replaced; 0: there is none yet. */
export const generation = signal(0);

const mostLines = 1000;
const mostCharacters = 1 << 20; // of all lines
const mostValue = 64 << 10; // characters of a value that eval returns
const mostPicture = 8 << 20; // bytes
const mostTaps = 20;
const pause = 200; // ms between taps that are written down: code on the canvas can make them up
const loading = 20_000; // ms that a frame may take to load

let content: Content = { url: "", lines: [] };
let frame: HTMLIFrameElement | null = null;
let listening: Promise<void> = Promise.resolve();
let heard = (): void => {};
let taps: string[] = [];
let noted = 0;
const waiting = new Map<number, (answer: Answer) => void>();
let asked = 0;

interface Answer {
  ok: boolean;
  value: unknown;
}

type Command =
  | { do: "eval"; code: string }
  | { do: "navigate"; url: string }
  | { do: "push"; lines: string[] }
  | { do: "picture"; quality: number };

/** Makes a new frame with the same content. What ran in the old one is gone. */
export function renew(): void {
  for (const answer of waiting.values()) answer({ ok: false, value: "the canvas was restarted" });
  waiting.clear();
  listening = new Promise((resolve, reject) => {
    heard = resolve;
    setTimeout(() => reject(new Error("the canvas does not load")), loading);
  });
  listening.catch(() => {});
  generation.value++;
}

/** Takes the frame that the page has made. */
export function attach(element: HTMLIFrameElement | null): void {
  frame = element;
}

/** Hears the frame. The returned function ends that. */
export function hear(): () => void {
  const take = (event: MessageEvent<unknown>): void => {
    if (!frame || event.source !== frame.contentWindow || event.origin !== "null") return;
    const said = Object(event.data) as { ready?: unknown; tap?: unknown; id?: unknown; ok?: unknown; value?: unknown };
    if (said.ready === true) return ready();
    if (typeof said.tap === "string") return tapped(said.tap.slice(0, 2000));
    if (typeof said.id !== "number") return;
    const answer = waiting.get(said.id);
    waiting.delete(said.id);
    answer?.({ ok: said.ok === true, value: said.value });
  };
  addEventListener("message", take);
  return () => removeEventListener("message", take);
}

function ready(): void {
  if (content.lines.length > 0) post(0, { do: "push", lines: content.lines });
  if (content.url) post(0, { do: "navigate", url: content.url });
  heard();
}

/** The person used something that an agent drew. Agents learn it from the next picture of the canvas. */
function tapped(action: string): void {
  taps = [...taps, action].slice(-mostTaps);
  let name = action;
  try {
    name = String((Object(JSON.parse(action)) as { name?: unknown }).name);
  } catch {
    // not as the frame writes it
  }
  const now = Date.now();
  if (now - noted < pause) return;
  noted = now;
  note(words.canvas.taps(name), "tap");
}

const post = (id: number, command: Command): void => frame?.contentWindow?.postMessage({ id, ...command }, "*");

/** Tells the frame to do something, and waits for its answer. A frame that does not answer in time is replaced. */
async function tell(command: Command, signal: AbortSignal): Promise<unknown> {
  if (generation.value === 0) renew();
  await within(listening, signal);
  const id = ++asked;
  const answered = new Promise<Answer>((resolve) => {
    waiting.set(id, resolve);
    post(id, command);
  });
  try {
    const { ok, value } = await within(answered, signal);
    if (!ok) throw new Error(String(value).slice(0, mostValue));
    return value;
  } catch (error) {
    if (signal.aborted) renew();
    throw error;
  } finally {
    waiting.delete(id);
  }
}

export async function present(url: string | undefined, signal: AbortSignal): Promise<string> {
  visible.value = true;
  if (generation.value === 0) renew();
  return url ? navigate(url, signal) : done();
}

export function hide(): string {
  visible.value = false;
  return "done";
}

export async function navigate(url: string, signal: AbortSignal): Promise<string> {
  check(url);
  content = { ...content, url };
  await tell({ do: "navigate", url }, signal);
  return done();
}

export async function evaluate(code: string, signal: AbortSignal): Promise<unknown> {
  if (content.url) {
    throw new Error("the presented page is from another site, and browsers let no script into it: " +
      "reset the canvas, and draw on it yourself");
  }
  const value = String(await tell({ do: "eval", code }, signal));
  if (value.length > mostValue) throw new RangeError(`the value has more than ${mostValue} characters`);
  return JSON.parse(value) as unknown;
}

export async function push(jsonl: string, signal: AbortSignal): Promise<string> {
  const added = jsonl.split("\n").map((line) => line.trim()).filter(Boolean);
  added.forEach((line, i) => {
    let object: unknown;
    try {
      object = JSON.parse(line);
    } catch {
      // so it is none
    }
    if (typeof object !== "object" || object === null || Array.isArray(object)) {
      throw new TypeError(`line ${i + 1} is not a JSON object`);
    }
  });
  await tell({ do: "push", lines: added }, signal);
  const lines = [...content.lines, ...added].slice(-mostLines);
  let size = lines.reduce((sum, line) => sum + line.length, 0);
  while (size > mostCharacters) size -= lines.shift()!.length;
  content = { ...content, lines };
  return done();
}

/** Removes all that agents have made, with a new frame: code of theirs may run in the old one. */
export async function reset(signal: AbortSignal): Promise<string> {
  content = { url: "", lines: [] };
  taps = [];
  renew();
  await within(listening, signal);
  return done();
}

export async function picture(quality: number, signal: AbortSignal): Promise<{ blob: Blob; text: string }> {
  const blob = await tell({ do: "picture", quality: quality / 100 }, signal);
  if (!(blob instanceof Blob)) throw new Error("the canvas has no picture");
  const seen = content.url ? ` The page ${content.url} is from another site and not in the picture.` : "";
  const acts = taps.length > 0 ? ` The person used: ${taps.join(" ")}` : "";
  taps = [];
  const where = visible.value ? "visible" : "hidden";
  const text = `A picture of the canvas, which is ${where}.${seen}${acts}`;
  return { blob: blob.slice(0, mostPicture, "image/jpeg"), text };
}

const done = (): string =>
  visible.value && !document.hidden ? "done" : "done; the canvas is not visible yet";

/** Refuses what is no public web page. Names that resolve to a private address are the browser's to refuse. */
function check(url: string): void {
  const target = URL.canParse(url) ? new URL(url) : undefined;
  if (!target || !/^https?:$/.test(target.protocol)) throw new TypeError("the url must be http or https");
  if (target.username || target.password) throw new TypeError("the url must not have a user name or password");
  const host = target.hostname;
  const local = /^(localhost|.*\.localhost|.*\.local|.*\.internal)\.?$/i;
  const ipv4 = [
    /^(0|10|127)\./, /^100\.(6[4-9]|[7-9]\d|1[01]\d|12[0-7])\./, /^169\.254\./, /^172\.(1[6-9]|2\d|3[01])\./,
    /^192\.168\./, /^(22[4-9]|2[3-5]\d)\./,
  ];
  if (local.test(host) || ipv4.some((range) => range.test(host)) || host.startsWith("[")) {
    throw new TypeError("the url names a private address");
  }
  if (location.protocol === "https:" && target.protocol === "http:") {
    throw new TypeError("browsers show no http page within an https page");
  }
}
