// Tools that tell the person something, or ask.

import type { Call } from "@farhand/device";
import { show } from "../live";
import { showNotice } from "../notices";
import { granted, lacks, refused, without } from "../powers";
import { ask, type Choice } from "../prompts";
import { words } from "../../words/device";
import { pageTool, personTimeout } from "./tool";

async function notify({ title, body }: { title?: string; body: string }, call: Call): Promise<string> {
  if (!granted("notifications") && Notification.permission !== "granted") {
    const { question, action } = words.tools.notify!;
    const state = await ask(call, {
      text: question!, detail: title ? `${title}\n${body}` : body,
      choices: [{ label: action!, look: "first", run: () => Notification.requestPermission() }],
    });
    if (state !== "granted") {
      if (state === "denied") refused("notifications");
      throw new Error("the person did not allow notifications");
    }
  }
  await showNotice(title ?? words.product, body);
  return "shown";
}

interface Answer {
  answer: string;
  /** Which of the choices it is, from 0. */
  choice?: number;
}

interface Asked {
  question: string;
  choices?: string[];
  text?: boolean;
  placeholder?: string;
}

async function askPerson({ question, choices = [], text, placeholder }: Asked, call: Call): Promise<Answer> {
  const free = text ?? choices.length === 0;
  const all: Choice[] = choices.map((label, choice) => ({ label, run: (): Answer => ({ answer: label, choice }) }));
  if (free) all.push({ label: words.prompts.send, look: "first", run: (answer): Answer => ({ answer }) });
  return (await ask(call, { text: question, choices: all, ...(free && { field: placeholder ?? "" }) })) as Answer;
}

const openable = /^https?:$/;

async function openURL({ url, reason }: { url: string; reason?: string }, call: Call): Promise<string> {
  const target = URL.canParse(url) ? new URL(url) : undefined;
  if (!target || !openable.test(target.protocol)) throw new TypeError("the url must be http or https");
  if (target.username || target.password) throw new TypeError("the url must not have a user name or password");
  const { question, action } = words.tools.open_url!;
  return (await ask(call, {
    text: reason ?? question!, detail: target.href,
    choices: [{
      label: action!, look: "first",
      run: () => {
        open(target.href, "_blank", "noopener,noreferrer");
        return "opened";
      },
    }],
  })) as string;
}

async function share(args: { title?: string; text?: string; url?: string }, call: Call): Promise<string> {
  if (args.url && !URL.canParse(args.url)) throw new TypeError("the url is malformed");
  const { question, action } = words.tools.share!;
  const run = (): Promise<string> =>
    navigator.share(args).then(() => "shared", (error: unknown) => {
      throw error instanceof DOMException && error.name === "AbortError"
        ? new Error("the person shared it with no app")
        : error;
    });
  return (await ask(call, {
    text: question!, detail: [args.title, args.text, args.url].filter(Boolean).join("\n"),
    choices: [{ label: action!, look: "first", run }],
  })) as string;
}

const mostPicture = 4 << 20; // bytes
const pictures = /^data:(image\/(?:png|jpeg|webp|gif));base64,([A-Za-z0-9+/=\s]+)$/;

interface ToShow {
  title?: string;
  text?: string;
  picture?: string;
  latitude?: number;
  longitude?: number;
  label?: string;
}

function put({ title, text, picture, latitude, longitude, label }: ToShow): string {
  if (latitude === undefined !== (longitude === undefined)) throw new TypeError("a place needs latitude and longitude");
  const place = latitude !== undefined && longitude !== undefined
    ? { latitude, longitude, ...(label && { label }) }
    : undefined;
  if (!title && !text && !picture && !place) {
    show(undefined);
    return "nothing is shown now";
  }
  show({
    ...(title && { title }), ...(text && { text }), ...(place && { place }), ...(picture && { picture: blobOf(picture) }),
  });
  return document.hidden ? "shown, but the page is in the background" : "shown";
}

function blobOf(picture: string): string {
  const [, type, data] = pictures.exec(picture) ?? [];
  if (!type || !data) throw new TypeError("the picture must be a data URL of a PNG, JPEG, WebP or GIF in base64");
  const binary = atob(data.replace(/\s/g, ""));
  if (binary.length > mostPicture) throw new RangeError(`the picture has more than ${mostPicture} bytes`);
  return URL.createObjectURL(new Blob([Uint8Array.from(binary, (c) => c.charCodeAt(0))], { type }));
}

export const personTools = [
  pageTool({
    name: "ask_person",
    description: "Ask the person at this device, and wait for the answer. Offer choices, a text field, or both. " +
      "Returns the answer, and the number of the choice, from 0.",
    properties: {
      question: { type: "string", minLength: 1, maxLength: 2000 },
      choices: { type: "array", maxItems: 12, items: { type: "string", minLength: 1, maxLength: 120 } },
      text: { type: "boolean", description: "whether there is a text field; default: only without choices" },
      placeholder: { type: "string", maxLength: 120 },
    },
    required: ["question"], effect: "changes", timeout: personTimeout,
  }, () => undefined, askPerson),
  pageTool({
    name: "notify", description: "Show a notification to the person at this device.",
    properties: { title: { type: "string", maxLength: 200 }, body: { type: "string", maxLength: 2000 } },
    required: ["body"], effect: "changes", timeout: personTimeout,
  }, () => without("notifications", "Notification" in globalThis), notify),
  pageTool({
    name: "show",
    description: "Put a text, a picture or a place on this device's page, instead of what was there. " +
      "Without arguments it is cleared.",
    properties: {
      title: { type: "string", maxLength: 200 },
      text: { type: "string", maxLength: 10_000 },
      picture: { type: "string", description: "data URL of a PNG, JPEG, WebP or GIF in base64" },
      latitude: { type: "number", minimum: -90, maximum: 90 },
      longitude: { type: "number", minimum: -180, maximum: 180 },
      label: { type: "string", maxLength: 200, description: "name of the place" },
    },
    effect: "changes",
  }, () => undefined, put),
  pageTool({
    name: "open_url", description: "Ask the person at this device to open a web page in a new tab.",
    properties: { url: { type: "string", maxLength: 8192 }, reason: { type: "string", maxLength: 500 } },
    required: ["url"], effect: "opens", timeout: personTimeout,
  }, () => undefined, openURL),
  pageTool({
    name: "share", description: "Offer the person at this device to share a text or link with another app.",
    properties: {
      title: { type: "string", maxLength: 200 }, text: { type: "string", maxLength: 10_000 },
      url: { type: "string", maxLength: 8192 },
    },
    effect: "changes", timeout: personTimeout,
  }, () => lacks("share" in navigator, true), share),
];
