/**
 * The tools of devices for Anthropic's client: `anthropic.beta.messages.toolRunner({ tools: await farhandTools(farhand)
 * })`.
 *
 * @packageDocumentation
 */
import type { Farhand } from "./farhand.js";
import { base64Of, type ModelTool, modelTools, type ToolOutput, type ToolsOptions } from "./toolset.js";

export type { ToolsOptions } from "./toolset.js";

/** What a model reads of a result. */
export type ResultBlock =
  { type: "text"; text: string } | { type: "image"; source: { type: "base64"; media_type: ImageType; data: string } };
type ImageType = "image/png" | "image/jpeg" | "image/gif" | "image/webp";

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

async function blocksOf({ text, images }: ToolOutput): Promise<ResultBlock[]> {
  const shown = images.map(async (image) => ({
    type: "image" as const,
    source: { type: "base64" as const, media_type: image.mimeType as ImageType, data: await base64Of(image) },
  }));
  return [{ type: "text", text }, ...(await Promise.all(shown))];
}
