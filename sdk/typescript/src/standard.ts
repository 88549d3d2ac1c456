/** A JSON Schema (2020-12). */
export type JsonSchema = { readonly [keyword: string]: unknown };

/**
 * What zod, valibot and arktype offer under `~standard` (https://standardschema.dev). With the extension `jsonSchema`,
 * a tool needs no JSON Schema beside it.
 */
export interface StandardSchema<Output = unknown> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => Outcome<Output> | Promise<Outcome<Output>>;
    readonly jsonSchema?: {
      readonly input: (options: { readonly target: "draft-2020-12" }) => Record<string, unknown>;
    };
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined;
  };
}

type Outcome<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly Issue[] };

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export function isStandard(schema: unknown): schema is StandardSchema {
  return (typeof schema === "object" || typeof schema === "function") && schema !== null && "~standard" in schema;
}

/** Returns the value that a schema makes of an input. The error of a refused input names what is wrong with it. */
export async function validate<Output>(schema: StandardSchema<Output>, input: unknown): Promise<Output> {
  const outcome = await schema["~standard"].validate(input);
  if (outcome.issues) throw new TypeError(outcome.issues.map(describe).join("; "));
  return outcome.value;
}

function describe({ message, path }: Issue): string {
  const where = path?.map((step) => String(typeof step === "object" ? step.key : step)).join(".");
  return where ? `${where}: ${message}` : message;
}
