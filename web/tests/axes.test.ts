import { expect, test } from "vitest";
import { plotPadding } from "../src/charts/axes";

test.each([1, 1.25, 2.5])("a chart has room for a half of its highest label at text scale %s", (scale) => {
  const [top] = plotPadding(scale);
  expect(top).toBeGreaterThanOrEqual((12 * scale * 1.5) / 2); // a line of 12 px at scale 1
});
