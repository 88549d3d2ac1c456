import { FarhandError, messageOf } from "./errors.js";
import { ask, bearer, refusal, type Address } from "./http.js";
import { indexedDBStore, memoryStore, type Store } from "./store.js";

/** Auth is what a connection proves who it is with. */
export interface Auth {
  token: string;
  /** nonce.signature of a paired device; empty: none */
  signature: string;
}

/** What a Connection tells. After closed it tells nothing more. */
export interface Events {
  open(): void;
  message(text: string): void;
  /** A ping came. */
  alive(): void;
  /** The connection has ended, with the code and reason of the gateway's close frame, or with an error. */
  closed(code: number, reason: string, error?: FarhandError): void;
}

export interface Connection {
  /** Sends a frame. Without an open connection it does nothing. */
  send(frame: string): void;
  /** Sends a close frame; closed comes later. */
  close(): void;
}

/** Platform is what differs between browsers and Node.js. */
export interface Platform {
  readonly name: string;
  /** Whether connections report pings. If not, the device asks for signs of life itself. */
  readonly seesPings: boolean;
  /** Whether stores keep keys as objects, which scripts cannot read. */
  readonly keepsKeys: boolean;
  dial(address: Address, url: URL, auth: Auth, events: Events): Connection;
  /** The store of a device that was given none. */
  store(name: string): Store;
  /** Calls f when the network may be back: a phone awoke, a cable was plugged in. The returned function ends that. */
  onWake(f: () => void): () => void;
}

/** The subprotocol that every device offers. */
export const subprotocol = "clawseed.v1";

export const browser: Platform = {
  name: "web",
  seesPings: false,
  keepsKeys: true,

  dial(address, url, auth, events) {
    const protocols = [subprotocol];
    if (auth.token) protocols.push(`bearer.${auth.token}`);
    if (auth.signature) protocols.push(`signature.${auth.signature}`);
    const socket = new WebSocket(url, protocols);
    let opened = false;
    socket.onopen = () => {
      opened = true;
      events.open();
    };
    socket.onmessage = (event: MessageEvent<unknown>) => {
      if (typeof event.data === "string") events.message(event.data);
    };
    socket.onclose = ({ code, reason }) => {
      if (opened) return events.closed(code, reason);
      void whyNot(address, url, auth).then((error) => events.closed(code, reason, error));
    };
    return {
      send: (frame) => {
        if (socket.readyState === WebSocket.OPEN) socket.send(frame);
      },
      close: () => socket.close(1000),
    };
  },

  store: (name) => ("indexedDB" in globalThis ? indexedDBStore(name) : memoryStore()),

  onWake(f) {
    const seen = (): void => {
      if (document.visibilityState === "visible") f();
    };
    addEventListener("online", f);
    addEventListener("pageshow", f);
    document.addEventListener("visibilitychange", seen);
    return () => {
      removeEventListener("online", f);
      removeEventListener("pageshow", f);
      document.removeEventListener("visibilitychange", seen);
    };
  },
};

/**
 * Asks why a connection was refused: a page sees only that it was. The same request without the upgrade has the
 * gateway's answer; 400 and 426 without a reason of their own mean that only the upgrade was missing. A signature is
 * good for one connection, so a paired device does not ask: its request for a nonce would have been refused, too.
 */
async function whyNot(address: Address, url: URL, auth: Auth): Promise<FarhandError> {
  if (auth.signature) return unopened();
  const same = new URL(address.base + "/ws/chat" + url.search);
  try {
    const error = await refusal(await ask(same.href, { headers: bearer(auth.token) }));
    if (error.status !== 426 && !(error.status === 400 && /upgrade|websocket/i.test(error.message))) return error;
    return unopened();
  } catch (error) {
    return error instanceof FarhandError ? error : new FarhandError("unreachable", messageOf(error));
  }
}

const unopened = (): FarhandError => new FarhandError("unreachable", "the gateway's socket cannot be opened");
