import { expect, test } from "vitest";
import { type ClusterSoFar, clustersOf, type SoFarFigures, wastedShare } from "../src/so-far";

const figures = (allocated: number, effective: number, unmeasured: number) =>
  ({
    allocated_gpu_hours: allocated,
    effective_gpu_hours: effective,
    unmeasured_gpu_hours: unmeasured,
    allocated_usd: null,
    waste_usd: null,
  }) as SoFarFigures;

test("the wasted share of a few minutes needs no price", () => {
  expect(wastedShare(figures(1 / 6, 1 / 24, 0), false)).toBeCloseTo(0.75);
  expect(wastedShare(figures(4, 1, 2), false)).toBeCloseTo(0.25);
});

test("the wasted share of priced minutes is of cost, as in all other views", () => {
  // 2 of 8 GPU-hours are wasted, at $9; the others cost $1 or $9: $18 of $40.
  const row = { ...figures(8, 6, 0), allocated_usd: 40, waste_usd: 18 };
  expect(wastedShare(row, true)).toBeCloseTo(0.45);
  expect(wastedShare({ ...figures(10, 0.1, 9.5), allocated_usd: 40, waste_usd: 1 }, true)).toBeNull();
});

test("the wasted share is unknown where hardly anything was measured", () => {
  expect(wastedShare(figures(1 / 6, 0, 1 / 6), false)).toBeNull();
  expect(wastedShare(figures(10, 0.1, 9.5), false)).toBeNull();
  expect(wastedShare(figures(0, 0, 0), false)).toBeNull();
});

test("a selected cluster is shown alone, also one whose figures are unknown", () => {
  const east = { cluster: "east", minutes: 10 } as ClusterSoFar;
  const west = { cluster: "west", error: "no answer" };
  expect(clustersOf({ clusters: [east, west] })).toEqual([east, west]);
  expect(clustersOf({ clusters: [east, west] }, "west")).toEqual([west]);
  expect(clustersOf({ clusters: [east] }, "north")).toEqual([]);
});
