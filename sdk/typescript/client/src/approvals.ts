import { type Http, pathOf } from "./http.js";
import type { Approval, ApprovalList, ApprovalRow, Decision, DecisionRequest, Grant, GrantList } from "./types.js";
import { Retries } from "./wait.js";

/** How long one request waits for a decision, in milliseconds. */
const wait = 30_000;

/** How a decision is given. */
export interface DecideOptions {
  /** One line for the audit log and, with `deny`, for the caller and the model. */
  comment?: string;
  /** What `allow-always` covers: the tool with any arguments, or only with these, the default. */
  scope?: "tool" | "arguments";
  /** How long `allow-always` lasts, in milliseconds. Default: 30 days. */
  expiresIn?: number;
  signal?: AbortSignal;
}

/** The approvals of calls that need one. Reading and deciding needs the role approver. */
export class Approvals {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** list returns the pending approvals, in order of expiry, without the arguments of their calls. */
  async list(options: { signal?: AbortSignal } = {}): Promise<ApprovalRow[]> {
    return (await this.#http.read<ApprovalList>("/api/approvals", options)).approvals;
  }

  /** get returns an approval with its call's arguments; `args_text` hides nothing. */
  get(id: string, options: { signal?: AbortSignal } = {}): Promise<Approval> {
    return this.#http.read<Approval>(this.#path(id), options);
  }

  /** wait returns an approval when it is no longer pending. Each expires at its `expires_at` at the latest. */
  async wait(id: string, options: { signal?: AbortSignal } = {}): Promise<Approval> {
    const retries = new Retries(this.#http.retryFor);
    for (;;) {
      try {
        const asking = { query: { wait_ms: wait }, within: wait + 10_000, ...options };
        const approval = await this.#http.ask<Approval>("GET", this.#path(id), asking);
        if (approval.state !== "pending") return approval;
        retries.succeeded();
      } catch (error) {
        await retries.wait(error, options.signal);
      }
    }
  }

  /**
   * decide decides an approval. The first decision counts: a later one returns that, with `decided` false. A request
   * that broke can be repeated for the same reason.
   */
  decide(id: string, decision: DecisionRequest["decision"], options: DecideOptions = {}): Promise<Decision> {
    const { comment, scope, expiresIn, signal } = options;
    const body: DecisionRequest = {
      decision,
      ...(comment === undefined ? {} : { comment }),
      ...(scope === undefined ? {} : { scope }),
      ...(expiresIn === undefined ? {} : { expires_in_ms: expiresIn }),
    };
    return this.#http.ask<Decision>("POST", this.#path(id), { body, signal });
  }

  /** grants returns what `allow-always` has granted. */
  async grants(options: { signal?: AbortSignal } = {}): Promise<Grant[]> {
    return (await this.#http.read<GrantList>("/api/grants", options)).grants;
  }

  /** revoke ends a grant. */
  revoke(grantId: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    return this.#http.ask<void>("DELETE", pathOf("api", "grants", grantId), options);
  }

  #path(id: string): string {
    return pathOf("api", "approvals", id);
  }
}
