// Rates of pods, from the differences of their counters.

import type { PodList, PodRow, PodStatus } from "../../api/types";

export interface Sample {
  /** Of the answer, by this machine's clock, in ms. */
  at: number;
  pods: PodRow[];
}

export interface Rates {
  calls: number; // per second
  failed: number;
  refused: number;
  durations: number[]; // by bucket, as of the bounds
  bounds: (number | undefined)[]; // ms
  redis: number[];
  redisBounds: (number | undefined)[];
}

export function sampleOf(list: PodList): Sample {
  return { at: Date.now(), pods: list.pods };
}

/**
 * ratesOf returns a pod's rates between two samples. Without an earlier one, and after a restart, they are those since
 * the pod's start.
 */
export function ratesOf(now: PodStatus, before: PodStatus | undefined): Rates {
  const same = before?.started_at === now.started_at ? before : undefined;
  const seconds = Math.max(0.001, (Date.parse(now.at) - Date.parse(same?.at ?? now.started_at)) / 1000);
  const counts = (buckets: PodStatus["durations"], earlier: PodStatus["durations"] | undefined) =>
    buckets.map((bucket, i) => Math.max(0, bucket.count - (earlier?.[i]?.count ?? 0)));
  return {
    calls: (now.calls - (same?.calls ?? 0)) / seconds,
    failed: (now.calls_failed - (same?.calls_failed ?? 0)) / seconds,
    refused: (total(now.refused) - total(same?.refused)) / seconds,
    durations: counts(now.durations, same?.durations),
    bounds: now.durations.map((bucket) => bucket.max_ms),
    redis: counts(now.redis?.durations ?? [], same?.redis?.durations),
    redisBounds: (now.redis?.durations ?? []).map((bucket) => bucket.max_ms),
  };
}

export function total(counts: Record<string, number> | undefined): number {
  return Object.values(counts ?? {}).reduce((sum, n) => sum + n, 0);
}

/** Sums the rates of pods. Their buckets are those of one release; others are left out. */
export function sum(all: Rates[]): Rates | undefined {
  const [first, ...others] = all;
  return others.reduce<Rates | undefined>((a, b) => {
    if (!a) return b;
    return {
      ...a,
      calls: a.calls + b.calls,
      failed: a.failed + b.failed,
      refused: a.refused + b.refused,
      durations: a.durations.map((n, i) => n + (b.durations[i] ?? 0)),
    };
  }, first);
}

/** quantile returns the duration in ms that a part of the durations does not exceed, undefined without any. */
export function quantile(part: number, counts: number[], bounds: (number | undefined)[]): number | undefined {
  const all = counts.reduce((a, b) => a + b, 0);
  if (all === 0) return undefined;
  let rest = part * all;
  for (let i = 0; i < counts.length; i++) {
    const n = counts[i]!;
    const low = bounds[i - 1] ?? 0;
    if (rest <= n && n > 0) return low + ((bounds[i] ?? low) - low) * (rest / n);
    rest -= n;
  }
  return bounds.findLast((bound) => bound !== undefined);
}
