import { Approvals } from "./approvals.js";
import { PendingCall } from "./call.js";
import { begin, type CallOptions, callOnce, run, type StartOptions, type TargetOptions } from "./calling.js";
import { Conversation } from "./conversation.js";
import { type FarhandOptions, Http, pathOf, type Query } from "./http.js";
import type { CallResult } from "./result.js";
import { GroupCall, type GroupOptions } from "./group.js";
import { follow } from "./sse.js";
import type {
  Activity,
  ActivityType,
  CallRecord,
  Limits,
  Me,
  OpenAIToolList,
  Session,
  SessionRow,
  ToolRow,
} from "./types.js";

/** Which devices are listed. If it is asked for, rows say whether theirs is connected, and when it was last seen. */
export type Presence = "connected" | "sleeping" | "any";

/** Which tools are listed. */
export interface ToolFilter extends TargetOptions {
  /** The name of the tool. */
  name?: string;
  /** A text in name or description. */
  q?: string;
  sourceType?: "builtin" | "mcp" | "remote";
  /** `sleeping`: tools of devices that are known and not connected. Default: `connected`. */
  presence?: Presence;
  /** A tag of the tool. */
  tag?: string;
  signal?: AbortSignal | undefined;
}

/** Which sessions are listed. */
export interface SessionFilter extends Omit<TargetOptions, "session"> {
  /** The name of a tool that they offer. */
  tool?: string;
  connected?: boolean;
  /** `sleeping`: devices that are known and not connected. `any`: these, too. */
  presence?: Presence;
  signal?: AbortSignal | undefined;
}

/** A feed entry, with its id to continue after. */
export type FeedEvent = Activity & { id: string };

/** A client of a gateway, for programs that call the tools of devices. It holds no connection and needs no end. */
export class Farhand {
  /** The approvals of calls that need one. */
  readonly approvals: Approvals;
  readonly #http: Http;

  /** @param url The gateway: any pod, or the load balancer before them. */
  constructor(url: string | URL, options: FarhandOptions = {}) {
    this.#http = new Http(url, options);
    this.approvals = new Approvals(this.#http);
  }

  /**
   * call calls a tool and returns its result. It throws a FarhandError, whose `dispatched` says whether the call
   * reached the device; `tool_failed` if the tool ran and failed. The call runs once, however often the client must
   * ask. While the gateway says that nothing ran, the client asks again, until the timeout or its `retryFor` is over.
   */
  call<T = unknown>(tool: string, args: object = {}, options: CallOptions = {}): Promise<CallResult<T>> {
    const { idempotencyKey, ...rest } = options;
    if (idempotencyKey === false) return callOnce<T>(this.#http, tool, args, rest);
    return run<T>(this.#http, tool, args, { ...rest, idempotencyKey });
  }

  /** start begins a call and returns when the gateway has it. Iterate over the call for its progress and output. */
  start<T = unknown>(tool: string, args: object = {}, options: StartOptions = {}): Promise<PendingCall<T>> {
    return begin<T>(this.#http, tool, args, options);
  }

  /**
   * callDevices calls one tool of many devices. Iterate over what it returns for the result of each device, as they
   * come; then it has the counts. A device that fails is a result, and no error.
   */
  callDevices<T = unknown>(tool: string, args: object = {}, options: GroupOptions = {}): GroupCall<T> {
    return new GroupCall<T>(this.#http, tool, args, options);
  }

  /** pending returns a call that this or another program has started, by its id. */
  pending<T = unknown>(callId: string, options: { signal?: AbortSignal } = {}): PendingCall<T> {
    return new PendingCall<T>(this.#http, { call_id: callId }, options.signal);
  }

  /**
   * calls lists the finished calls, the newest first, without their outputs. `query` has the filters of docs/http.md.
   */
  calls(query: Query = {}, options: { signal?: AbortSignal } = {}): AsyncGenerator<CallRecord, void, undefined> {
    return this.#http.pages<CallRecord>("/api/calls", "calls", { query, ...options });
  }

  /** tools lists the tools of each session. Built-in tools come first, unless the filter selects sessions. */
  tools(filter: ToolFilter = {}): AsyncGenerator<ToolRow, void, undefined> {
    return this.#http.pages<ToolRow>("/api/tools", "tools", { query: queryOf(filter), signal: filter.signal });
  }

  /** toolsForModel returns one tool per name, with names that models accept; `names` has the original ones. */
  async toolsForModel(
    filter: ToolFilter = {},
  ): Promise<{ tools: OpenAIToolList["tools"]; names: Record<string, string> }> {
    const list: { tools: OpenAIToolList["tools"]; names: Record<string, string> } = { tools: [], names: {} };
    let cursor: string | undefined;
    do {
      const query = { ...queryOf(filter), cursor };
      const page = await this.#http.read<OpenAIToolList>("/api/tools/openai", { query, signal: filter.signal });
      list.tools.push(...page.tools);
      Object.assign(list.names, page.names);
      cursor = page.next_cursor;
    } while (cursor);
    return list;
  }

  /** sessions lists the connected sessions, then the stored conversations. */
  sessions(filter: SessionFilter = {}): AsyncGenerator<SessionRow, void, undefined> {
    return this.#http.pages<SessionRow>("/api/sessions", "sessions", { query: queryOf(filter), signal: filter.signal });
  }

  /** session returns a session with the definitions of its tools. */
  session(id: string): Promise<Session> {
    return this.#http.read<Session>(pathOf("api", "sessions", id));
  }

  /** conversation returns the conversation of a session with the gateway's model. It makes no request. */
  conversation(sessionId: string): Conversation {
    return new Conversation(this.#http, sessionId);
  }

  /**
   * events yields what happens in the whole fleet, from now on or after an event, until the signal is aborted, whose
   * reason it then throws. It reconnects to any pod, and continues where it was. If the gateway is away for longer than
   * the client's `retryFor`, it throws `unreachable`.
   */
  async *events(
    options: { types?: readonly ActivityType[]; after?: string; signal?: AbortSignal } = {},
  ): AsyncGenerator<FeedEvent, void, undefined> {
    const { types, after, signal } = options;
    for await (const event of follow(this.#http, "/api/events", { query: { type: types }, after, signal })) {
      yield { ...(event.data as Activity), id: event.id ?? "" };
    }
  }

  /** me returns the identity of the token, and what the gateway is set up for. */
  me(): Promise<Me> {
    return this.#http.read<Me>("/api/me");
  }

  /** limits returns the limits of the caller. */
  limits(): Promise<Limits> {
    return this.#http.read<Limits>("/api/limits");
  }

  /**
   * request makes one request to any route of docs/http.md, without retries, and returns the JSON of its response. The
   * types of this package have the bodies.
   */
  request<T>(
    method: string,
    path: string,
    options: { query?: Query; body?: unknown; signal?: AbortSignal } = {},
  ): Promise<T> {
    return this.#http.ask<T>(method, path, options);
  }
}

function queryOf(filter: ToolFilter & SessionFilter): Query {
  const { session, device, user, labels, sourceType, name, q, tool, connected, presence, tag } = filter;
  return {
    session_id: session,
    device_id: device,
    user_id: user,
    label: labels && Object.entries(labels).map(([key, value]) => `${key}=${value}`),
    source_type: sourceType,
    name,
    q,
    tool,
    connected,
    presence,
    tag,
  };
}
