import type { Store } from "./store.js";

/** Bounds of the kept answers. */
const most = 1024;
const mostCharacters = 16 << 20;

/** How long an answer is sent again, in ms. Gateways keep the records of calls about as long. */
export const resendFor = 15 * 60 * 1000;

const prefix = "call/";

interface Answer {
  readonly id: string;
  readonly at: number;
  /** As it was sent; empty: acknowledged before a reload. */
  frame: string;
  acknowledged: boolean;
  /** Number of the last connection it was sent on. */
  link: number;
}

interface Kept {
  at: number;
  frame?: string;
  acknowledged?: boolean;
}

/**
 * Answers remembers which calls ran, and their answers until they are acknowledged. Every change goes to the store too,
 * so a reload forgets nothing.
 */
export class Answers {
  readonly #byId = new Map<string, Answer>(); // oldest first
  #size = 0;
  #writes: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly store: Store,
    private readonly trouble: (error: unknown) => void,
  ) {}

  /** Reads what the store has. A call that had begun and has no answer gets one that says so. */
  async load(lost: (id: string) => string): Promise<void> {
    const entries = (await this.store.entries(prefix)) as [string, Kept][];
    entries.sort((a, b) => a[1].at - b[1].at);
    for (const [key, { at, frame, acknowledged = false }] of entries) {
      const id = key.slice(prefix.length);
      if (this.#byId.has(id)) continue;
      this.#keep({ id, at, frame: acknowledged ? "" : (frame ?? lost(id)), acknowledged, link: 0 });
    }
  }

  has(id: string): boolean {
    return this.#byId.has(id);
  }

  /** Returns the frame of a call that was answered; empty: it was acknowledged before a reload. */
  frame(id: string): string | undefined {
    return this.#byId.get(id)?.frame;
  }

  /** Writes down that a call begins. It returns false if the call has begun before, on another page of the device. */
  begin(id: string): Promise<boolean> {
    return this.store.add(prefix + id, { at: Date.now() } satisfies Kept);
  }

  /** Keeps the first answer of a call. */
  put(id: string, frame: string): void {
    if (this.#byId.has(id)) return;
    const at = Date.now();
    this.#keep({ id, at, frame, acknowledged: false, link: 0 });
    this.#write(() => this.store.set(prefix + id, { at, frame } satisfies Kept));
  }

  acknowledge(id: string): void {
    const answer = this.#byId.get(id);
    if (!answer || answer.acknowledged) return;
    answer.acknowledged = true;
    this.#write(() => this.store.set(prefix + id, { at: answer.at, acknowledged: true } satisfies Kept));
  }

  /** Returns the answers to send on a connection: those without an acknowledgement that were not sent there. */
  *toSend(link: number): Generator<string> {
    for (const { id, at } of [...this.#byId.values()]) {
      if (Date.now() - at > resendFor) continue;
      const frame = this.claim(id, link);
      if (frame) yield frame;
    }
  }

  /** Returns the answer to send on a connection, undefined if it was sent there or is acknowledged. */
  claim(id: string, link: number): string | undefined {
    const answer = this.#byId.get(id);
    if (!answer || answer.acknowledged || answer.link === link) return undefined;
    answer.link = link;
    return answer.frame;
  }

  /** Whether answers that were sent on a connection wait for their acknowledgement. */
  waiting(link: number): boolean {
    return [...this.#byId.values()].some((answer) => !answer.acknowledged && answer.link === link);
  }

  /** Resolves when everything is written. */
  written(): Promise<unknown> {
    return this.#writes;
  }

  #keep(answer: Answer): void {
    this.#byId.set(answer.id, answer);
    this.#size += answer.frame.length;
    for (const oldest of this.#byId.values()) {
      if (this.#byId.size <= most && (this.#size <= mostCharacters || this.#byId.size === 1)) return;
      this.#byId.delete(oldest.id);
      this.#size -= oldest.frame.length;
      this.#write(() => this.store.delete(prefix + oldest.id));
    }
  }

  // In order: the acknowledgement of an answer must not be overtaken by the answer.
  #write(change: () => Promise<void>): void {
    this.#writes = this.#writes.then(change).catch(this.trouble);
  }
}
