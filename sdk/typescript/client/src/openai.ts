/**
 * The tools of devices for OpenAI's client: `openai.chat.completions.runTools({ tools: await farhandTools(farhand) })`.
 *
 * @packageDocumentation
 */
import type { Farhand } from "./farhand.js";
import { type ModelTool, modelTools, type ToolsOptions } from "./toolset.js";

export type { ToolsOptions } from "./toolset.js";

/** A tool with the function that runs it, as the runners of OpenAI's client take it. */
export interface RunnableTool {
  type: "function";
  function: {
    name: string;
    description: string;
    parameters: Record<string, unknown>;
    parse: (text: string) => object;
    /** Returns what the model reads, also of a failure. Throws when the call was cancelled, or the token is refused. */
    function: (args: object, runner?: { controller?: AbortController }) => Promise<string>;
  };
}

/** farhandTools returns the tools of the matching sessions, one per name. Aborting the runner cancels their calls. */
export async function farhandTools(farhand: Farhand, options: ToolsOptions = {}): Promise<RunnableTool[]> {
  return (await modelTools(farhand, options)).map(runnable);
}

function runnable({ name, description, parameters, run }: ModelTool): RunnableTool {
  return {
    type: "function",
    function: {
      name,
      description,
      parameters,
      parse: (text) => JSON.parse(text || "{}") as object,
      function: async (args, runner) => {
        const { text, error } = await run(args, runner?.controller?.signal);
        return error ? `Error: ${text}` : text;
      },
    },
  };
}
