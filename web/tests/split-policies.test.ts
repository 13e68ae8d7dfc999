import { describe, expect, it } from "vitest";
import type { SplitPolicyRow } from "../src/api";
import { comparedPeriod, largestChange, policySums, unitCharges, weeksOf } from "../src/split-policies";

const row = (policy: string, units: Record<string, number | null>, node: number | null, more: object = {}) =>
  ({
    split_policy: policy,
    is_in_force: policy === "scad",
    hours: 2,
    business_units: Object.entries(units).map(([unit, usd]) => ({
      business_unit: unit,
      allocated_usd: usd,
      allocated_gpu_hours: 2,
      unpriced_gpu_hours: usd === null ? 2 : 0,
    })),
    capacity:
      node === null
        ? null
        : {
            node_cost_usd: node,
            host_usd: node / 2,
            unallocated_usd: 1,
            stranded_usd: 2,
            unobserved_usd: 0,
            residual_usd: 0,
          },
    notes: [],
    ...more,
  }) as unknown as SplitPolicyRow;

/** Two pages of an answer. A unit appears in the second one only. */
const PAGES = [
  row("datadog", { a: 6, b: 1 }, 20),
  row("scad", { a: 2, b: 1 }, 20),
  row("datadog", { a: 3, b: 1, c: 4 }, 20),
  row("scad", { a: 1, b: null, c: 5 }, null, { notes: ["no shape of x1"] }),
];

describe("charges under split policies", () => {
  it("of the pages add up, also where a page knows no price", () => {
    expect(unitCharges(PAGES)).toEqual([
      { unit: "a", charges: { datadog: 9, scad: 3 } },
      { unit: "b", charges: { datadog: 2, scad: 1 } },
      { unit: "c", charges: { datadog: 4, scad: 5 } },
    ]);
  });

  it("stay unknown where no page knows them", () => {
    expect(unitCharges([row("own", { a: null }, 1), row("own", { a: null }, 1)])).toEqual([
      { unit: "a", charges: { own: null } },
    ]);
  });

  it("begin with the policy in force; a sum with an unknown part is unknown", () => {
    const [scad, datadog] = policySums(PAGES);
    expect(scad).toEqual({
      policy: "scad",
      isInForce: true,
      hours: 4,
      nodeCost: null,
      idle: { unallocated_usd: null, stranded_usd: null, unobserved_usd: null, residual_usd: null, host_usd: null },
      allocatedCost: null,
      allocated_gpu_hours: 10,
      unpriced_gpu_hours: 2,
      notes: ["no shape of x1"],
    });
    expect(datadog).toMatchObject({ hours: 4, nodeCost: 40, allocatedCost: 15 });
    expect(datadog?.idle).toMatchObject({ unallocated_usd: 2, stranded_usd: 4, unobserved_usd: 0, host_usd: 20 });
  });

  it("of a page without hours hide nothing", () => {
    const empty = row("datadog", {}, null, { hours: 0 });
    expect(policySums([row("datadog", { a: 1 }, 8), empty])[0]).toMatchObject({ hours: 2, nodeCost: 8 });
  });

  it("differ most for the unit that is named", () => {
    expect(largestChange(unitCharges(PAGES), "scad")).toEqual({ unit: "a", policy: "datadog", from: 3, to: 9 });
    expect(largestChange(unitCharges([row("scad", { a: 1 }, 1)]), "scad")).toBeUndefined();
  });
});

it("a month is compared, in weeks that have all of it, and of a longer period the last month", () => {
  const month = { start: "2026-10-01T00:00:00Z", end: "2026-11-01T00:00:00Z" };
  expect(comparedPeriod(month)).toEqual(month);
  expect(comparedPeriod({ ...month, start: "2026-09-01T00:00:00Z" })).toEqual(month);
  const weeks = weeksOf(month);
  expect(weeks.map(({ start }) => start.slice(5, 10))).toEqual(["10-01", "10-08", "10-15", "10-22", "10-29"]);
  expect(weeks.map(({ end }) => end)).toEqual([...weeks.slice(1).map(({ start }) => start), month.end]);
  const day = { start: "2026-10-31T00:00:00Z", end: "2026-11-01T00:00:00Z" };
  expect(comparedPeriod(day)).toEqual(day);
});
