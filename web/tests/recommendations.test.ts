import { expect, test } from "vitest";
import { savedRange } from "../src/views/recommendations";

test.each([
  [4809.52, 5286.65, "$4,809.52 to $5,286.65"],
  [697.66, 697.66, "$697.66"],
  [-1966.75, -1964.83, "costs $1,964.83 to $1,966.75"],
  [-70, -70, "costs $70.00"],
])("bounds of savings %s and %s", (low, high, shown) => {
  expect(savedRange(low, high, "USD")).toBe(shown);
});
