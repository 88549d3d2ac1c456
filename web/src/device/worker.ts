import { signal } from "@preact/signals";

/** This browser lets the page have no service worker: most often it distrusts the gateway's certificate. */
export const workerRefused = signal(false);

/** The one address that the page's policy of trusted types lets become a script. */
const address = "/sw.js";

interface Policies {
  createPolicy(
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ): { createScriptURL(url: string): string };
}

/** Installs the service worker, which keeps the shell of the page for when there is no network. */
export function install(): void {
  if (!("serviceWorker" in navigator)) return;
  const { trustedTypes } = globalThis as { trustedTypes?: Policies };
  const url = trustedTypes
    ? trustedTypes.createPolicy("farhand", {
        createScriptURL: (given) => {
          if (given !== address) throw new TypeError("no script of this page");
          return given;
        },
      }).createScriptURL(address)
    : address;
  navigator.serviceWorker.register(url, { scope: "/device" }).catch((error: unknown) => {
    console.warn(error);
    if (error instanceof DOMException && error.name === "SecurityError") workerRefused.value = true;
  });
}
