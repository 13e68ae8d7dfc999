import { expect, test } from "vitest";
import type { CostRow } from "../src/api";
import { MAX_FIGURES, rowsOfPage } from "../src/pages";
import { rowHeightOf, useText } from "../src/views/heat";

test("a page of the heat map has all units, or a multiple of five that fits", () => {
  expect(rowsOfPage(24, 200)).toBe(200);
  expect(rowsOfPage(35 * 24, 200)).toBe(20);
  expect(rowsOfPage(14 * 24, 100)).toBe(55);
  for (const hours of [24, 168, 336, 840]) {
    for (const units of [1, 7, 200, 5000]) expect(hours * rowsOfPage(hours, units)).toBeLessThanOrEqual(MAX_FIGURES);
  }
});

test("a cell's utilization is that of the measured GPU-hours, and the unmeasured ones are named", () => {
  const hour = { allocated_gpu_hours: 4.714286, effective_gpu_hours: 1.1, waste_usd: 1.23, unmeasured_usd: 8.19 };
  const text = (unmeasured: number) => useText({ ...hour, unmeasured_gpu_hours: unmeasured } as CostRow, "USD");
  expect(text(0)).toBe("23% of 4.71 GPU-hours used, $1.23 wasted");
  expect(text(3.142857)).toBe(
    "70% of the 1.57 measured GPU-hours used, $1.23 wasted; 3.14 GPU-hours unmeasured ($8.19)",
  );
  expect(text(4.6)).toBe("4.60 GPU-hours unmeasured ($8.19), too much for a utilization; $1.23 wasted of the rest");
  expect(text(4.714286)).toBe("4.71 GPU-hours unmeasured ($8.19)");
});

test("on a phone, a row is as high as the lines of the longest name", () => {
  const names = ["search", "a-business-unit-with-a-very-long-name"];
  expect(rowHeightOf(names, false)).toBe(22);
  expect(rowHeightOf(names.slice(0, 1), true)).toBe(22);
  expect(rowHeightOf(names, true)).toBe(3 * 17);
});
