import type { Call, JsonSchema, Tool } from "@farhand/device";

/** A tool of this page. Its name is also the key of its texts in words. */
export interface PageTool {
  readonly tool: Tool;
  /** Why this browser cannot offer it, in plain words; undefined: it can. It reads signals. */
  readonly missing: () => string | undefined;
  readonly run: (args: never, call: Call) => unknown;
}

/** What a call does, as docs/devices.md has it. */
type Effect = "reads" | "changes" | "destroys" | "opens";

const hints: Record<Effect, Tool["hints"]> = {
  reads: { readOnlyHint: true, destructiveHint: false },
  changes: { readOnlyHint: false, destructiveHint: false },
  destroys: { readOnlyHint: false, destructiveHint: true },
  opens: { readOnlyHint: false, destructiveHint: false, openWorldHint: true },
};

interface Described {
  name: string;
  /** For a model. */
  description: string;
  properties?: JsonSchema;
  required?: readonly string[];
  effect: Effect;
  /** Calls need a person's approval, unless a policy says otherwise. */
  confirm?: boolean;
  /** Default timeout of callers, in ms. */
  timeout?: number;
}

export function pageTool<Args>(
  described: Described,
  missing: PageTool["missing"],
  run: (args: Args, call: Call) => unknown,
): PageTool {
  const { name, description, properties = {}, required = [], effect, confirm, timeout } = described;
  return {
    tool: {
      name,
      description,
      parameters: { type: "object", properties, ...(required.length > 0 && { required }), additionalProperties: false },
      hints: hints[effect],
      ...(confirm && { securityLevel: "user_confirm" }),
      ...(timeout && { timeout }),
    },
    missing,
    run: run as PageTool["run"],
  };
}

/** Resolves after some ms, or rejects when a signal ends. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    const end = () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", end);
      resolve();
    }, ms);
    signal.addEventListener("abort", end, { once: true });
  });
}

/** Resolves with a promise, or rejects when a signal ends before. */
export function within<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
    promise.then(resolve, reject);
  });
}

export const duration = {
  duration_ms: { type: "integer", minimum: 1000, maximum: 120_000, description: "default: 10000" },
};
export const defaultDuration = 10_000;
/** How long callers wait for a recording of the greatest length by default. */
export const recordingTimeout = 150_000;
/** How long callers wait for a person by default. */
export const personTimeout = 300_000;
