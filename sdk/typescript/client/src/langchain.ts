/**
 * The tools of devices for LangChain: `createAgent({ tools: await farhandTools(farhand) })`.
 *
 * @packageDocumentation
 */
import { ToolMessage } from "@langchain/core/messages";
import { DynamicStructuredTool, tool } from "@langchain/core/tools";
import type { Farhand } from "./farhand.js";
import { type ModelTool, modelTools, type ToolOutput, type ToolsOptions } from "./toolset.js";

export type { ToolsOptions } from "./toolset.js";

/**
 * farhandTools returns the tools of the matching sessions, one per name. Failures are ToolMessages with the status
 * `error`, so that the agent goes on.
 */
export async function farhandTools(farhand: Farhand, options: ToolsOptions = {}): Promise<DynamicStructuredTool[]> {
  return (await modelTools(farhand, options)).map(structured);
}

function structured({ name, description, parameters, run }: ModelTool): DynamicStructuredTool {
  return tool(
    async (args: unknown, config: { signal?: AbortSignal; toolCall?: { id?: string | undefined } }) => {
      const output = await run(args, config.signal);
      if (!output.error) return contentOf(output);
      const id = config.toolCall?.id;
      if (id === undefined) throw new Error(output.text, { cause: output.error }); // invoked without a model
      return new ToolMessage({ status: "error", content: `Error: ${output.text}`, tool_call_id: id, name });
    },
    { name, description, schema: parameters },
  ) as unknown as DynamicStructuredTool;
}

/** contentOf returns text, or text and images, as LangChain's content blocks. */
function contentOf({ text, images }: ToolOutput): string | object[] {
  if (images.length === 0) return text;
  return [{ type: "text", text }, ...images.map((image) => ({ type: "image", ...image }))];
}
