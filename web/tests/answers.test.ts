import { describe, expect, it, test } from "vitest";
import type { Coverage, FleetTotals } from "../src/api";
import { changeRows, leastKnown, monthEndOf, withinText } from "../src/views/answers";

test("the rows of a change add up to it", () => {
  const moved = [50, -30, 20, -7, 4].map((difference) => ({ difference }));
  const total = 100;
  const { others, idle } = changeRows(total, moved);
  expect(others).toBeCloseTo(-3);
  expect(50 - 30 + 20 + (others ?? 0) + (idle ?? 0)).toBeCloseTo(total);
  expect(changeRows(40, moved.slice(0, 3))).toEqual({ others: null, idle: null });
  expect(changeRows(null, moved).idle).toBeNull();
});

const coverage = (hours_complete: number) => ({ hours_complete, hours_expected: 100 }) as Coverage;
const totals = (fields: Partial<FleetTotals>) =>
  ({ allocated_gpu_hours: 10, unmeasured_gpu_hours: 0, unpriced_gpu_hours: 0, ...fields }) as FleetTotals;

test("what is known is the least of hours, measurements and prices", () => {
  expect(leastKnown(coverage(90), totals({ unmeasured_gpu_hours: 2 }))).toEqual({
    share: 0.8,
    of: "of allocated GPU-hours are measured",
  });
  expect(leastKnown(coverage(70), totals({ unmeasured_gpu_hours: 2 })).of).toContain("cluster-hours");
  expect(leastKnown(coverage(100), totals({ unpriced_gpu_hours: 4 })).share).toBeCloseTo(0.6);
  expect(leastKnown(coverage(100), totals({ allocated_gpu_hours: 0 })).share).toBe(1);
});

describe("what the month will cost", () => {
  const row = {
    name: "east",
    projected_usd: null,
    run_rate_usd: 90,
    low_usd: null,
    high_usd: null,
    hours_known: 30,
    hours_unknown: 2,
  };
  const forecast = {
    ...{ projected_usd: 120, run_rate_usd: 150, low_usd: 110, high_usd: 130, hours_known: 60, hours_unknown: 4 },
    rows: [row],
  } as unknown as Parameters<typeof monthEndOf>[0];

  it("follows past weeks, or the mean rate with too little history", () => {
    expect(monthEndOf(forecast, undefined)).toMatchObject({ expected: 120, low: 110, high: 130 });
    expect(monthEndOf(forecast, "east")).toMatchObject({
      expected: 90,
      low: null,
      hours: { complete: 30, missing: 2 },
    });
    expect(monthEndOf(forecast, "gone")).toBeNull();
  });

  it("is not known with too few hours", () => {
    expect(monthEndOf({ ...forecast, projected_usd: null, run_rate_usd: null }, undefined)?.expected).toBeNull();
  });

  it("leaves open whether units without a run rate stay within their budgets", () => {
    const budget = (status: string) => ({ status }) as Parameters<typeof withinText>[0][number];
    expect(withinText([budget("within"), budget("within")])).toBe("All 2 business units with a budget stay within it.");
    expect(withinText([budget("within"), budget("unknown")])).toContain("Of the others it is not known yet");
    expect(withinText([budget("unknown")])).toContain("is not known yet");
  });
});
