// A node's GPUs as strips: which pod held which lane, hour by hour. Metrics show how much of a node each pod held, but
// not which GPU. The placement is therefore one that fits, in which pods keep their lanes.

import type { Holder, NodeRow } from "./api";

export type Cell =
  /** `isAtEnd`: of a part of an hour, the pod held the lane at the hour's end. */
  | { kind: "held"; holder: Holder; part: number; isAtEnd?: boolean }
  | { kind: "free" | "stranded" | "unobserved" | "unknown" | "absent" | "missing" };

export interface Strips {
  /** Lanes of one GPU. */
  perGpu: number;
  /** lanes[lane][hour] */
  lanes: Cell[][];
}

const MAX_LANES_PER_GPU = 16;

export function stripsOf(rows: readonly (NodeRow | undefined)[]): Strips {
  const present = rows.filter((row) => row !== undefined);
  const gpus = Math.max(1, Math.round(Math.max(0, ...present.map((row) => row.capacity_gpu_hours ?? 0))));
  const shares = present.flatMap((row) => (row.holders ?? []).map((holder) => holder.gpu_share));
  const smallest = Math.min(1, ...shares.filter((share) => share > 0));
  const perGpu = Math.min(MAX_LANES_PER_GPU, Math.max(1, Math.round(1 / smallest)));
  const count = gpus * perGpu;
  const lanes: Cell[][] = Array.from({ length: count }, () => []);
  let laneHolders = new Map<number, string>();
  rows.forEach((row, hour) => {
    const now = row === undefined ? absent(count) : arrange(row, count, perGpu, laneHolders);
    now.cells.forEach((cell, lane) => {
      const laneCells = lanes[lane];
      if (laneCells !== undefined) laneCells[hour] = cell;
    });
    laneHolders = now.laneHolders;
  });
  return { perGpu, lanes: lanes.map(aligned) };
}

/** A pod that holds the lane in the next hour only began within this one, and held it until the hour's end. */
function aligned(lane: readonly Cell[]): Cell[] {
  return lane.map((cell, hour) => {
    if (cell.kind !== "held" || cell.part >= 1) return cell;
    const isHeldAt = (at: number) => {
      const neighbor = lane[at];
      return neighbor?.kind === "held" && holderKey(neighbor.holder) === holderKey(cell.holder);
    };
    return isHeldAt(hour + 1) && !isHeldAt(hour - 1) ? { ...cell, isAtEnd: true } : cell;
  });
}

interface Arrangement {
  cells: Cell[];
  laneHolders: Map<number, string>;
}

function absent(count: number): Arrangement {
  return { cells: Array.from({ length: count }, () => ({ kind: "absent" })), laneHolders: new Map() };
}

function arrange(row: NodeRow, count: number, perGpu: number, previousHolders: Map<number, string>): Arrangement {
  const cells: (Cell | undefined)[] = Array.from({ length: count });
  const laneHolders = new Map<number, string>();
  const waiting: { holder: Holder; requested: number; part: number }[] = [];
  for (const holder of [...(row.holders ?? [])].sort((left, right) => right.gpu_share - left.gpu_share)) {
    const whole = holder.units * holder.gpu_share;
    const part = whole > 0 ? Math.min(1, holder.allocated_gpu_hours / whole) : 0;
    let requested = Math.max(1, Math.round(whole * perGpu));
    for (const [lane, key] of previousHolders) {
      if (requested > 0 && key === holderKey(holder) && cells[lane] === undefined) {
        cells[lane] = { kind: "held", holder, part };
        laneHolders.set(lane, key);
        requested--;
      }
    }
    if (requested > 0) waiting.push({ holder, requested, part });
  }
  for (const { holder, requested, part } of waiting) {
    for (let left = requested, lane = 0; left > 0 && lane < count; lane++) {
      if (cells[lane] !== undefined) continue;
      cells[lane] = { kind: "held", holder, part };
      laneHolders.set(lane, holderKey(holder));
      left--;
    }
  }
  const rest = unheldLanes(row, perGpu);
  for (let lane = count - 1; lane >= 0; lane--) cells[lane] ??= { kind: rest.pop() ?? "free" };
  return { cells: cells.map((cell) => cell ?? { kind: "free" }), laneHolders };
}

/** Lanes that no pod held; the last one is drawn at the bottom. */
function unheldLanes(row: NodeRow, perGpu: number): ("free" | "stranded" | "unobserved" | "unknown")[] {
  if (row.holders === null || row.capacity_gpu_hours === null) return Array.from({ length: 1000 }, () => "unknown");
  const lanes = (gpuHours: number | null) => Math.round((gpuHours ?? 0) * perGpu);
  return [
    ...Array.from({ length: lanes(row.unobserved_gpu_hours) }, () => "unobserved" as const),
    ...Array.from({ length: lanes(row.stranded_gpu_hours) }, () => "stranded" as const),
  ];
}

function holderKey(holder: Holder): string {
  return `${holder.uid} ${holder.resource}`;
}
