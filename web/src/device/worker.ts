import { signal } from "@preact/signals";

import { scriptURL } from "../ui/trusted";

/** This browser refuses the page a service worker: it distrusts the certificate, or blocks the page's storage. */
export const workerRefused = signal(false);

/** Installs the service worker, which keeps the shell of the page for when there is no network. */
export function install(): void {
  if (!("serviceWorker" in navigator)) return;
  navigator.serviceWorker.register(scriptURL("/sw.js"), { scope: "/device" }).catch((error: unknown) => {
    console.warn(error);
    if (error instanceof DOMException && error.name === "SecurityError") workerRefused.value = true;
  });
}
