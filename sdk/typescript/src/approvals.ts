import { list, text, wait, type Received } from "./frames.js";

/** Question asks the person at the device whether a call may run. */
export interface Question {
  /** Of the approval, as `farhand approve` takes it. */
  readonly id: string;
  readonly callId: string;
  readonly tool: string;
  /** As the tool receives them. Show `text`, not these. */
  readonly args: unknown;
  /** The arguments for people, with nothing hidden. Show all of it, as plain text. */
  readonly text: string;
  /** Why the call needs approval. */
  readonly reason: string;
  /** What needs attention: `long`, `multiline`, `hidden` (invisible characters), `foreign` (look-alike letters). */
  readonly remarks: readonly string[];
  readonly expires: Date;
}

/** The person's answer. `allow-always`: this tool with these arguments, until the gateway forgets it. */
export type Decision = "allow-once" | "allow-always" | "deny";

/**
 * Approver asks the person. The signal ends when the answer is no longer needed: another approver has decided, the
 * question has expired, or the device stops. Undefined decides nothing; other approvers still can. A question whose
 * answer may have been lost with the connection is asked again.
 */
export type Approver = (question: Question, options: { signal: AbortSignal }) =>
  Promise<Decision | undefined> | Decision | undefined;

const most = 64; // questions that wait; other approvers can answer the rest

/** Questions asks an approver, each question once at a time. */
export class Questions {
  readonly #asked = new Map<string, AbortController>();

  constructor(
    private readonly approver: Approver | undefined,
    private readonly send: (frame: object) => void,
  ) {}

  /** Takes an approval_request. */
  async ask(frame: Received): Promise<void> {
    const id = text(frame["id"]);
    if (!this.approver || !id || this.#asked.has(id) || this.#asked.size >= most) return;
    const controller = new AbortController();
    this.#asked.set(id, controller);
    const left = wait(frame["expires_ms"]);
    const timer = setTimeout(() => this.end(id, "expired"), left);
    try {
      const decision = await this.approver(
        {
          id,
          callId: text(frame["call_id"]),
          tool: text(frame["tool"]),
          args: frame["args"],
          text: text(frame["args_text"]),
          reason: text(frame["reason"]),
          remarks: list<unknown>(frame["remarks"]).map(text),
          expires: new Date(Date.now() + left),
        },
        { signal: controller.signal },
      );
      if (decision && !controller.signal.aborted) this.send({ type: "approval_response", id, decision });
    } catch (error) {
      if (!controller.signal.aborted) console.error(error); // decides nothing
    } finally {
      clearTimeout(timer);
      if (this.#asked.get(id) === controller) this.#asked.delete(id);
    }
  }

  /** Ends a question, since it is decided. */
  end(id: string, state: string): void {
    this.#asked.get(id)?.abort(new Error(`the approval is already ${state}`));
    this.#asked.delete(id);
  }

  stop(): void {
    for (const id of [...this.#asked.keys()]) this.end(id, "withdrawn: the device stopped");
  }
}
