"use strict";
// The service worker of the device page. It keeps the files of the page, which are the same for all, so that it opens
// without a network, and shows the page when a notification is tapped. It never sees the API's answers.
const kept = "farhand-device-1";
const page = "/device";

addEventListener("install", (event) => event.waitUntil(fill().then(() => skipWaiting())));
addEventListener("activate", (event) => event.waitUntil(clients.claim()));

async function fill() {
  const cache = await caches.open(kept);
  const answer = await fetch(page, { cache: "no-cache", credentials: "omit" });
  if (!answer.ok) throw new Error(`the page has the status ${answer.status}`);
  const html = await answer.clone().text();
  const files = [...html.matchAll(/(?:src|href)="(\/[\w./-]+)"/g)].map(([, path]) => path);
  await cache.addAll(files);
  await cache.put(page, answer);
  for (const { url } of await cache.keys()) { // files of older builds
    const path = new URL(url).pathname;
    if (path.startsWith("/assets/") && !files.includes(path)) await cache.delete(url);
  }
}

addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== location.origin) return;
  if (request.mode === "navigate" && url.pathname === page) event.respondWith(newest(request));
  else if (url.pathname.startsWith("/assets/")) event.respondWith(stored(request));
  else if (url.pathname === "/icon.svg") event.respondWith(fetch(request).catch(() => stored(request)));
});

/** The page as the gateway has it, else as it was. */
async function newest(request) {
  try {
    const answer = await fetch(request);
    if (answer.ok) {
      const known = await (await caches.match(page))?.text();
      if (known !== (await answer.clone().text())) await fill().catch(() => {});
      return answer;
    }
    return (await caches.match(page)) ?? answer;
  } catch (error) {
    const known = await caches.match(page);
    if (known) return known;
    throw error;
  }
}

/** Names of assets have a hash of their content. */
const stored = async (request) => (await caches.match(request)) ?? fetch(request);

addEventListener("push", (event) => event.waitUntil(woken(event.data)));

/** Shows that an agent needs this device. The message names tools only if the gateway's operator wants that. */
function woken(data) {
  let tools = [];
  try {
    tools = data.json().tools ?? [];
  } catch {
    // a message of another release
  }
  const asked = tools.filter((name) => typeof name === "string").join(", ").slice(0, 200);
  return registration.showNotification("An agent needs this device", {
    body: asked ? `It asks for ${asked}. Tap to answer.` : "Tap to answer.", icon: "/icon-192.png", tag: "wake",
    renotify: true,
  });
}

addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open());
});

async function open() {
  const windows = await clients.matchAll({ type: "window", includeUncontrolled: true });
  const there = windows.find(({ url }) => new URL(url).pathname === page);
  await (there ? there.focus() : clients.openWindow(page));
}
