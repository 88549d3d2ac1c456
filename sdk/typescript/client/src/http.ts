import { errorOf, errorOfResponse, FarhandError, unreachable } from "./errors.js";
import { before, now, passing, persist } from "./wait.js";

/** Settings of a client. */
export interface FarhandOptions {
  /** The bearer token: the gateway's, an API key or a JSON Web Token. A function is asked for each request. */
  token?: string | (() => string | Promise<string>) | undefined;
  /**
   * How long the client retries while the gateway cannot be reached or asks to come back, in milliseconds. Default:
   * 30,000. A call's `timeout` replaces it.
   */
  retryFor?: number;
  /** Replaces the platform's fetch. */
  fetch?: typeof fetch;
}

export type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

/** A request beside its method and path. */
export interface Asking {
  query?: Query | undefined;
  /** Sent as JSON. */
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  /** How long the response may take, in milliseconds; of a stream, until it begins. Default: 30,000. */
  within?: number;
}

/** The longest time of a request, unless it waits for something, in milliseconds. */
const usual = 30_000;
/** The longest time that a file may take, in milliseconds. */
const loading = 300_000;

/** pathOf joins parts to a path, each percent-encoded. */
export function pathOf(...parts: string[]): string {
  return "/" + parts.map(encodeURIComponent).join("/");
}

/** TokenFailure carries an error of the program's token function, which is thrown as it is. */
class TokenFailure {
  constructor(readonly error: unknown) {}
}

/** Http makes requests to one gateway. */
export class Http {
  readonly retryFor: number;
  readonly #base: URL;
  readonly #token: FarhandOptions["token"];
  readonly #fetch: typeof fetch;

  constructor(url: string | URL, options: FarhandOptions) {
    this.#base = new URL(url);
    if (!/^https?:$/.test(this.#base.protocol)) throw new TypeError(`${url} is no http or https URL`);
    if (!this.#base.pathname.endsWith("/")) this.#base.pathname += "/";
    this.#token = options.token;
    this.retryFor = options.retryFor ?? 30_000;
    this.#fetch = options.fetch ?? ((...args) => fetch(...args));
  }

  /** resolve returns the URL of a path of the gateway, or of an absolute URL. */
  resolve(path: string, query: Query = {}): URL {
    const url = new URL(path.startsWith("/") ? path.slice(1) : path, this.#base);
    for (const [name, value] of Object.entries(query)) {
      if (value === undefined || value === "") continue;
      for (const one of Array.isArray(value) ? value : [String(value)]) url.searchParams.append(name, one);
    }
    return url;
  }

  /**
   * ask makes one request, and returns the JSON of its response. It throws the gateway's error, `unreachable` without a
   * complete response within the time, or the reason of an aborted signal.
   */
  ask<T>(method: string, path: string, asking: Asking = {}): Promise<T> {
    return this.#request(method, path, asking, async (response) =>
      response.status === 204 ? (undefined as T) : ((await response.json()) as T),
    );
  }

  /** stream is ask for a response that is read as it comes. */
  stream(method: string, path: string, asking: Asking = {}): Promise<Response> {
    const headers = { ...asking.headers, Accept: "text/event-stream" };
    return this.#request(method, path, { ...asking, headers }, (response) => Promise.resolve(response));
  }

  /**
   * load fetches a link of the gateway without the token, since the link is the permission. It fetches nothing from
   * elsewhere: a gateway must not cause requests in the program's network.
   */
  async load(url: URL, signal?: AbortSignal): Promise<ArrayBuffer> {
    if (url.origin !== this.#base.origin) throw errorOf(`${url.origin} is not the gateway`, { code: "not_found" });
    return this.#within({ signal, within: loading }, async (signal) => {
      const response = await this.#fetch(url, { signal, credentials: "omit", redirect: "error" });
      if (!response.ok) throw await errorOfResponse(response);
      return response.arrayBuffer();
    });
  }

  /** read asks for what a GET returns, and retries. */
  read<T>(path: string, asking: Asking = {}): Promise<T> {
    return persist(() => this.ask<T>("GET", path, asking), passing, now() + this.retryFor, asking.signal);
  }

  /** pages reads the rows of a list, page after page. `key` names them in the responses. */
  async *pages<T>(path: string, key: string, asking: Asking = {}): AsyncGenerator<T, void, undefined> {
    let cursor: string | undefined;
    do {
      const page = await this.read<Record<string, unknown>>(path, { ...asking, query: { ...asking.query, cursor } });
      yield* (page[key] ?? []) as T[];
      cursor = page.next_cursor as string | undefined;
    } while (cursor);
  }

  async #request<T>(
    method: string,
    path: string,
    asking: Asking,
    take: (response: Response) => Promise<T>,
  ): Promise<T> {
    const url = this.resolve(path, asking.query);
    if (url.origin !== this.#base.origin) throw new TypeError(`${url.origin} is not the gateway: it gets no token`);
    const headers = new Headers(asking.headers);
    const init: RequestInit = { method, headers, cache: "no-store", credentials: "omit", redirect: "error" };
    if (asking.body !== undefined) {
      headers.set("Content-Type", "application/json");
      init.body = JSON.stringify(asking.body);
    }
    return this.#within(asking, async (signal) => {
      const token = await this.#bearer(signal);
      if (token) headers.set("Authorization", "Bearer " + token);
      const response = await this.#fetch(url, { ...init, signal });
      if (!response.ok) throw await errorOfResponse(response);
      return take(response);
    });
  }

  /** bearer returns the token. It does not wait for the program's function beyond the signal. */
  async #bearer(signal: AbortSignal): Promise<string | undefined> {
    const token = this.#token;
    if (typeof token !== "function") return token;
    const asked = Promise.resolve()
      .then(token)
      .catch((error: unknown) => {
        throw new TokenFailure(error);
      });
    return before(asked, signal);
  }

  /** within runs a request that must end in time. Its signal also ends a stream that it returns. */
  async #within<T>(asking: Pick<Asking, "signal" | "within">, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
    asking.signal?.throwIfAborted();
    const late = new AbortController();
    const within = asking.within ?? usual;
    const timer = setTimeout(() => late.abort(new Error(`no response within ${within} ms`)), within);
    try {
      return await run(asking.signal ? AbortSignal.any([asking.signal, late.signal]) : late.signal);
    } catch (error) {
      asking.signal?.throwIfAborted();
      if (error instanceof TokenFailure) throw error.error;
      if (error instanceof FarhandError) throw error;
      throw unreachable(late.signal.aborted ? late.signal.reason : error, this.#base.origin);
    } finally {
      clearTimeout(timer);
    }
  }
}
