// Checks of arguments against a tool's JSON Schema. The gateway checks them once more.

import { type Schema, Validator } from "@cfworker/json-schema";
import { scriptURL } from "../../ui/trusted";
import worker from "./validate-worker?worker&url";

export interface Violation {
  /** JSON Pointer to the value. */
  pointer: string;
  keyword: string;
  message: string;
}

const longest = 2_000; // ms that a check may take

/** check returns what is wrong; nothing, if that takes too long or browsers do not know a pattern of the schema. */
export async function check(schema: object, value: unknown): Promise<Violation[]> {
  const checking = new Worker(scriptURL(worker), { type: "module" });
  try {
    return await new Promise<Violation[]>((resolve) => {
      checking.onmessage = ({ data }: MessageEvent<Violation[]>) => resolve(data);
      checking.onerror = (event) => {
        event.preventDefault();
        resolve([]);
      };
      setTimeout(resolve, longest, []);
      checking.postMessage({ schema, value });
    });
  } finally {
    checking.terminate();
  }
}

/** fits reports whether a value may be meant for one of a form's choices. Patterns, which can take long, do not count. */
export function fits(schema: object | boolean, value: unknown): boolean {
  if (typeof schema === "boolean") return schema;
  return new Validator(withoutPatterns(schema) as Schema).validate(value).valid;
}

function withoutPatterns(schema: object): unknown {
  const kept = (key: string, value: unknown) =>
    key === "patternProperties" || (/^(pattern|format)$/.test(key) && typeof value === "string") ? undefined : value;
  return JSON.parse(JSON.stringify(schema, kept));
}
