import type { Call } from "./call.js";
import { isStandard, validate, type JsonSchema, type StandardSchema } from "./standard.js";

/** Tool describes a tool to the gateway and its agents. */
export interface Tool<Args = Record<string, unknown>> {
  /** A letter, then letters, digits, `_`, `.` or `-`; at most 64 characters. */
  name: string;
  /** What the tool does, for a model. The gateway keeps 1,024 characters. */
  description: string;
  /**
   * The arguments, which are an object: a JSON Schema, or a schema of zod, valibot or arktype. Without it, any
   * arguments are taken. The gateway checks arguments; a schema of a library checks them again, and can convert them.
   */
  parameters?: JsonSchema | StandardSchema<Args>;
  /** The JSON Schema of `parameters`, for libraries whose schemas do not say it themselves. */
  jsonSchema?: JsonSchema;
  /** The JSON Schema of the output. The gateway marks answers that break it. */
  outputSchema?: JsonSchema;
  /** Default timeout of callers, in ms. */
  timeout?: number;
  hints?: Hints;
  /** What calls do outside the gateway. Default: unknown. */
  effects?: Effects;
  /** Up to 16 short names by which callers filter tools. */
  tags?: readonly string[];
  /** `user_confirm`: calls need approval; `admin_only`: only for admins, never for models. Default: `safe`. */
  securityLevel?: "safe" | "user_confirm" | "admin_only";
}

/** Hints describe the effects of a call to people and models. */
export interface Hints {
  readOnlyHint?: boolean;
  destructiveHint?: boolean;
  idempotentHint?: boolean;
  openWorldHint?: boolean;
}

/** Effects are what a tool declares about its calls. */
export interface Effects {
  /** `external` reaches systems of others, `people` a person. */
  class?: "read" | "write" | "external" | "people";
  /** The tool works only while the app is in the foreground: see setForeground. */
  needs_foreground?: boolean;
  /** The platform's permission that the tool uses, such as `camera`. */
  permission?: string;
  cost?: "free" | "metered" | "high";
  /** How long a call usually takes. */
  typical_ms?: number;
}

/**
 * Handler answers a call. A string is the output itself, undefined an empty output, a Part or a Result has images,
 * sounds and files, anything else is sent as JSON. What it throws is the error of the caller.
 */
export type Handler<Args = Record<string, unknown>> = (args: Args, call: Call) => unknown;

/** Offer is a tool with its handler, ready to be registered and called. */
export interface Offer {
  readonly name: string;
  /** The definition as register_tools has it, in JSON. */
  readonly definition: string;
  /** Checks the arguments and runs the handler. `before` runs between the two. */
  run(args: Record<string, unknown>, call: Call, before: () => Promise<void>): Promise<unknown>;
}

/** A necessary condition for names; the gateway checks the rest (docs/protocol.md). */
const names = /^[\p{L}\p{Nd}_][\p{L}\p{M}\p{Nd}_.-]{0,63}$/u;

/** Makes an offer of a tool. It throws a TypeError if the tool is malformed. */
export function offer<Args>(tool: Tool<Args>, handler: Handler<Args>): Offer {
  if (!names.test(tool.name)) throw new TypeError(`the tool name ${JSON.stringify(tool.name)} is malformed`);
  const schema = isStandard(tool.parameters) ? (tool.parameters as StandardSchema<Args>) : undefined;
  const definition = JSON.stringify({
    name: tool.name,
    description: tool.description,
    parameters: tool.jsonSchema ?? (schema ? jsonSchema(schema, tool.name) : tool.parameters),
    output_schema: tool.outputSchema,
    timeout_ms: tool.timeout,
    annotations: tool.hints,
    effects: tool.effects,
    tags: tool.tags,
    security_level: tool.securityLevel,
  });
  return {
    name: tool.name,
    definition,
    async run(args, call, before) {
      const checked = schema ? await validate(schema, args) : (args as Args);
      await before();
      return handler(checked, call);
    },
  };
}

function jsonSchema(schema: StandardSchema, tool: string): JsonSchema {
  const { vendor, jsonSchema: convert } = schema["~standard"];
  if (!convert) {
    throw new TypeError(
      `the schema of ${tool}, made with ${vendor}, does not say its JSON Schema: give it as jsonSchema`);
  }
  return convert.input({ target: "draft-2020-12" });
}
