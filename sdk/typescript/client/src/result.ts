import { FarhandError, errorOf } from "./errors.js";
import type { Http } from "./http.js";
import type { CallAnswer, CallRecord, Part } from "./types.js";

/** An image, a sound or a file that a tool returned. Devices choose type, name and content: do not trust them. */
export class FilePart {
  readonly type: Part["type"];
  readonly mimeType: string;
  /** The file's name by the device. It is no path to write to. */
  readonly name: string | undefined;
  /** In bytes. */
  readonly size: number;
  /** Where the bytes are for a while, without a token, if they are not in the response. */
  readonly url: URL | undefined;
  readonly #data: string | undefined;
  readonly #http: Http;

  /** @internal */
  constructor(part: Part, http: Http) {
    this.type = part.type;
    this.mimeType = part.mime_type;
    this.name = part.name;
    this.size = part.size;
    this.url = part.url === undefined ? undefined : http.resolve(part.url);
    this.#data = part.data;
    this.#http = http;
  }

  /** bytes returns the content. It throws `not_found` if the gateway did not keep it, or not for so long. */
  async bytes(options: { signal?: AbortSignal | undefined } = {}): Promise<Uint8Array<ArrayBuffer>> {
    if (this.#data !== undefined) return Uint8Array.from(atob(this.#data), (c) => c.charCodeAt(0));
    if (!this.url) {
      throw errorOf("The gateway did not keep this file: it is too large, or its tenant has no more room.", {
        code: "not_found",
      });
    }
    return new Uint8Array(await this.#http.load(this.url, options.signal));
  }

  /** blob returns the content with its MIME type. */
  async blob(options: { signal?: AbortSignal } = {}): Promise<Blob> {
    return new Blob([await this.bytes(options)], { type: this.mimeType });
  }
}

/** What a tool returned. T is the type of its structured output, which the client does not check. */
export class CallResult<T = unknown> {
  readonly callId: string;
  /** The output as text, as the device sent it: clean it before a terminal or a model reads it. */
  readonly output: string;
  /** The output as JSON, if the device sent JSON other than a string. */
  readonly structured: T | undefined;
  /** Images, sounds and files. */
  readonly parts: readonly FilePart[];
  /** Where the output breaks the tool's output schema. The output is passed on unchanged. */
  readonly violations: NonNullable<CallAnswer["output_violations"]>;
  /** The session and the device that ran it. Built-in tools have none. */
  readonly sessionId: string | undefined;
  readonly deviceId: string | undefined;

  /** @internal */
  constructor(answer: CallAnswer | CallRecord, http: Http) {
    this.callId = answer.call_id;
    this.output = answer.output ?? "";
    this.structured = answer.structured as T | undefined;
    this.parts = (answer.parts ?? []).map((part) => new FilePart(part, http));
    this.violations = answer.output_violations ?? [];
    this.sessionId = answer.session_id;
    this.deviceId = answer.device_id;
  }
}

/** The tool ran on its device, and failed. The message is the device's. */
export class ToolFailedError extends FarhandError {
  constructor(
    message: string,
    /** What it returned all the same. */
    readonly result: CallResult,
  ) {
    super(message, { code: "tool_failed", callId: result.callId, dispatched: "yes" });
  }
}

/** resultOf returns the result of an answer, or throws the tool's failure. */
export function resultOf<T>(answer: CallAnswer | CallRecord, http: Http): CallResult<T> {
  const result = new CallResult<T>(answer, http);
  if (answer.success) return result;
  throw new ToolFailedError(answer.error || result.output || "The tool failed.", result);
}
