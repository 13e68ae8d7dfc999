import { expect, test } from "vitest";
import type { Coverage, FleetTotals } from "../src/api";
import { changeRows, leastKnown } from "../src/views/answers";

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
