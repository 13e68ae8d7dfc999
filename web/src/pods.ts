// Several hours of a pod as one row.

import type { Line } from "./api";
import { isUnmeasured } from "./format";
import { sumOf } from "./removal";

/** A pod's figures, of one hour or the sum of several. */
export interface Pod extends Line {
  hours: readonly Line[];
}

/** One row for each pod, resource and business unit. Prices and sources are those of its newest hour. */
export function podsOf(lines: readonly Line[]): Pod[] {
  const byPod = new Map<string, Line[]>();
  for (const line of lines) {
    const key = [line.cluster, line.uid, line.resource, line.business_unit, line.shared_from].join("\n");
    const hours = byPod.get(key);
    if (hours === undefined) byPod.set(key, [line]);
    else hours.push(line);
  }
  return [...byPod.values()].map((hours) => {
    const newest = hours.reduce((latest, line) => (line.hour > latest.hour ? line : latest));
    const gpuHours = (key: "allocated_gpu_hours" | "unmeasured_gpu_hours") =>
      hours.reduce((sum, line) => sum + line[key], 0);
    const usd = (key: "allocated_usd" | "effective_usd" | "waste_usd" | "unmeasured_usd") =>
      // What was not measured of the other hours is unmeasured, and not an unknown part of their figures.
      sumOf(hours.map((line) => (line.allocated_usd !== null && isUnmeasured(line, key) ? 0 : line[key])));
    return {
      ...newest,
      hours,
      allocated_gpu_hours: gpuHours("allocated_gpu_hours"),
      effective_gpu_hours: sumOf(hours.map((line) => line.effective_gpu_hours ?? 0)),
      unmeasured_gpu_hours: gpuHours("unmeasured_gpu_hours"),
      allocated_usd: usd("allocated_usd"),
      effective_usd: usd("effective_usd"),
      waste_usd: usd("waste_usd"),
      unmeasured_usd: usd("unmeasured_usd"),
    };
  });
}
