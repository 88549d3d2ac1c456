// Checks arguments against a tool's JSON Schema as the gateway does, without making code from the schema. It is a
// worker: a pattern of a device can keep it busy for longer than anyone waits.

import { type Schema, Validator } from "@cfworker/json-schema";
import { draftOf } from "./draft";
import type { Violation } from "./validate";

/** Errors of these only say that something inside is wrong. */
const outer = ["properties", "items", "prefixItems", "$ref", "$dynamicRef", "allOf", "if", "dependentSchemas"];

function check(schema: object, value: unknown): Violation[] {
  const { errors } = new Validator(schema as Schema, draftOf(schema), false).validate(value);
  return errors
    .filter((error) => !outer.includes(error.keyword))
    .map((error) => ({
      pointer: decodeURIComponent(error.instanceLocation.slice(1)),
      keyword: error.keyword,
      message: error.error,
    }));
}

addEventListener("message", ({ data: { schema, value } }: MessageEvent<{ schema: object; value: unknown }>) =>
  postMessage(check(schema, value)),
);
