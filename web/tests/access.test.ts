import { expect, test } from "vitest";
import { denialOf } from "../src/api";

test("the page requests what its role may read, and everything before it knows its role", () => {
  const denied = (role: string | null) =>
    ["v1/costs", "v1/hours", "v1/prices"].filter((path) => denialOf(path, role) !== undefined);
  expect(denied(null)).toEqual([]);
  expect(denied("admin")).toEqual([]);
  expect(denied("viewer")).toEqual(["v1/prices"]);
  expect(denied("bu")).toEqual(["v1/hours", "v1/prices"]);
  expect(denialOf("v1/hours", "bu")).toBe("/v1/hours needs the role viewer or admin");
  expect(denialOf("v1/prices", "viewer")).toBe("/v1/prices needs the role admin");
});

test("a business unit may read its own forecast, and not that of the fleet", () => {
  expect(denialOf("v1/forecasts", "bu", { business_unit: "research" })).toBeUndefined();
  expect(denialOf("v1/forecasts", "bu")).toBe("/v1/forecasts needs the role viewer or admin");
  expect(denialOf("v1/forecasts", "viewer")).toBeUndefined();
});
