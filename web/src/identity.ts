// The names of amounts, and the parts of the node cost in stacking order, with their descriptions.

import { CAPACITY_NAMES, COST_NAMES } from "./amounts";
import { capitalized } from "./format";

export type PartKey =
  | "effective_usd"
  | "waste_usd"
  | "unmeasured_usd"
  | "unallocated_usd"
  | "stranded_usd"
  | "unobserved_usd"
  | "host_usd"
  | "residual_usd";

export type PartFigures = Partial<Record<PartKey, number | null>>;

/** The name of every amount of money, the same in all views. The glossary defines them. */
export const AMOUNTS = {
  ...COST_NAMES,
  ...CAPACITY_NAMES,
  cost_usd: "cost with idle",
  unknown_tokens_usd: "cost with unknown tokens",
} as const;

export type AmountKey = keyof typeof AMOUNTS;

/** The name of an amount as a title. */
export const amountTitle = (key: AmountKey) => capitalized(AMOUNTS[key]);

/** The name of every unit cost, which says of which tokens it is: those of all tokens and of generated ones differ by far. */
export const UNIT_COSTS = {
  usd_per_million_tokens: "Cost per 1M prompt and generated tokens",
  usd_per_million_prompt_tokens: "Cost per 1M prompt tokens, not cached",
  usd_per_million_cached_tokens: "Cost per 1M prompt tokens, cached",
  usd_per_million_generated_tokens: "Cost per 1M generated tokens",
} as const;

/** The unit cost that an alert on the cost of tokens is about, as Models names it; null for other alerts. */
export function unitCostOf(figures: Readonly<Record<string, unknown>> | undefined): string | null {
  const key = (Object.keys(UNIT_COSTS) as (keyof typeof UNIT_COSTS)[]).find((name) => name in (figures ?? {}));
  return key === undefined ? null : UNIT_COSTS[key];
}

export interface Part {
  key: PartKey;
  name: string;
  meaning: string;
}

const MEANINGS: Readonly<Record<PartKey, string>> = {
  effective_usd: "allocated and used",
  waste_usd: "allocated and not used",
  unmeasured_usd: "allocated, without a utilization measurement",
  unallocated_usd: "available, but not allocated to a pod",
  stranded_usd: "paid for, but not allocatable",
  unobserved_usd: "no metrics show who held it",
  host_usd: "CPU and memory part of the node price",
  residual_usd: "remainder of the node cost",
};

export const PARTS: readonly Part[] = (Object.keys(MEANINGS) as PartKey[]).map((key) => ({
  key,
  name: AMOUNTS[key],
  meaning: MEANINGS[key],
}));

/** Parts that occur in the rows. Effective and waste are always included. */
export function partsOf(rows: readonly PartFigures[], parts: readonly Part[] = PARTS): Part[] {
  return parts.filter((part, index) => index < 2 || rows.some((row) => Math.abs(row[part.key] ?? 0) > 1e-9));
}
