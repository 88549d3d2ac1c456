// The gateway's HTTP API. Every request of the pages goes through Client.

/** A problem that the gateway answered with (RFC 9457), or that kept the request from it. */
export class Problem extends Error {
  /** HTTP status; 0: the gateway was not reached. */
  readonly status: number;
  /** Code of docs/http.md, for example `busy`; `unreachable` if the gateway was not reached. */
  readonly code: string;
  /** Time to wait before a retry, in ms, if the gateway named one. */
  readonly retryAfter: number | undefined;
  readonly body: Record<string, unknown>;

  constructor(status: number, code: string, detail: string, retryAfter?: number, body: Record<string, unknown> = {}) {
    super(detail);
    this.name = "Problem";
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
    this.body = body;
  }

  static async of(response: Response): Promise<Problem> {
    const body = (await response.json().catch(() => ({}))) as Record<string, unknown>;
    const seconds = Number(response.headers.get("Retry-After"));
    return new Problem(
      response.status,
      typeof body.code === "string" ? body.code : "http_" + response.status,
      typeof body.detail === "string" ? body.detail : response.statusText,
      seconds > 0 ? seconds * 1000 : undefined,
      body,
    );
  }

  static unreachable(): Problem {
    return new Problem(0, "unreachable", "The gateway cannot be reached. Check the network; the page retries.");
  }
}

export type Query = Record<string, string | number | boolean | string[] | undefined>;

export interface Asking {
  query?: Query;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** The credential of the page. It stays in this tab's session storage, and never stands in a URL. */
export interface Credential {
  token(): string | Promise<string>;
  /** Called when the gateway rejects a credential, which may not be the present one any more. */
  rejected(token: string): void;
}

/** path joins parts to a path, each percent-encoded. */
export function path(...parts: string[]): string {
  return "/" + parts.map(encodeURIComponent).join("/");
}

// A page that is left, and kept for the way back, must not keep its streams: browsers open few connections to a host.
const left = new AbortController();
addEventListener("pagehide", () => left.abort());
addEventListener("pageshow", (event) => event.persisted && location.reload());

export class Client {
  constructor(private readonly credential: Credential) {}

  /** request returns the response, or throws a Problem. */
  async request(method: string, to: string, asking: Asking = {}): Promise<Response> {
    const headers = new Headers(asking.headers);
    const token = await this.credential.token();
    if (token) headers.set("Authorization", "Bearer " + token);
    let body: BodyInit | undefined;
    if (asking.body !== undefined) {
      headers.set("Content-Type", "application/json");
      body = JSON.stringify(asking.body);
    }
    let response: Response;
    try {
      response = await fetch(to + queryString(asking.query), {
        method,
        headers,
        ...(body === undefined ? {} : { body }),
        signal: asking.signal ? AbortSignal.any([asking.signal, left.signal]) : left.signal,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        referrerPolicy: "no-referrer",
      });
    } catch (error) {
      if (asking.signal?.aborted) throw error;
      throw Problem.unreachable();
    }
    if (response.ok || response.status === 304) return response;
    if (response.status === 401) this.credential.rejected(token);
    throw await Problem.of(response);
  }

  async get<T>(to: string, asking: Asking = {}): Promise<T> {
    return this.#json(await this.request("GET", to, asking));
  }

  async post<T>(to: string, body: unknown, asking: Asking = {}): Promise<T> {
    return this.#json(await this.request("POST", to, { ...asking, body }));
  }

  async put<T>(to: string, body: unknown): Promise<T> {
    return this.#json(await this.request("PUT", to, { body }));
  }

  async delete<T>(to: string, asking: Asking = {}): Promise<T> {
    return this.#json(await this.request("DELETE", to, asking));
  }

  /** pages reads a list page by page: key names the list in the answers. */
  async *pages<T>(to: string, key: string, asking: Asking = {}): AsyncGenerator<T[]> {
    let cursor: string | undefined;
    do {
      const page = await this.get<Record<string, unknown>>(to, {
        ...asking,
        query: { limit: 1000, ...asking.query, cursor },
      });
      yield (page[key] ?? []) as T[];
      cursor = page.next_cursor as string | undefined;
    } while (cursor);
  }

  async #json<T>(response: Response): Promise<T> {
    return (response.status === 204 ? undefined : await response.json()) as T;
  }
}

function queryString(query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [String(value)]) params.append(name, one);
  }
  const text = params.toString();
  return text ? "?" + text : "";
}
