// The time so far of clusters without a whole hour, as `gpucost serve` answers it. No other figure contains it.

import { type Figure, type GpuHours, isRepresentative, ratio } from "./format";

export interface SoFarFigures extends GpuHours {
  effective_gpu_hours: Figure;
  unpriced_gpu_hours: Figure;
  allocated_usd: Figure;
  effective_usd: Figure;
  waste_usd: Figure;
  unmeasured_usd: Figure;
}

export interface UnitSoFar extends SoFarFigures {
  business_unit: string;
}

export interface SoFarTotals extends SoFarFigures {
  node_cost_usd: Figure;
  unallocated_usd: Figure;
  capacity_gpu_hours: Figure;
  unallocated_gpu_hours: Figure;
  unpriced_capacity_gpu_hours: Figure;
}

export interface ClusterSoFar {
  cluster: string;
  start: string;
  end: string;
  minutes: number;
  first_whole_hour_end: string;
  currency: string;
  totals: SoFarTotals;
  business_units: UnitSoFar[];
  notes: string[];
}

/** A cluster whose figures are unknown, with the reason. */
export interface UnknownSoFar {
  cluster: string;
  error: string;
}

export interface SoFarResponse {
  clusters: (ClusterSoFar | UnknownSoFar)[];
}

/** The clusters of a view; of all, if it has selected none. */
export function clustersOf({ clusters }: SoFarResponse, selected = "") {
  return clusters.filter(({ cluster }) => selected === "" || cluster === selected);
}

/** Wasted share of the allocated cost, or of the GPU-hours, which needs no price; null if too few were measured. */
export function wastedShare(row: SoFarFigures, ofCost: boolean): number | null {
  if (!isRepresentative(row)) return null;
  if (ofCost) return ratio(row.waste_usd, row.allocated_usd);
  const wasted = (row.allocated_gpu_hours ?? 0) - (row.unmeasured_gpu_hours ?? 0) - (row.effective_gpu_hours ?? 0);
  return ratio(wasted, row.allocated_gpu_hours);
}
