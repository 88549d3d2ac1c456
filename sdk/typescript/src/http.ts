import { FarhandError, messageOf } from "./errors.js";
import { number, text } from "./frames.js";

/** How long an HTTP request and the handshake of a socket may take, in ms. */
export const dialTimeout = 10_000;

/** Addresses of a gateway, made of a ws, wss, http or https URL. The default path is /ws/chat. */
export class Address {
  readonly socket: URL;
  readonly base: string;

  constructor(address: string | URL) {
    this.socket = new URL(address, globalThis.location?.href);
    this.socket.protocol = this.socket.protocol.replace(/^http/, "ws");
    if (!/^wss?:$/.test(this.socket.protocol)) {
      throw new TypeError(`the scheme of ${address} is not ws, wss, http or https`);
    }
    if (this.socket.pathname === "/") this.socket.pathname = "/ws/chat";
    const base = new URL(this.socket);
    base.protocol = base.protocol.replace(/^ws/, "http");
    this.base = base.origin + base.pathname.replace(/\/ws\/chat\/?$/, "").replace(/\/$/, "");
  }

  /** Posts a body and returns the answer's. The error is a FarhandError. */
  async post(path: string, body: unknown, token = "", signal?: AbortSignal): Promise<Record<string, unknown>> {
    const response = await ask(this.base + path, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...bearer(token) },
      body: JSON.stringify(body),
      ...(signal && { signal }),
    });
    if (!response.ok) throw await refusal(response);
    return (await response.json()) as Record<string, unknown>;
  }
}

export const bearer = (token: string): Record<string, string> => (token ? { Authorization: `Bearer ${token}` } : {});

/** Sends a request without cookies, and without following redirects: tokens are for the given address only. */
export async function ask(url: string, init: RequestInit, timeout = dialTimeout): Promise<Response> {
  const over = timeout > 0 ? [AbortSignal.timeout(timeout)] : [];
  try {
    return await fetch(url, {
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      referrerPolicy: "no-referrer",
      ...init,
      signal: AbortSignal.any(init.signal ? [init.signal, ...over] : over),
    });
  } catch (error) {
    init.signal?.throwIfAborted();
    throw new FarhandError("unreachable", `no gateway answers, or not to this page's origin: ${messageOf(error)}`);
  } finally {
    over.length = 0; // kept until now: Node.js 20 may free a timeout that only AbortSignal.any refers to
  }
}

/** Returns the error of an answer that is a problem document. */
export async function refusal(response: Response): Promise<FarhandError> {
  return refused(response.status, await response.text().catch(() => ""), response.headers.get("Retry-After"));
}

/** Returns the error of an answer with a status and a body. */
export function refused(status: number, body: string, retryAfter: string | null | undefined): FarhandError {
  let problem: Record<string, unknown> = {};
  try {
    problem = Object(JSON.parse(body)) as Record<string, unknown>;
  } catch {
    // not from a gateway
  }
  const seconds = Math.min(Math.max(number(Number(retryAfter)), 0), 24 * 60 * 60);
  const detail = text(problem["detail"]) || "the gateway refused the request";
  return new FarhandError(text(problem["code"]) || `http_${status}`, `${detail} (HTTP status ${status})`, status,
    seconds * 1000);
}
