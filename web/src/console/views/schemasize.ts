const mostValues = 5_000;

const emptyList = "items"; // among references, which begin with "#"

/**
 * isSmall reports whether the form of a schema has a size that a page can show. It counts all values, those of what is
 * referred to each time, and elements that must be there. What refers elsewhere, or by an id, is not small, nor what
 * contains itself: only a list that begins empty ends it.
 */
export function isSmall(schema: object): boolean {
  let left = mostValues;
  const count = (at: unknown, above: readonly string[]): void => {
    if (--left < 0 || typeof at !== "object" || at === null) return;
    const before = left;
    const { $id, $ref, type, minItems, default: given } = at as Record<string, unknown>;
    if (typeof $id === "string" && at !== schema) left = -1; // references within mean something else
    for (const [key, value] of Object.entries(at)) {
      if (at !== schema || (key !== "$defs" && key !== "definitions")) {
        const list = key === "items" && type === "array"; // and no property of that name
        count(value, list && !minItems && given === undefined ? [...above, emptyList] : above);
      }
    }
    if (typeof $ref === "string" && above.includes($ref)) {
      if (above.lastIndexOf(emptyList) < above.lastIndexOf($ref)) left = -1;
    } else if (typeof $ref === "string") {
      const to = target(schema, $ref);
      if (to === undefined) left = -1;
      count(to, [...above, $ref]);
    }
    if (typeof minItems === "number") left -= (before - left) * Math.max(0, minItems);
  };
  count(schema, []);
  return left >= 0;
}

function target(schema: object, ref: string): unknown {
  if (!ref.startsWith("#/")) return undefined;
  const names = decoded(ref.slice(2))?.split("/").map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
  return names?.reduce<unknown>((at, name) => (Object(at) as Record<string, unknown>)[name], schema);
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
