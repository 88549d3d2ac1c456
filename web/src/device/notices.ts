// Notifications of the browser.

import { words } from "../words/device";
import { granted } from "./powers";

/** Shows a notification, if the person allowed them. The service worker shows it where the page itself may not. */
export async function showNotice(title: string, body: string, tag?: string): Promise<void> {
  const options: NotificationOptions = { body, icon: "/icon-192.png", ...(tag && { tag }) };
  const worker = await navigator.serviceWorker?.getRegistration("/device");
  if (worker?.active) await worker.showNotification(title, options);
  else new Notification(title, options);
}

/** Calls the person to a page that is in the background. The returned function takes the notification back. */
export function notice(tool: string, text: string): () => void {
  if (!document.hidden || !granted("notifications")) return () => {};
  const tag = "question";
  void showNotice(words.tools[tool]?.title ?? tool, text, tag).catch(() => {});
  return () => {
    void navigator.serviceWorker
      ?.getRegistration("/device")
      .then((worker) => worker?.getNotifications({ tag }))
      .then((all) => all?.forEach((shown) => shown.close()))
      .catch(() => {});
  };
}
