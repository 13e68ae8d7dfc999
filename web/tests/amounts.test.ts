// Every amount has one name in all views, which the glossary defines.
import { expect, test } from "vitest";
import { GLOSSARY } from "../src/glossary";
import { AMOUNTS, amountTitle } from "../src/identity";

const sources = import.meta.glob<string>(["../src/**/*.{ts,tsx}", "!../src/api-types.ts"], {
  query: "?raw",
  import: "default",
  eager: true,
});
/** Other words for an amount, as labels. */
const OTHERS =
  /[">](Allocated|Effective|Unmeasured|Unallocated|Stranded|Spent|Spending|Cost|Serving|Waiting|Projected|Spend|On offer|Verified|Without a measurement)["<]/;

test("no label gives an amount another name", () => {
  const labels = Object.entries(sources).flatMap(([file, text]) =>
    text
      .split("\n")
      .filter((line) => OTHERS.test(line))
      .map((line) => `${file}: ${line.trim()}`),
  );
  // A state of recommendations, and no amount.
  expect(labels.filter((label) => !label.includes('state: "verified"'))).toEqual([]);
  expect(Object.keys(sources).length).toBeGreaterThan(40);
});

test("the glossary defines every amount", () => {
  const terms = Object.values(AMOUNTS).map((name) => (name in GLOSSARY ? name : name.replace(/ cost$/, "")));
  expect(terms.filter((term) => !(term in GLOSSARY))).toEqual([]);
  expect(new Set(Object.values(AMOUNTS)).size).toBe(Object.keys(AMOUNTS).length);
  expect(amountTitle("unmeasured_usd")).toBe("Unmeasured cost");
});
