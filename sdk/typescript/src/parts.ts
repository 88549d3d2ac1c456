import type { Limits } from "./frames.js";

/** What a part's bytes can be given as. */
export type Data = Uint8Array | ArrayBuffer | Blob;

/** Part is an image, a sound or a file of a result. Make it with image, audio or file. */
export class Part {
  constructor(
    readonly type: "image" | "audio" | "file",
    /** Such as `image/png`: lower case, without parameters. */
    readonly mimeType: string,
    readonly data: Blob,
    /** Name of the file, for people. */
    readonly name?: string,
    /** Where it was uploaded to; undefined: it was not. Set by Call.upload. */
    readonly url?: string,
  ) {}
}

/** Result is a handler's result with parts: at most 16. */
export class Result {
  constructor(
    /** As a handler returns it without parts. */
    readonly output: unknown,
    readonly parts: readonly Part[],
  ) {}
}

/** An image of a result. The MIME type is that of the Blob by default. */
export const image = (data: Data, mimeType?: string, name?: string): Part => part("image", data, mimeType, name);

/** A sound of a result. */
export const audio = (data: Data, mimeType?: string, name?: string): Part => part("audio", data, mimeType, name);

/** A file of a result; also a video. */
export const file = (data: Data, mimeType?: string, name?: string): Part => part("file", data, mimeType, name);

function part(type: Part["type"], data: Data, mimeType: string | undefined, name: string | undefined): Part {
  const blob = data instanceof Blob ? data : new Blob([data as BlobPart]);
  const whole = mimeType || blob.type || (type === "file" ? "application/octet-stream" : "");
  const mime = whole.replace(/;.*/s, "").trim().toLowerCase();
  if (!mime.includes("/")) throw new TypeError(`a part of the type ${type} needs a MIME type`);
  return new Part(type, mime, blob, name || (blob instanceof File ? blob.name : undefined));
}

const inlineBytes = 1 << 20; // what the gateway takes within an answer, of all parts together

/** Returns the fields output and parts of a tool_result. Parts that do not fit into it are uploaded, one by one. */
export async function answerOf(returned: unknown, limits: Limits, upload: (part: Part) => Promise<Part>,
): Promise<{ output: unknown; parts?: unknown[] }> {
  const result = returned instanceof Part ? new Result("", [returned]) : returned;
  if (!(result instanceof Result)) return { output: result ?? "" };
  let room = Math.min(inlineBytes, limits.output_bytes / 2); // base64 takes four bytes for three
  const parts: unknown[] = [];
  for (const given of result.parts) {
    const { type, mimeType, name, data, url } = given.url || fits(given, room) ? given : await upload(given);
    if (!url) room -= data.size;
    parts.push({
      type, mime_type: mimeType, name, size: data.size, ...(url ? { url } : { data: await base64(data) }),
    });
  }
  return { output: result.output ?? "", parts };
}

const fits = (part: Part, room: number): boolean => part.data.size <= room;

/** Returns the base64 of bytes, with padding. */
export async function base64(data: Blob): Promise<string> {
  const all = new Uint8Array(await data.arrayBuffer());
  let binary = "";
  for (let i = 0; i < all.length; i += 0x8000) binary += String.fromCharCode(...all.subarray(i, i + 0x8000));
  return btoa(binary);
}
