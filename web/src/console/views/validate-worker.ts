// Checks arguments against a tool's JSON Schema as the gateway does, without making code from the schema. It is a worker:
// a pattern of a device can keep it busy for longer than anyone waits.

import { type Schema, type SchemaDraft, Validator } from "@cfworker/json-schema";
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

function draftOf(schema: object): SchemaDraft {
  const named = "$schema" in schema ? String(schema.$schema) : "";
  if (named.includes("draft-04")) return "4";
  if (named.includes("draft-06") || named.includes("draft-07")) return "7";
  return named.includes("2019-09") ? "2019-09" : "2020-12";
}

addEventListener("message", ({ data: { schema, value } }: MessageEvent<{ schema: object; value: unknown }>) =>
  postMessage(check(schema, value)),
);
