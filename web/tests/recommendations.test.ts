import { expect, test } from "vitest";
import type { RecommendationsResponse } from "../src/api";
import { noneText, savedRange } from "../src/views/recommendations";

test.each([
  [4809.52, 5286.65, "$4,809.52 to $5,286.65"],
  [697.66, 697.66, "$697.66"],
  [-1966.75, -1964.83, "costs $1,964.83 to $1,966.75"],
  [-70, -70, "costs $70.00"],
])("bounds of savings %s and %s", (low, high, shown) => {
  expect(savedRange(low, high, "USD")).toBe(shown);
});

test("without recommendations, the reason is the missing review, its hours, or that nothing is to change", () => {
  const review = (hours: number) => ({ reviewed_at: "2026-11-20T04:10:00Z", hours_known: hours });
  const text = (...reviews: object[]) => noneText({ rows: [], reviews } as unknown as RecommendationsResponse, "utc");
  expect(text()).toMatch(/^No recommendations yet\. /);
  expect(text(review(20), review(53))).toMatch(/ had figures for 53 hours\. A recommendation needs 168\.$/);
  expect(text(review(20), review(168))).toMatch(/^No open recommendations after the review of /);
});
