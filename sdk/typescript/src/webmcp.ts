import type { DeviceCore } from "./device.js";
import { messageOf } from "./errors.js";
import { list, text } from "./frames.js";
import { audio, file, image, Result, type Part } from "./parts.js";
import type { JsonSchema } from "./standard.js";

/** ModelContext is what WebMCP gives a page: `document.modelContext` (https://webmachinelearning.github.io/webmcp/). */
export interface ModelContext extends EventTarget {
  getTools(): Promise<ContextTool[]>;
  executeTool?(tool: ContextTool, args: string, options?: { signal?: AbortSignal }): Promise<string | null>;
}

interface ContextTool {
  readonly name: string;
  readonly description: string;
  /** An object, or its JSON in older browsers. */
  readonly inputSchema?: object | string;
  readonly annotations?: { readonly readOnlyHint?: boolean };
}

export interface ModelContextOptions {
  /** Default: that of the page. */
  context?: ModelContext;
  /** Chooses the tools to offer. Default: all. */
  offers?: (name: string) => boolean;
}

/**
 * Offers the tools of the page's model context (WebMCP) as the device's, those that come later too. The returned
 * function ends that. It throws if the browser has no model context, and no polyfill stands in for it.
 */
export function offerModelContext(device: DeviceCore, options: ModelContextOptions = {}): () => void {
  const { context = contextOfPage(), offers = () => true } = options;
  const offered = new Map<string, string>(); // definitions in JSON, by name
  let last = Promise.resolve();
  let ended = false;
  const sync = async (): Promise<void> => {
    const tools = (await context.getTools()).filter(({ name }) => !ended && offers(name));
    for (const name of offered.keys()) {
      if (!tools.some((tool) => tool.name === name) && offered.delete(name)) device.removeTool(name);
    }
    for (const tool of tools) {
      const parameters = schemaOf(tool);
      const { name, description, annotations } = tool;
      const definition = JSON.stringify([description, parameters, annotations]);
      if (offered.get(name) === definition) continue;
      const { readOnlyHint } = annotations ?? {};
      const hints = readOnlyHint !== undefined && { hints: { readOnlyHint } };
      device.addTool({ name, description, ...(parameters && { parameters }), ...hints }, async (args, { signal }) =>
        resultOf(await run(context, name, JSON.stringify(args), signal)));
      offered.set(name, definition);
    }
  };
  const changed = (): void => {
    last = last.then(sync).catch((error: unknown) => console.error(`WebMCP: ${messageOf(error)}`));
  };
  context.addEventListener("toolchange", changed);
  changed();
  return () => {
    ended = true;
    context.removeEventListener("toolchange", changed);
    changed(); // which removes all
  };
}

function contextOfPage(): ModelContext {
  const { modelContext } = document as { modelContext?: ModelContext };
  const found = modelContext ?? (navigator as { modelContext?: ModelContext }).modelContext;
  if (!found?.executeTool) throw new Error("this browser has no WebMCP; a polyfill is @mcp-b/webmcp-polyfill");
  return found;
}

const schemaOf = ({ inputSchema }: ContextTool): JsonSchema | undefined =>
  (typeof inputSchema === "string" ? JSON.parse(inputSchema) : inputSchema) as JsonSchema | undefined;

async function run(context: ModelContext, name: string, args: string, signal: AbortSignal): Promise<string | null> {
  const tool = (await context.getTools()).find((one) => one.name === name);
  if (!tool || !context.executeTool) throw new Error(`the page has no tool ${name} any more`);
  return context.executeTool(tool, args, { signal });
}

/** Returns a handler's result for a page's: JSON, which may be the result of an MCP tool. */
function resultOf(returned: string | null): unknown {
  let value: unknown = returned;
  try {
    value = JSON.parse(returned ?? "null");
  } catch {
    // a text
  }
  const { content, structuredContent, isError } = Object(value) as Record<string, unknown>;
  if (!Array.isArray(content)) return value;
  const items = list<Record<string, unknown>>(content);
  const words = items.filter(({ type }) => type === "text").map((item) => text(item["text"])).join("\n");
  if (isError === true) throw new Error(words || "the page's tool failed");
  return new Result(structuredContent ?? words, items.flatMap(partOf));
}

function partOf({ type, data, mimeType }: Record<string, unknown>): Part[] {
  if (typeof data !== "string") return [];
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  if (type === "image") return [image(bytes, text(mimeType))];
  if (type === "audio") return [audio(bytes, text(mimeType))];
  return [file(bytes, text(mimeType))];
}
