import { expect, test } from "vitest";
import { exactly, linkTo, periodOf, readRoute, writeRoute } from "../src/route";

test("a URL round-trips for any name", () => {
  for (const name of ["research", "a/b?c=d#e", "<img src=x onerror=alert(1)>", "100%", "ünï", ""]) {
    const route = { view: "unit" as const, name, query: { window: "7d", namespace: name || "x" } };
    expect(readRoute(writeRoute(route))).toEqual(route);
  }
});

test("an invalid URL shows the overview", () => {
  for (const fragment of ["", "#", "#/", "#/nowhere", "#/%", "#nonsense?a"]) {
    expect(readRoute(fragment).view).toBe("overview");
  }
  expect(readRoute("#/unit/%E0%A4%A").name).toBe("%E0%A4%A");
});

test("links to other views keep period, cluster and zone, but not filters", () => {
  const from = readRoute("#/unit/a?start=x&end=y&cluster=c&zone=utc&line=z&workloads-sort=pod");
  expect(readRoute(linkTo(from, "nodes", "", { pool: "p" })).query).toEqual({
    start: "x",
    end: "y",
    cluster: "c",
    zone: "utc",
    pool: "p",
  });
  expect(periodOf(from)).toEqual({ start: "x", end: "y" });
  expect(periodOf(readRoute("#/overview?start=x"))).toEqual({ window: "24h" });
});

test("a name's filter matches only that name", () => {
  expect(exactly("a,b!c*d\\e")).toBe("a\\,b\\!c\\*d\\\\e");
  expect(exactly("")).toBe("!*");
});
