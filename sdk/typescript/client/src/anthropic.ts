/**
 * The tools of devices for Anthropic's client: `anthropic.beta.messages.toolRunner({ tools: await farhandTools(farhand)
 * })`.
 *
 * @packageDocumentation
 */
import type { Farhand } from "./farhand.js";
import { type ModelTool, modelTools, type Picture, type ToolOutput, type ToolsOptions } from "./toolset.js";

export type { ToolsOptions } from "./toolset.js";

/** What a model reads of a result. */
export type ResultBlock =
  { type: "text"; text: string } | { type: "image"; source: { type: "base64"; media_type: Picture["mimeType"]; data: string } };

/** A tool with the function that runs it, as the runners of Anthropic's client take it. */
export interface RunnableTool {
  name: string;
  description: string;
  input_schema: { type: "object"; [keyword: string]: unknown };
  parse: (input: unknown) => object;
  /** Returns what the model reads. Throws what the runner gives the model as an error. */
  run: (args: object, context?: { signal?: AbortSignal | null | undefined }) => Promise<ResultBlock[]>;
}

/** farhandTools returns the tools of the matching sessions, one per name. Aborting the runner cancels their calls. */
export async function farhandTools(farhand: Farhand, options: ToolsOptions = {}): Promise<RunnableTool[]> {
  return (await modelTools(farhand, { images: true, ...options })).map(runnable);
}

function runnable({ name, description, parameters, run }: ModelTool): RunnableTool {
  return {
    name,
    description,
    input_schema: { ...parameters, type: "object" },
    parse: (input) => input as object,
    run: async (args, context) => {
      const output = await run(args, context?.signal ?? undefined);
      if (output.error) throw new Error(output.text, { cause: output.error });
      return blocksOf(output);
    },
  };
}

function blocksOf({ text, images }: ToolOutput): ResultBlock[] {
  const shown = images.map(({ mimeType, data }) => ({
    type: "image" as const,
    source: { type: "base64" as const, media_type: mimeType, data },
  }));
  return [{ type: "text", text }, ...shown];
}
