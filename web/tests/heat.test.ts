import { expect, test } from "vitest";
import { MAX_FIGURES, rowsOfPage } from "../src/pages";

test("a page of the heat map has all units, or a multiple of five that fits", () => {
  expect(rowsOfPage(24, 200)).toBe(200);
  expect(rowsOfPage(35 * 24, 200)).toBe(20);
  expect(rowsOfPage(14 * 24, 100)).toBe(55);
  for (const hours of [24, 168, 336, 840]) {
    for (const units of [1, 7, 200, 5000]) expect(hours * rowsOfPage(hours, units)).toBeLessThanOrEqual(MAX_FIGURES);
  }
});
