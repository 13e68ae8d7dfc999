import { expect, test } from "vitest";
import {
  backTo,
  bucketStarts,
  costsOf,
  type Filter,
  filterQuery,
  limitOf,
  onlyGroups,
  opened,
  questionOf,
  stepOf,
} from "../src/explore";
import { readRoute, type Route } from "../src/route";

const at = (query: Record<string, string>): Route => ({ view: "explore", name: "", query });
const filter = (dimension: string, name: string, isExcluded = false): Filter => ({ dimension, name, isExcluded });

test("filters round-trip through the URL, whatever the names contain", () => {
  const filters = [
    filter("namespace", "a,b"),
    filter("namespace", "c\\d!*", true),
    filter("workload", ""),
    filter("zone", "", true),
    filter("label:team", "search"),
  ];
  const query = filterQuery(filters, []);
  expect(questionOf(at(query)).filters).toEqual(filters);
  expect(Object.values(filterQuery([], filters))).toEqual(["", "", "", ""]);
});

test("the API gets names as they are, and labels in one parameter", () => {
  const question = questionOf(
    at(
      filterQuery(
        [
          filter("namespace", "a,b"),
          filter("namespace", "kube", true),
          filter("label:team", "x"),
          filter("label:env", "dev", true),
        ],
        [],
      ),
    ),
  );
  expect(costsOf(question)).toEqual({
    group_by: "business_unit",
    namespace: "a\\,b,!kube",
    label: "team:x,env:!dev",
  });
  expect(costsOf({ ...question, filters: [], measure: "cost_usd" })).toEqual({
    group_by: "business_unit",
    idle: "shared-by-allocation",
  });
});

test("an opened group becomes a filter, and the trail leads back", () => {
  const first = questionOf(at({}));
  const query = opened(first, "research");
  expect(query).toMatchObject({ by: "workload", trail: "business_unit", "f.business_unit": "research" });
  const second = questionOf(at(query));
  const third = questionOf(at({ ...query, ...opened(second, "train") }));
  expect(third).toMatchObject({ by: "pod", trail: ["business_unit", "workload"] });
  const back = questionOf(at({ ...query, ...opened(second, "train"), ...backTo(third, 1) }));
  expect(back).toEqual(second);
  expect(questionOf(at({ ...query, ...backTo(second, 0) }))).toEqual(first);
});

test("unknown dimensions and measures become the defaults", () => {
  expect(questionOf(readRoute("#/explore?by=nothing&measure=toString"))).toMatchObject({
    by: "business_unit",
    measure: "allocated_usd",
  });
});

test("a chart of some groups replaces the filters of their dimension", () => {
  const question = questionOf(at({ "f.business_unit": "!other", "f.zone": "a" }));
  expect(costsOf(onlyGroups(question, ["x", ""]))).toMatchObject({ business_unit: "x,!*", zone: "a" });
});

test("granularity is one that the API has for the period and the dimension", () => {
  const question = questionOf(at({}));
  const step = (by: string, end: string, selected?: string) =>
    stepOf({ ...question, by }, "2026-11-01T00:00:00Z", end, selected);
  expect(step("business_unit", "2026-11-03T00:00:00Z")).toBe("hour");
  expect(step("workload", "2026-11-10T00:00:00Z", "hour")).toBe("day");
  expect(step("business_unit", "2026-11-30T00:00:00Z", "hour")).toBe("hour");
  expect(step("business_unit", "2027-06-01T00:00:00Z", "hour")).toBe("week");
});

test("weeks begin on Monday, months on the first, and the first bucket is cut", () => {
  const days = (step: "day" | "week" | "month") =>
    bucketStarts("2026-11-18T05:00:00Z", "2026-12-02T00:00:00Z", step).map((time) =>
      new Date(time).toISOString().slice(5, 13),
    );
  expect(days("week")).toEqual(["11-18T05", "11-23T00", "11-30T00"]);
  expect(days("month")).toEqual(["11-18T05", "12-01T00"]);
  expect(days("day").slice(0, 2)).toEqual(["11-18T05", "11-19T00"]);
});

test("a limit of the API is a sentence", () => {
  const question = questionOf(at({ by: "pod" }));
  expect(limitOf(question, "2026-11-01T00:00:00Z", "2026-11-03T00:00:00Z")).toBeUndefined();
  expect(limitOf(question, "2026-11-01T00:00:00Z", "2026-11-04T00:00:00Z")).toMatch(
    /^Costs by pod .* 48 hours\. Select/,
  );
});
