import { ApprovalDeniedError, FarhandError, UnauthenticatedError } from "./errors.js";
import type { TargetOptions } from "./calling.js";
import type { Farhand } from "./farhand.js";
import type { CallResult, FilePart } from "./result.js";

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
  images: FilePart[];
  /** Why the call has no output. */
  error?: FarhandError;
}

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
        try {
          const result = await farhand.call(original, (args ?? {}) as object, { ...target, timeout, signal: both });
          return { ...outputOf(result), ...(images ? {} : { images: [] }) };
        } catch (error) {
          if (both?.aborted || !(error instanceof FarhandError) || error instanceof UnauthenticatedError) throw error;
          return failureOf(error);
        }
      },
    }));
}

/** outputOf returns what a model reads: the output, and a line for each file. */
function outputOf(result: CallResult): ToolOutput {
  const lines = result.parts.map((part) => `[${part.type}, ${part.mimeType}, ${part.size} bytes]`);
  const text = [clean(result.output), ...lines].filter((line) => line !== "").join("\n");
  const shown = /^image\/(png|jpeg|gif|webp)$/;
  return { text: text || "(no output)", images: result.parts.filter((part) => shown.test(part.mimeType)) };
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

/** base64Of returns the bytes of an image in base64. */
export async function base64Of(part: FilePart): Promise<string> {
  let binary = "";
  for (const byte of await part.bytes()) binary += String.fromCharCode(byte);
  return btoa(binary);
}
