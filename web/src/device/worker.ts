import { signal } from "@preact/signals";

import { scriptURL } from "../ui/trusted";

/** This browser lets the page have no service worker: most often it distrusts the gateway's certificate. */
export const workerRefused = signal(false);

/** Installs the service worker, which keeps the shell of the page for when there is no network. */
export function install(): void {
  if (!("serviceWorker" in navigator)) return;
  navigator.serviceWorker.register(scriptURL("/sw.js"), { scope: "/device" }).catch((error: unknown) => {
    console.warn(error);
    if (error instanceof DOMException && error.name === "SecurityError") workerRefused.value = true;
  });
}
