// A push wakes this page while it is closed: the service worker shows it, and a tap opens the page.

import type { Wake, WakeOffer } from "@farhand/device";
import { signal } from "@preact/signals";
import { Button, notify } from "../ui/parts";
import { words } from "../words/device";
import { refused } from "./powers";

/** Whether the gateway and this browser could do it, if the person allows notifications. */
const possible = signal(false);
/** Whether the gateway knows how to wake this page. */
export const wakes = signal(false);

/** Subscribes to pushes of the gateway. Undefined: the person has not decided. Null: the gateway must forget. */
export async function subscribe(offer: WakeOffer): Promise<Wake | null | undefined> {
  const worker = "PushManager" in globalThis ? await navigator.serviceWorker?.getRegistration("/device") : undefined;
  possible.value = worker !== undefined && offer.kinds.includes("webpush");
  if (!possible.value || Notification.permission === "denied") return null;
  if (Notification.permission !== "granted") return undefined;
  const options = { userVisibleOnly: true, applicationServerKey: offer.vapidPublicKey };
  const { pushManager } = worker!;
  const subscription = await pushManager.subscribe(options).catch(async (error: unknown) => {
    const former = await pushManager.getSubscription(); // with another key of the gateway
    if (!former) throw error;
    await former.unsubscribe();
    return pushManager.subscribe(options);
  });
  const { endpoint, keys } = subscription.toJSON();
  return { kind: "webpush", endpoint: endpoint!, keys: { p256dh: keys!["p256dh"]!, auth: keys!["auth"]! } };
}

/** Asks the person whether agents may call when the page is closed. */
export function AskWake({ again }: { again: () => Promise<void> }) {
  if (!possible.value || wakes.value || Notification.permission !== "default") return null;
  const ask = async (): Promise<void> => {
    if ((await Notification.requestPermission()) === "granted") return again();
    possible.value = false;
    if (Notification.permission === "denied") refused("notifications");
  };
  return (
    <div class="notice">
      <p>{words.wake.ask}</p>
      <Button onClick={() => void ask().catch((error: unknown) => notify(String(error), "bad"))}>{words.wake.allow}</Button>
    </div>
  );
}
