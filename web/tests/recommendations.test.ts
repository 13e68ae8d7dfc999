import { expect, test } from "vitest";
import type { RecommendationsResponse } from "../src/api";
import { nextReview } from "../src/savings";
import { noneText, savedRange } from "../src/views/recommendations";

test.each([
  [4809.52, 5286.65, "$4,810 to $5,287"],
  [697.66, 697.66, "$697.66"],
  [-1966.75, -1964.83, "costs $1,965 to $1,967"],
  [-70, -70, "costs $70.00"],
])("bounds of savings %s and %s", (low, high, shown) => {
  expect(savedRange(low, high, "USD")).toBe(shown);
});

test("without recommendations, the reason is the missing review, its hours, or that nothing is to change", () => {
  const review = (hours: number) => ({ reviewed_at: "2026-11-20T04:10:00Z", hours_known: hours });
  const text = (...reviews: object[]) =>
    noneText({ rows: [], reviews } as unknown as RecommendationsResponse, "utc", Date.parse("2026-11-20T05:00:00Z"));
  expect(text()).toBe("No recommendations yet. The next review runs Sat 21 Nov, 04:10 UTC. It needs a week of hours.");
  expect(text(review(20), review(53))).toBe(
    "The review of Fri 20 Nov, 04:10 UTC had figures for 53 of the 168 hours that a recommendation needs. The first that can have them runs Wed 25 Nov, 04:10 UTC.",
  );
  expect(text(review(20), review(168))).toMatch(/^No open recommendations after the review of .* runs Sat 21 Nov/);
});

test("reviews run every day at 04:10 UTC", () => {
  const next = (time: string) => new Date(nextReview(Date.parse(time))).toISOString();
  expect(next("2026-11-20T04:09:59Z")).toBe("2026-11-20T04:10:00.000Z");
  expect(next("2026-11-20T04:10:00Z")).toBe("2026-11-21T04:10:00.000Z");
});
