import { Questions } from "./approvals.js";
import { Answers } from "./answers.js";
import { Calls, failure } from "./calls.js";
import { Chat } from "./chat.js";
import { Emitter } from "./emitter.js";
import { asError, FarhandError, messageOf } from "./errors.js";
import {
  bytes, defaultLimits, limitsOf, number, rejections, text, wait, type Received, type Rejection,
} from "./frames.js";
import { Address } from "./http.js";
import { serve, type Ended, type Link } from "./link.js";
import type { DeviceEvents, DeviceOptions } from "./options.js";
import { sleep } from "./pace.js";
import { sign, storedCredential, type Credential } from "./pair.js";
import type { Platform } from "./platform.js";
import { Backoff, type State } from "./state.js";
import type { Store } from "./store.js";
import { offer, type Handler, type Offer, type Tool } from "./tools.js";
import { wakeOffer, type WakeOffer } from "./wake.js";

const stopWait = 2_000; // ms that stop gives handlers to end, and then the gateway to acknowledge
const framesBytes = 64; // around the definitions in a frame
const definitions = 1024; // in a frame
const capabilities = [
  "ack", "progress", "cancel", "drain", "resume", "resume_token", "call_status", "traceparent", "presence",
];

/** The device for every platform. Use Device of the package. */
export class DeviceCore extends Emitter<DeviceEvents> {
  /** The conversation of the person at the device. */
  readonly chat: Chat;

  readonly #address: Address;
  readonly #store: Store;
  readonly #offers = new Map<string, Offer>();
  readonly #questions: Questions;
  readonly #calls: Calls;
  #state: State = { phase: "closed" };
  #limits = defaultLimits;
  #wakeOffer: WakeOffer | undefined; // of the last connection
  #foreground: boolean | undefined; // as last reported
  #loaded: Promise<void> | undefined;
  #credential: Credential | undefined;
  #session: string;
  #resumeToken = ""; // of the first connection; later ones are ignored
  #link: Link | undefined;
  #links = 0;
  #running: AbortController | undefined;
  #stopping = false;
  #wake = (): void => {};
  #rejected: readonly Rejection[] = [];

  constructor(
    address: string | URL,
    private readonly options: DeviceOptions,
    private readonly system: Platform,
  ) {
    super();
    this.#address = new Address(address);
    this.#session = options.session ?? "";
    this.#credential = options.credential;
    const name = options.session ?? options.deviceId ?? "";
    this.#store = options.store ?? system.store(`farhand ${this.#address.base} ${name}`);
    const send = (frame: object | string): boolean => this.#send(frame);
    this.chat = new Chat((frame) => {
      const whole = JSON.stringify(frame);
      const most = this.#limits.frame_bytes;
      if (bytes(whole) > most) throw new FarhandError("MESSAGE_TOO_BIG", `a message has at most ${most} bytes`);
      return this.#send(whole);
    });
    this.#questions = new Questions(options.approver, send);
    this.#calls = new Calls(
      {
        address: this.#address,
        limits: () => this.#limits,
        link: () => this.#link?.number ?? 0,
        send,
        offer: (tool) => this.#offers.get(tool),
        began: (id, tool, args, deadline) => this.emit("call", { id, tool, args, deadline }),
        reported: (id, tool, progress, total, message) =>
          this.emit("progress", {
            id, tool, progress, ...(total !== undefined && { total }), ...(message !== undefined && { message }),
          }),
        ended: (id, tool, error) => this.emit("answered", { id, tool, ...(error !== undefined && { error }) }),
      },
      new Answers(this.#store, (error) => this.#trouble("store", error)),
      options.parallelism ?? 16,
    );
  }

  get state(): State {
    return this.#state;
  }

  /** Empty until the gateway has chosen one. */
  get sessionId(): string {
    return this.#session;
  }

  /** Names of the offered tools. */
  get tools(): readonly string[] {
    return [...this.#offers.keys()];
  }

  /**
   * Offers a tool from now on, or replaces the tool of that name. The next state shows whether the gateway accepts it.
   * It throws a TypeError if the tool is malformed.
   */
  addTool<Args = Record<string, unknown>>(tool: Tool<Args>, handler: Handler<Args>): void {
    const added = offer(tool, handler);
    this.#offers.set(added.name, added);
    if (this.#link && this.#link.registering >= 0) this.#register(this.#link, [added]);
  }

  /** Stops offering a tool. Running calls of it are still answered. */
  removeTool(name: string): void {
    if (this.#offers.delete(name)) this.#send({ type: "unregister_tools", names: [name] });
  }

  /**
   * Connects, and stays connected until stop, or until the state is `refused`. The promise resolves when the tools can
   * be called for the first time, and is rejected if that cannot be; it need not be awaited.
   */
  start(): Promise<void> {
    const ready = new Promise<void>((resolve, reject) => {
      const end = this.on("state", (state) => {
        if (state.phase === "connected") resolve();
        else if (state.phase === "refused") reject(state.error);
        else if (state.phase === "closed") reject(new FarhandError("stopped", "the device stopped"));
        else return;
        end();
      });
      if (this.#state.phase === "connected") resolve();
    });
    ready.catch(() => {});
    if (!this.#running) {
      const running = (this.#running = new AbortController());
      this.#stopping = false;
      this.#become({ phase: "connecting" });
      void this.#stay(running).catch((error: unknown) => this.#end(running, asError(error)));
    }
    return ready;
  }

  /**
   * Ends the signals of running calls, answers them, and disconnects. It takes a few seconds at most. What the gateway
   * did not acknowledge is sent after the next start.
   */
  async stop(): Promise<void> {
    const running = this.#running;
    if (!running || this.#stopping) return;
    this.#stopping = true;
    this.#questions.stop();
    await this.#calls.stop(stopWait);
    const link = this.#link;
    const over = Date.now() + stopWait;
    const { answers } = this.#calls;
    while (link && this.#link === link && answers.waiting(link.number) && Date.now() < over) await sleep(20);
    await answers.written();
    this.#end(running);
  }

  /** Tries to connect now instead of at the end of the delay, but not before the gateway wants the device back. */
  reconnect(): void {
    this.#wake();
  }

  /**
   * Asks the option wake again how the device is woken, as when the person has just allowed it, and tells the gateway.
   * Each connection begins with it. An error is an event `trouble`.
   */
  async registerWake(): Promise<void> {
    const [link, offer] = [this.#link, this.#wakeOffer];
    if (!link || !offer) return;
    try {
      const wake = await this.options.wake?.(offer);
      if (wake !== undefined && this.#link === link) this.#send({ type: "register_wake", ...(wake && { wake }) });
    } catch (error) {
      this.#trouble("wake", error);
    }
  }

  /**
   * Reports whether the app is in the foreground, now and on each later connection. Without a report the gateway does
   * not know. In the background it refuses calls of tools whose effects need the foreground, and it prefers a user's
   * device in the foreground.
   */
  setForeground(foreground: boolean): void {
    this.#foreground = foreground;
    if (this.#link && this.#link.registering >= 0) this.#send({ type: "presence", foreground });
  }

  /**
   * Asks the gateway to make this device the default of its user: it gets calls for the user that could go to several
   * devices. The device needs a deviceId, and a token that names the user. False: there is no connection. The answer is
   * an event: `default`, or `trouble`.
   */
  setDefault(): boolean {
    return this.#link !== undefined && this.#link.registering >= 0 && this.#send({ type: "set_default" });
  }

  // The connection, from the first to the last.

  async #stay(running: AbortController): Promise<void> {
    const { signal } = running;
    const unlock = await this.#store.lock?.(
      () => this.#trouble("in_use", "another page of this device is open: this one waits until it is closed"), signal);
    signal.addEventListener("abort", () => unlock?.());
    if (signal.aborted) return unlock?.();
    await (this.#loaded ??= this.#load());
    const backoff = new Backoff(this.options.backoff?.min ?? 500, this.options.backoff?.max ?? 30_000);
    const sleepless = this.system.onWake(() => {
      this.#link?.probe();
      if (this.#state.phase === "waiting" && !rival(this.#state.error)) this.#wake();
    });
    signal.addEventListener("abort", sleepless);
    while (!signal.aborted) {
      if (this.#state.phase !== "connecting") this.#become({ phase: "connecting" });
      const { error, lasted, backAt, close } = await this.#connect(signal);
      if (signal.aborted) return;
      backoff.lasted(lasted, close === 1012);
      const taken = rival(error) && this.#resumeToken !== "";
      if (!taken && final(error, close)) return this.#end(running, error);
      const now = Date.now();
      const asked = taken ? 0 : Math.max(backAt - now, 0) + error.retryAfter;
      const more = taken ? backoff.nextRival() : backoff.next();
      await this.#pause(asked, more, error, signal);
    }
  }

  /** Waits as long as the gateway asked for, and then some more, which reconnect ends. */
  async #pause(asked: number, more: number, error: FarhandError, signal: AbortSignal): Promise<void> {
    const woken = new Promise<void>((resolve) => (this.#wake = resolve));
    this.#become({ phase: "waiting", retryAt: new Date(Date.now() + asked + more), error });
    if (asked > 0) await sleep(asked, signal).catch(() => {});
    await Promise.race([woken, sleep(more, signal).catch(() => {})]);
  }

  #end(running: AbortController, error?: FarhandError): void {
    if (this.#running !== running) return;
    this.#running = undefined;
    running.abort(error ?? new FarhandError("stopped", "the device stopped"));
    this.#become(error ? { phase: "refused", error } : { phase: "closed" });
  }

  async #load(): Promise<void> {
    try {
      this.#credential ??= this.options.token ? undefined : await storedCredential(this.#store);
      const kept = (await this.#store.get("session")) as { id: string; token: string } | undefined;
      if (kept && (!this.#session || this.#session === kept.id)) {
        this.#session = kept.id;
        this.#resumeToken = kept.token;
      }
      await this.#calls.answers.load((id) =>
        failure(id, "The device restarted during this call. What it did until then is not known."));
    } catch (error) {
      this.#loaded = undefined;
      throw new FarhandError("store", `the device's store cannot be read: ${messageOf(error)}`);
    }
  }

  /** Makes one connection, and serves it until it ends. */
  async #connect(signal: AbortSignal): Promise<Ended> {
    let signature = "";
    try {
      if (this.#credential) signature = await sign(this.#address, this.#credential, signal);
    } catch (error) {
      return { error: asError(error), lasted: 0, backAt: 0, close: 0 };
    }
    if (signal.aborted) return { error: asError(signal.reason), lasted: 0, backAt: 0, close: 0 };
    const auth = { token: this.#credential?.token ?? this.options.token ?? "", signature };
    return serve({
      platform: this.system, address: this.#address, url: this.#url(), auth, number: ++this.#links, signal,
      silence: this.options.silence ?? 60_000,
      open: (link) => this.#open(link),
      take: (link, frame) => this.#take(link, frame),
      probe: (link) => this.#register(link, []),
      ended: (link) => {
        if (this.#link === link) this.#link = undefined;
        this.chat.lost();
      },
    });
  }

  #url(): URL {
    const url = new URL(this.#address.socket);
    if (this.#session) url.searchParams.set("session_id", this.#session);
    if (this.options.name) url.searchParams.set("name", this.options.name);
    return url;
  }

  /** Says who the device is. The gateway decides with it which connection gets the session. */
  #open(link: Link): void {
    const { approver, deviceId, deviceName, platform, labels } = this.options;
    this.#link = link;
    this.#send({
      type: "connect", v: 1, device_name: deviceName, device_id: this.#credential?.deviceId ?? deviceId,
      platform: platform ?? this.system.name, labels, resume_token: this.#resumeToken || undefined,
      capabilities: [...capabilities, ...(approver ? ["approval"] : []), ...(this.options.wake ? ["wake"] : [])],
    });
  }

  #take(link: Link, frame: Received): void {
    const id = text(frame["id"]);
    switch (frame.type) {
      case "session_start":
        return this.#start(link, frame);
      case "connected":
        this.#wakeOffer = wakeOffer(frame["wake"]);
        return void this.registerWake();
      case "wake_registered":
        return this.emit("wake", { kind: text(frame["kind"]) });
      case "default_set":
        return this.emit("default", { deviceId: text(frame["device_id"]) });
      case "tools_registered":
        return this.#registered(link, frame);
      case "tool_call_request":
        return this.#stopping ? undefined : this.#calls.start(frame);
      case "tool_call_cancel":
        return this.#calls.cancel(id, text(frame["reason"]));
      case "result_acknowledged":
        return this.#calls.answers.acknowledge(id);
      case "upload_slot":
        return this.#calls.slot(frame);
      case "approval_request":
        return void this.#questions.ask(frame);
      case "approval_decided":
        return this.#questions.end(id, text(frame["state"]));
      case "server_draining":
        link.backAt = Date.now() + wait(frame["retry_after_ms"]);
        return this.#become({ phase: "draining", retryAt: new Date(link.backAt) });
      case "title_updated":
        return this.emit("title", text(frame["title"]));
      case "error":
        return this.#failed(link, new FarhandError(text(frame["code"]), text(frame["message"]), 0,
          wait(frame["retry_after_ms"])));
      default:
        return this.chat.take(frame); // which ignores the frames of newer gateways
    }
  }

  #start(link: Link, frame: Received): void {
    if (link.registering >= 0) return;
    this.#limits = limitsOf(frame["limits"]);
    link.resumed = frame["resumed"] === true;
    const id = text(frame["session_id"]);
    if (id !== this.#session || !this.#resumeToken) {
      if (this.#session && id !== this.#session) this.#resumeToken = "";
      this.#session = id;
      this.#resumeToken ||= text(frame["resume_token"]);
      this.#store.set("session", { id, token: this.#resumeToken })
        .catch((error: unknown) => this.#trouble("store", error));
    }
    link.registering = 0;
    this.#rejected = [];
    if (this.#foreground !== undefined) this.#send({ type: "presence", foreground: this.#foreground });
    this.#register(link, [...this.#offers.values()]);
    void this.#resend(link);
  }

  /** Sends the answers that were not acknowledged on an earlier connection. */
  async #resend(link: Link): Promise<void> {
    for (const frame of this.#calls.answers.toSend(link.number)) {
      await this.#calls.pace.wait();
      if (this.#link !== link) return;
      this.#send(frame);
    }
  }

  /** Registers tools, in as many frames as needed. No tools are a frame, too: its answer is a sign of life. */
  #register(link: Link, offers: readonly Offer[]): void {
    let batch: string[] = [];
    let size = framesBytes;
    const flush = (): void => {
      link.registering++;
      this.#send(`{"type":"register_tools","tools":[${batch.join(",")}]}`);
      [batch, size] = [[], framesBytes];
    };
    for (const { name, definition } of offers) {
      const more = bytes(definition) + 1;
      if (framesBytes + more > this.#limits.frame_bytes) { // it would end the connection
        this.#rejected = [...this.#rejected, { name, reason: "the definition is larger than the gateway's frames" }];
        continue;
      }
      if (batch.length === definitions || (batch.length > 0 && size + more > this.#limits.frame_bytes)) flush();
      batch.push(definition);
      size += more;
    }
    flush();
  }

  #registered(link: Link, frame: Received): void {
    const registered = number(frame["registered"]);
    const rejected = rejections(frame["rejected"]);
    const names = new Set(rejected.map(({ name }) => name));
    this.#rejected = registered >= this.#offers.size
      ? rejected
      : [...this.#rejected.filter(({ name }) => !names.has(name) && this.#offers.has(name)), ...rejected];
    if (link.registering > 0) link.registering--;
    const { phase } = this.#state;
    if (link.registering > 0 || phase === "draining" || phase === "closed") return;
    const last = this.#state;
    if (last.phase === "connected" && last.registered === registered && rejected.length === 0 &&
      number(frame["count"]) === 0) return; // a sign of life
    this.#become({
      phase: "connected", sessionId: this.#session, resumed: link.resumed, registered, rejected: this.#rejected,
    });
  }

  #failed(link: Link, error: FarhandError): void {
    if (error.code === "PAIRING_REQUIRED" || error.code === "SESSION_OWNER_MISMATCH") {
      link.error = new FarhandError(error.code.toLowerCase(), error.message);
    }
    if (!this.chat.fail(error)) this.emit("trouble", error);
  }

  #send(frame: object | string): boolean {
    if (!this.#link) return false;
    this.#link.connection.send(typeof frame === "string" ? frame : JSON.stringify(frame));
    return true;
  }

  #trouble(code: string, error: unknown): void {
    this.emit("trouble", new FarhandError(code, messageOf(error)));
  }

  #become(state: State): void {
    this.#state = state;
    this.emit("state", state);
  }
}

/** Whether another connection has the session. */
const rival = ({ code }: FarhandError): boolean => code === "session_replaced" || code === "session_owner_mismatch";

/** Whether another connection would not help. */
const final = ({ code, status }: FarhandError, close: number): boolean =>
  close === 1000 || status === 400 || status === 401 || status === 403 || code === "store";
