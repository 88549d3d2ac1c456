import { Answers, resendFor } from "./answers.js";
import type { Call } from "./call.js";
import { FarhandError, messageOf } from "./errors.js";
import { bytes, cut, text, wait, type Limits, type Received } from "./frames.js";
import { ask, refusal, type Address } from "./http.js";
import { Pace } from "./pace.js";
import { answerOf, Part } from "./parts.js";
import type { Offer } from "./tools.js";

const mostPending = 1024; // that run or wait for their turn; a gateway has far fewer in flight
const idLength = 256; // of a call, in characters, since ids are kept long after their calls; those of a gateway are shorter
const acceptAfter = 200; // ms; a faster answer makes tool_call_accepted unnecessary
const grace = 250; // ms of Call.awaited beyond the deadline, so as not to race the gateway's timer
const messageBytes = 1 << 10; // that the gateway keeps
const chunkBytes = 64 << 10; // that the gateway takes

/** What Calls needs of its device. */
export interface Host {
  readonly address: Address;
  limits(): Limits;
  /** Number of the open connection; 0: none. */
  link(): number;
  send(frame: object | string): void;
  offer(tool: string): Offer | undefined;
  began(id: string, tool: string, args: Record<string, unknown>, deadline: Date): void;
  reported(id: string, tool: string, progress: number, total?: number, message?: string): void;
  ended(id: string, tool: string, error?: string): void;
}

interface Running {
  readonly id: string;
  readonly tool: string;
  readonly traceparent: string;
  readonly controller: AbortController;
  /** Both are kept while the call runs: Node.js 20 may free a timeout that only AbortSignal.any refers to. */
  awaited?: { late: AbortSignal; either: AbortSignal };
  answered: boolean;
}

/** Calls runs each call once, and keeps the answers. */
export class Calls {
  readonly pace: Pace;
  readonly #running = new Map<string, Running>();
  readonly #slots = new Map<string, (frame: Received) => void>(); // of uploads, by call
  readonly #turns = new Set<() => void>(); // of calls that wait for one, oldest first
  #free: number;
  #idle: (() => void)[] = [];

  constructor(
    private readonly host: Host,
    readonly answers: Answers,
    parallelism: number,
  ) {
    this.#free = parallelism;
    this.pace = new Pace(() => host.limits());
  }

  /** Takes a tool_call_request. A call that runs goes on, one that ran gets the same answer again. */
  start(frame: Received): void {
    const id = text(frame["id"]);
    if (!id || id.length > idLength || this.#running.has(id)) return;
    if (this.answers.has(id)) {
      const again = failure(id, "This call was answered before. It is not run again.");
      return this.host.send(this.answers.frame(id) || again);
    }
    if (this.#running.size >= mostPending) {
      return this.host.send(failure(id, "the device has too many calls waiting"));
    }
    const running = {
      id,
      tool: text(frame["name"]),
      traceparent: text(frame["traceparent"]),
      controller: new AbortController(),
      answered: false,
    };
    this.#running.set(id, running);
    void this.#run(running, frame["args"], new Date(Date.now() + wait(frame["deadline_ms"], 30_000)));
  }

  cancel(id: string, reason: string): void {
    this.#running.get(id)?.controller.abort(new FarhandError("cancelled", `cancelled by the gateway: ${reason}`));
  }

  /** Takes an upload_slot. */
  slot(frame: Received): void {
    this.#slots.get(text(frame["id"]))?.(frame);
  }

  /** Ends what runs. After some ms, what still runs is answered for. */
  async stop(ms: number): Promise<void> {
    const stopped = new FarhandError("stopped", "the device stopped");
    for (const { controller } of this.#running.values()) controller.abort(stopped);
    if (this.#running.size > 0) {
      let timer: ReturnType<typeof setTimeout> | undefined;
      await Promise.race([
        new Promise<void>((resolve) => this.#idle.push(resolve)),
        new Promise<void>((resolve) => (timer = setTimeout(resolve, ms))),
      ]);
      clearTimeout(timer);
    }
    for (const running of [...this.#running.values()]) {
      this.#answer(running, failure(running.id, stopped.message), stopped.message);
    }
  }

  async #run(running: Running, given: unknown, deadline: Date): Promise<void> {
    const { id, tool, controller } = running;
    const late = setTimeout(
      () => controller.abort(new FarhandError("late", "the call's record is no longer kept")),
      deadline.getTime() - Date.now() + resendFor,
    );
    let accept: ReturnType<typeof setTimeout> | undefined;
    let begun = false;
    try {
      const call = this.#call(running, deadline);
      await this.#turn(call.awaited());
      begun = true;
      const args = given ?? {};
      if (typeof args !== "object" || Array.isArray(args)) throw new TypeError("the arguments are not an object");
      const offered = this.host.offer(tool);
      if (!offered) throw new Error(`Unknown tool ${JSON.stringify(tool)}`);
      accept = setTimeout(() => this.#notify(running, { type: "tool_call_accepted", id }), acceptAfter);
      const returned = await offered.run(args as Record<string, unknown>, call, async () => {
        if (!(await this.answers.begin(id))) throw new Error("Another page of this device has run this call.");
        controller.signal.throwIfAborted();
        this.host.began(id, tool, args as Record<string, unknown>, deadline);
      });
      this.#answer(running, await this.#success(id, returned, (part) => call.upload(part)));
    } catch (error) {
      const message = (begun ? "" : "not started: ") + messageOf(error);
      this.#answer(running, failure(id, cut(message, this.host.limits().frame_bytes / 8)), message);
    } finally {
      clearTimeout(late);
      clearTimeout(accept);
      if (begun) this.#free++;
      for (const next of [...this.#turns].slice(0, this.#free)) next();
    }
  }

  /** Waits until the handler may run. */
  async #turn(signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      if (this.#free > 0) return void this.#free--;
      await new Promise<void>((resolve) => {
        const next = (): void => {
          this.#turns.delete(next);
          signal.removeEventListener("abort", next);
          resolve();
        };
        this.#turns.add(next);
        signal.addEventListener("abort", next);
      });
    }
  }

  #answer(running: Running, frame: string, error?: string): void {
    if (running.answered) return;
    running.answered = true;
    this.#running.delete(running.id);
    this.answers.put(running.id, frame);
    const link = this.host.link();
    if (link && this.answers.claim(running.id, link)) this.host.send(frame);
    this.host.ended(running.id, running.tool, error);
    if (this.#running.size === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }

  async #success(id: string, returned: unknown, upload: (part: Part) => Promise<Part>): Promise<string> {
    const limits = this.host.limits();
    const answer = await answerOf(returned, limits, upload);
    const frame = JSON.stringify({ type: "tool_result", id, ...answer, success: true });
    const most = Math.max(limits.frame_bytes, limits.output_bytes);
    const size = bytes(frame);
    if (size > most) throw new RangeError(`the output is too large: ${size} bytes, at most ${most} can be sent`);
    return frame;
  }

  #call(running: Running, deadline: Date): Call {
    const { id, tool, traceparent, controller } = running;
    const { signal } = controller;
    return {
      callId: id,
      tool,
      signal,
      deadline,
      traceparent,
      awaited: () => {
        if (!running.awaited) {
          const late = AbortSignal.timeout(Math.max(0, deadline.getTime() + grace - Date.now()));
          running.awaited = { late, either: AbortSignal.any([signal, late]) };
        }
        return running.awaited.either;
      },
      progress: (progress, total, message) => {
        if (running.answered || !Number.isFinite(progress)) return;
        const of = total !== undefined && total > 0 && Number.isFinite(total) ? { total } : {};
        const words = message ? { message: cut(message, messageBytes) } : {};
        this.host.reported(id, tool, progress, of.total, words.message);
        if (this.pace.try()) this.#notify(running, { type: "tool_progress", id, progress, ...of, ...words });
      },
      chunk: async (output) => {
        for (let rest = output; rest; ) {
          const chunk = cut(rest, Math.min(chunkBytes, this.host.limits().frame_bytes / 8));
          if (!chunk) return;
          rest = rest.slice(chunk.length);
          await this.pace.wait(signal);
          this.#notify(running, { type: "tool_progress", id, chunk });
        }
      },
      upload: (part) => this.#upload(running, part),
    };
  }

  #notify(running: Running, frame: object): void {
    if (!running.answered) this.host.send(frame);
  }

  async #upload(running: Running, part: Part): Promise<Part> {
    const { id, controller } = running;
    const { signal } = controller;
    if (part.url) return part;
    if (this.#slots.has(id)) throw new Error("one file of a call is uploaded at a time");
    const size = part.data.size;
    try {
      const slot = await new Promise<Received>((resolve, reject) => {
        this.#slots.set(id, resolve);
        signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
        signal.throwIfAborted();
        this.host.send({ type: "upload_request", id, mime_type: part.mimeType, size, name: part.name });
      });
      const url = text(slot["url"]);
      if (!url) throw new Error(`the gateway takes no file: ${text(slot["error"])}`);
      // Without the slash it could go on with the host's name or port, and so lead to another server.
      if (!url.startsWith("/")) throw new Error("the gateway names no path of its own for the file");
      const response = await ask(
        this.host.address.base + url,
        { method: "PUT", headers: { "Content-Type": part.mimeType }, body: part.data, signal },
        0,
      );
      if (response.status !== 204) throw await refusal(response);
      return new Part(part.type, part.mimeType, part.data, part.name, url);
    } finally {
      this.#slots.delete(id);
    }
  }
}

/** Returns a tool_error. */
export function failure(id: string, error: string): string {
  return JSON.stringify({ type: "tool_error", id, error, success: false });
}
