const mostValues = 5_000;

/**
 * isSmall reports whether the form of a schema has a size that a page can show. It counts all values, those of what is
 * referred to each time, and elements that must be there.
 */
export function isSmall(schema: object): boolean {
  let left = mostValues;
  const count = (at: unknown, above: readonly string[]): void => {
    if (--left < 0 || typeof at !== "object" || at === null) return;
    const before = left;
    const { $ref, minItems } = at as { $ref?: unknown; minItems?: unknown };
    for (const [key, value] of Object.entries(at)) {
      if (key !== "$defs" && key !== "definitions") count(value, above);
    }
    if (typeof $ref === "string" && !above.includes($ref)) count(target(schema, $ref), [...above, $ref]);
    if (typeof minItems === "number") left -= (before - left) * minItems;
  };
  count(schema, []);
  return left >= 0;
}

function target(schema: object, ref: string): unknown {
  if (!ref.startsWith("#/")) return undefined;
  const names = ref.slice(2).split("/").map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
  return names.reduce<unknown>((at, name) => (Object(at) as Record<string, unknown>)[name], schema);
}
