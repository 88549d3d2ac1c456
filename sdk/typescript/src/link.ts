import { asError, FarhandError } from "./errors.js";
import { parse, type Received } from "./frames.js";
import type { Address } from "./http.js";
import type { Auth, Connection, Platform } from "./platform.js";

/** Link is one connection. */
export interface Link {
  readonly number: number;
  readonly connection: Connection;
  resumed: boolean;
  /** Answers to registrations that are due: the device is connected when there are none. -1: before session_start. */
  registering: number;
  /** When a draining gateway wants the device back; 0: it does not drain. */
  backAt: number;
  /** An error frame that is followed by the end of the connection. */
  error?: FarhandError;
  /** Asks for a sign of life. */
  probe(): void;
}

/** Ended says how a connection ended. */
export interface Ended {
  readonly error: FarhandError;
  /** How long it was open, in ms. */
  readonly lasted: number;
  readonly backAt: number;
  /** Code of the close frame; 0: there was none, or no connection. */
  readonly close: number;
}

/** What serve needs. */
export interface Serving {
  readonly platform: Platform;
  readonly address: Address;
  readonly url: URL;
  readonly auth: Auth;
  readonly number: number;
  /** Ends the connection. */
  readonly signal: AbortSignal;
  /** How long the gateway may show no sign of life, in ms. */
  readonly silence: number;
  open(link: Link): void;
  take(link: Link, frame: Received): void;
  /** Sends a frame that the gateway answers. */
  probe(link: Link): void;
  ended(link: Link): void;
}

/** Makes a connection, and resolves when it has ended. */
export function serve(s: Serving): Promise<Ended> {
  return new Promise((resolve) => {
    let opened = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let over = false;
    const after = (ms: number, next: () => void): void => {
      clearTimeout(timer);
      timer = setTimeout(next, ms);
    };
    const end = (error: FarhandError, close: number): void => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      s.signal.removeEventListener("abort", stop);
      s.ended(link);
      link.connection.close();
      resolve({ error: link.error ?? error, lasted: opened && Date.now() - opened, backAt: link.backAt, close });
    };
    const stop = (): void => end(asError(s.signal.reason), 0);
    const dead = (): void => end(new FarhandError("silent", "the gateway shows no sign of life"), 0);
    const alive = (): void => {
      if (over) return;
      if (s.platform.seesPings) after(s.silence, dead);
      else after(s.silence / 2, () => link.probe());
    };
    const link: Link = {
      number: s.number,
      resumed: false,
      registering: -1,
      backAt: 0,
      probe: () => {
        if (over) return;
        after(s.silence / 4, dead);
        if (link.registering >= 0) s.probe(link);
      },
      connection: s.platform.dial(s.address, s.url, s.auth, {
        open: () => {
          opened = Date.now();
          s.open(link);
        },
        message: (message) => {
          if (over) return;
          alive();
          const frame = parse(message);
          if (frame) s.take(link, frame);
        },
        alive,
        closed: (code, reason, error) => end(error ?? ending(code, reason), code),
      }),
    };
    after(Math.min(s.silence, helloWait), dead); // the first frame comes soon, or never
    s.signal.addEventListener("abort", stop);
  });
}

/** How long the handshake and the first frame may take together, in ms. */
const helloWait = 20_000;

const ending = (code: number, reason: string): FarhandError =>
  new FarhandError(reason || "disconnected", `the connection ended: ${code} ${reason}`.trim());
