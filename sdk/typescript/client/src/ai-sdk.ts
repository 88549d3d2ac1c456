/**
 * The tools of devices for the AI SDK of Vercel: `streamText({ tools: await farhandTools(farhand) })`.
 *
 * @packageDocumentation
 */
import { dynamicTool, jsonSchema, type ToolSet } from "ai";
import type { Farhand } from "./farhand.js";
import { type ModelTool, modelTools, type ToolsOptions } from "./toolset.js";

export type { ToolsOptions } from "./toolset.js";

/** The output of a tool: what the model reads, and images in base64. */
export interface DeviceOutput {
  text: string;
  images: { mediaType: string; data: string }[];
}

/** farhandTools returns the tools of the matching sessions, one per name. Their output is a DeviceOutput. */
export async function farhandTools(farhand: Farhand, options: ToolsOptions = {}): Promise<ToolSet> {
  const tools = await modelTools(farhand, options);
  return Object.fromEntries(tools.map((tool) => [tool.name, dynamic(tool)]));
}

function dynamic({ description, parameters, run }: ModelTool): ToolSet[string] {
  return dynamicTool({
    description,
    inputSchema: jsonSchema(parameters),
    // What it throws is a `tool-error`, which the model reads.
    execute: async (input, { abortSignal }): Promise<DeviceOutput> => {
      const { text, images, error } = await run(input, abortSignal);
      if (error) throw new Error(text, { cause: error });
      return { text, images: images.map(({ mimeType, data }) => ({ mediaType: mimeType, data })) };
    },
    toModelOutput: ({ output }) => {
      const { text, images } = output as DeviceOutput;
      if (images.length === 0) return { type: "text", value: text };
      const shown = images.map(({ mediaType, data }) => ({ type: "image-data" as const, mediaType, data }));
      return { type: "content", value: [{ type: "text", text }, ...shown] };
    },
  });
}
