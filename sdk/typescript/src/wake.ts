// How a device is woken while it sleeps.

import { list, text } from "./frames.js";

/** What a gateway offers. */
export interface WakeOffer {
  /** The kinds that it can send, such as `webpush`. */
  readonly kinds: readonly string[];
  /** Its public key for Web Push, in base64url: the applicationServerKey of pushManager.subscribe. */
  readonly vapidPublicKey: string;
}

/** How a device is woken. docs/wake.md of the gateway describes the kinds and their fields. */
export interface Wake {
  kind: "webhook" | "webpush" | "unifiedpush" | "fcm" | "apns";
  url?: string;
  endpoint?: string;
  keys?: { p256dh: string; auth: string };
  token?: string;
  topic?: string;
  min_interval_ms?: number;
  /** No pushes in this part of each day, such as from 22:00 to 07:00 in Europe/Vienna. */
  quiet?: { from: string; to: string; zone?: string };
}

/** Returns the offer of the frame connected, undefined if the gateway wakes no devices. */
export function wakeOffer(field: unknown): WakeOffer | undefined {
  if (typeof field !== "object" || field === null) return undefined;
  const { kinds, vapid_public_key } = field as Record<string, unknown>;
  return { kinds: list<unknown>(kinds).map(text), vapidPublicKey: text(vapid_public_key) };
}
