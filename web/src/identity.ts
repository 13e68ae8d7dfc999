// The parts of the node cost, in stacking order, with their names and descriptions.

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
  { key: "effective_usd", name: "effective", meaning: "allocated and used" },
  { key: "waste_usd", name: "waste", meaning: "allocated and not used" },
  { key: "unmeasured_usd", name: "unmeasured", meaning: "allocated, without a utilization measurement" },
  { key: "unallocated_usd", name: "unallocated", meaning: "available, but not allocated to a pod" },
  { key: "stranded_usd", name: "stranded", meaning: "paid for, but not allocatable" },
  { key: "unobserved_usd", name: "unobserved", meaning: "no metrics show who held it" },
  { key: "host_usd", name: "host", meaning: "CPU and memory part of the node price" },
  { key: "residual_usd", name: "residual", meaning: "remainder of the node cost" },
];

/** Parts that occur in the rows. Effective and waste are always included. */
export function partsOf(rows: readonly PartFigures[], parts: readonly Part[] = PARTS): Part[] {
  return parts.filter((part, index) => index < 2 || rows.some((row) => Math.abs(row[part.key] ?? 0) > 1e-9));
}
