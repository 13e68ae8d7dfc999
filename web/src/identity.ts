// The identity's parts in the order in which they are stacked, and what they are called.

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

export interface Part {
  key: PartKey;
  name: string;
  meaning: string;
}

export const PARTS: readonly Part[] = [
  { key: "effective_usd", name: "effective", meaning: "held and used" },
  { key: "waste_usd", name: "waste", meaning: "held and not used" },
  { key: "unmeasured_usd", name: "unmeasured", meaning: "held, and nobody saw the use" },
  { key: "unallocated_usd", name: "unallocated", meaning: "offered, and nobody held it" },
  { key: "stranded_usd", name: "stranded", meaning: "paid for, and nobody could hold it" },
  { key: "unobserved_usd", name: "unobserved", meaning: "nobody saw who held it" },
  { key: "host_usd", name: "host", meaning: "the part of nodes that their CPU and memory bear" },
  { key: "residual_usd", name: "residual", meaning: "what metrics contradict each other about" },
];

/** Those that are anything in some row: a legend of what is not there helps nobody. */
export function partsOf(rows: readonly PartFigures[], parts: readonly Part[] = PARTS): Part[] {
  return parts.filter((part, place) => place < 2 || rows.some((row) => Math.abs(row[part.key] ?? 0) > 1e-9));
}
