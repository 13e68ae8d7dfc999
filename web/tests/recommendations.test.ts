import { expect, test } from "vitest";
import type { Recommendation, RecommendationsResponse } from "../src/api";
import { levelRange, nextReview, reviewsWithoutEnough } from "../src/savings";
import { cashText, factsOf, noneText, savedRange } from "../src/views/recommendations";

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
  const of = (notice: string | undefined, ...reviews: object[]) =>
    noneText(
      { rows: [], reviews } as unknown as RecommendationsResponse,
      "utc",
      notice,
      Date.parse("2026-11-20T05:00:00Z"),
    );
  const text = (...reviews: object[]) => of(undefined, ...reviews);
  expect(text()).toBe("No recommendations yet. The next review runs Sat 21 Nov, 04:10 UTC. It needs a week of hours.");
  expect(text(review(20), review(53))).toBe(
    "The review of Fri 20 Nov, 04:10 UTC had figures for 53 of the 168 hours that a recommendation needs. The first that can have them runs Wed 25 Nov, 04:10 UTC.",
  );
  expect(of("The history is loading.", review(53))).toMatch(
    /53 of the 168 hours .* More follow: The history is loading\.$/,
  ); // no date
  expect(text(review(20), review(168))).toMatch(/^No open recommendations after the review of .* runs Sat 21 Nov/);
});

test("clusters whose review had less than a week are named, if others had more", () => {
  const reviews = (...hours: number[]) =>
    reviewsWithoutEnough({
      reviews: hours.map((hours_known) => ({ hours_known })),
    } as unknown as RecommendationsResponse).map(({ hours_known }) => hours_known);
  expect(reviews(66, 720, 168, 167)).toEqual([66, 167]);
  expect(reviews(66, 53)).toEqual([]);
  expect(reviews()).toEqual([]);
});

test.each([
  [null, "cash not known"],
  [0, "none in cash"],
  [12.5, "$12.50 in cash"],
  [40, "all in cash"],
])("a saving of 40 of which %s is cash", (cash_usd, shown) => {
  expect(cashText({ saving: { usd: 40, cash_usd }, currency: "USD" } as Recommendation)).toBe(shown);
});

test("the cash of several savings is their sum, and names how many are not known", () => {
  const text = (...cash: (number | null)[]) =>
    cashText(...cash.map((cash_usd) => ({ saving: { usd: 40, cash_usd }, currency: "USD" }) as Recommendation));
  expect(text(40, 40, 40)).toBe("all in cash");
  expect(text(40, 0, 12.5)).toBe("$52.50 in cash");
  expect(text(40, null, 12.5)).toBe("cash not known for 1 of 3, $52.50 in cash for the others");
  expect(text(null, 0)).toBe("cash not known for 1 of 2, none in cash for the others");
  expect(text(null, null)).toBe("cash not known");
});

test.each([
  [["medium", "medium"], "medium"],
  [["medium", "low"], "low to medium"],
  [["high", "low", "medium"], "low to high"],
])("levels %s are %s", (levels, shown) => {
  expect(levelRange(levels)).toBe(shown);
});

const row = {
  kind: "consolidate",
  currency: "USD",
  confidence: "medium",
  risk: "low",
  risk_note: "Pods are moved.",
  effort: "low",
  current_gpus: 4,
  recommended_gpus: 3,
  subject: { workload: null },
  saving: { usd: 700, low_usd: 650, high_usd: 750, cash_usd: 700 },
  evidence: {
    first_hour: "2026-10-27T18:00:00Z",
    last_hour: "2026-11-26T17:00:00Z",
    hours_observed: 720,
    hours_unknown: 0,
    coverage: 0.9,
    mean_utilization: 0.25,
    peak_utilization: 0.5,
    facts: { nodes: "4 now, 3 after" },
  },
} as unknown as Recommendation;
const factsFrom = (changes: object) => Object.fromEntries(factsOf({ ...row, ...changes }, "utc"));

test("evidence has no row for what is not known, or for a range of a single value", () => {
  expect(factsFrom({})).toMatchObject({
    Evidence: "Tue 27 Oct, 18:00 UTC to Thu 26 Nov, 18:00 UTC",
    Range: "$650.00 to $750.00 a month",
    "Cash savings": "$700.00 a month",
    Utilization: "25% on average, 50% in the busiest hour",
    Measured: "90% of the allocated GPU-hours",
    Nodes: "4 now, 3 after",
  });
  const lacking = { ...row.evidence, coverage: null, mean_utilization: null, peak_utilization: null };
  const facts = factsFrom({ evidence: lacking, saving: { ...row.saving, low_usd: 700, high_usd: 700 } });
  expect(Object.keys(facts)).toEqual(["Confidence", "Risk", "Effort", "Cash savings", "Evidence", "Hours", "Nodes"]);
  expect(Object.values(facts).join()).not.toContain("–");
});

test("applied and verified changes have amounts before and after", () => {
  const ofWorkload = { subject: { workload: "app" }, evidence: { ...row.evidence, facts: {} } };
  for (const [state, text] of [
    ["open", "4 now, 3 after"],
    ["applied", "4 before, 3 after"],
    ["verified", "4 before, 3 after"],
  ])
    expect(factsFrom({ ...ofWorkload, state })).toMatchObject({ GPUs: text });
});

test("evidence of added GPUs says what they cost, and not negative savings", () => {
  const facts = factsFrom({ saving: { usd: -1966, low_usd: -1967, high_usd: -1965, cash_usd: -1966 } });
  expect(facts).toMatchObject({ Range: "$1,965 to $1,967 a month", "Added to the AWS bill": "$1,966 a month" });
  expect(facts).not.toHaveProperty("Cash savings");
});

test("reviews run every day at 04:10 UTC", () => {
  const next = (time: string) => new Date(nextReview(Date.parse(time))).toISOString();
  expect(next("2026-11-20T04:09:59Z")).toBe("2026-11-20T04:10:00.000Z");
  expect(next("2026-11-20T04:10:00Z")).toBe("2026-11-21T04:10:00.000Z");
});
