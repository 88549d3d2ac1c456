// Checks of arguments against a tool's JSON Schema. The gateway checks them once more.

import { type Schema, Validator } from "@cfworker/json-schema";
import { scriptURL } from "../../ui/trusted";
import { draftOf } from "./draft";
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

/** fits reports whether a value may be meant for one of a form's choices. Patterns do not count: they can take long. */
export function fits(schema: object | boolean, value: unknown): boolean {
  if (typeof schema === "boolean") return schema;
  return new Validator(withoutPatterns(schema) as Schema, draftOf(schema)).validate(value).valid;
}

function withoutPatterns(schema: object): unknown {
  const kept = (key: string, value: unknown) =>
    /^(pattern|format)$/.test(key) && typeof value === "string" ? undefined : value;
  return JSON.parse(JSON.stringify(withoutPatternProperties(schema), kept));
}

/** withoutPatternProperties returns a copy of a schema whose form tries no pattern of a device on names. */
export function withoutPatternProperties(schema: object): object {
  const kept = (key: string, value: unknown) => (key === "patternProperties" ? undefined : value);
  return JSON.parse(JSON.stringify(schema, kept)) as object;
}
