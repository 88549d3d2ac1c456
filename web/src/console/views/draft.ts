import type { SchemaDraft } from "@cfworker/json-schema";

/** draftOf returns the draft that a schema is read as. */
export function draftOf(schema: object): SchemaDraft {
  const named = "$schema" in schema ? String(schema.$schema) : "";
  if (named.includes("draft-04")) return "4";
  if (named.includes("draft-06") || named.includes("draft-07")) return "7";
  return named.includes("2019-09") ? "2019-09" : "2020-12";
}
