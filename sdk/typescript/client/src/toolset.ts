import { ApprovalDeniedError, FarhandError, UnauthenticatedError } from "./errors.js";
import type { TargetOptions } from "./calling.js";
import type { Farhand } from "./farhand.js";
import type { CallResult } from "./result.js";

/** Which tools an agent gets, and how it calls them. */
export interface ToolsOptions extends TargetOptions {
  /** The names of the tools. Default: all that the token may call. */
  only?: readonly string[];
  /** How long each call may take, in milliseconds. Default: as of Farhand.call. */
  timeout?: number;
  /**
   * Give the model the images of results, beside a line for each. Default: true for Anthropic, else false: OpenAI's
   * chat completions take none, and libraries then send them as text.
   */
  images?: boolean;
  /** Cancels running calls. */
  signal?: AbortSignal;
}

/** What a model reads of a call. */
export interface ToolOutput {
  /** The output, or what failed. */
  text: string;
  /** Those that could be loaded, of at most 5 MiB. The text has a line for each, also for the others. */
  images: Picture[];
  /** Why the call has no output. */
  error?: FarhandError;
}

/** An image of a result. */
export interface Picture {
  mimeType: "image/png" | "image/jpeg" | "image/gif" | "image/webp";
  /** In base64. */
  data: string;
}

/** The largest image that a model gets, in bytes. */
const largest = 5 << 20;

/** A tool as the libraries want it. */
export interface ModelTool {
  /** As models accept it. */
  name: string;
  description: string;
  /** A JSON Schema. */
  parameters: Record<string, unknown>;
  /** run calls the tool. It throws only what no model can react to: a cancelled call, a refused token. */
  run(args: unknown, signal?: AbortSignal): Promise<ToolOutput>;
}

/** modelTools returns the tools of the sessions that match, one per name. */
export async function modelTools(farhand: Farhand, options: ToolsOptions = {}): Promise<ModelTool[]> {
  const { only, signal, timeout, images, ...target } = options;
  const { tools, names } = await farhand.toolsForModel({ ...target, signal });
  const all = tools.map(({ function: { name, description, parameters } }) => ({
    name,
    description,
    parameters,
    original: names[name] ?? name,
  }));
  return all
    .filter(({ original }) => !only || only.includes(original))
    .map(({ original, ...tool }) => ({
      ...tool,
      run: async (args: unknown, inner?: AbortSignal) => {
        const both = signal && inner ? AbortSignal.any([signal, inner]) : (signal ?? inner);
        let result: CallResult;
        try {
          result = await farhand.call(original, (args ?? {}) as object, { ...target, timeout, signal: both });
        } catch (error) {
          if (both?.aborted || !(error instanceof FarhandError) || error instanceof UnauthenticatedError) throw error;
          return failureOf(error);
        }
        // The tool ran: from here on nothing may make the model believe that it failed.
        return { text: textOf(result), images: images ? await picturesOf(result, both) : [] };
      },
    }));
}

/** textOf returns what a model reads: the output, and a line for each file. */
function textOf(result: CallResult): string {
  const lines = result.parts.map((part) => `[${part.type}, ${part.mimeType}, ${part.size} bytes]`);
  return [clean(result.output), ...lines].filter((line) => line !== "").join("\n") || "(no output)";
}

/** picturesOf returns the images that a model can take. It leaves out those that are too large or cannot be loaded. */
async function picturesOf(result: CallResult, signal?: AbortSignal): Promise<Picture[]> {
  const shown = result.parts.filter(
    ({ mimeType, size }) => /^image\/(png|jpeg|gif|webp)$/.test(mimeType) && size <= largest,
  );
  const loaded = shown.map(async (part) => {
    const bytes = await part.bytes({ signal }).catch(() => undefined);
    if (!bytes || bytes.length > largest) return [];
    return [{ mimeType: part.mimeType as Picture["mimeType"], data: base64Of(bytes) }];
  });
  return (await Promise.all(loaded)).flat();
}

/** failureOf returns what a model reads of an error, with what is known of the call. */
function failureOf(error: FarhandError): ToolOutput {
  const known = error.dispatched === "unknown" ? " It is not known whether the tool ran." : "";
  const final = error instanceof ApprovalDeniedError ? " Do not try again." : "";
  return { text: clean(`${error.code}: ${error.message}${known}${final}`), images: [], error };
}

/**
 * clean removes what a reader would not see: control characters except line feeds and tabs, marks of direction, tags
 * and other invisible characters, but not the joiners that some scripts and emoji are written with.
 */
function clean(text: string): string {
  return text.replace(/\r\n?/g, "\n").replace(/(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}]/gu, "");
}

function base64Of(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}
