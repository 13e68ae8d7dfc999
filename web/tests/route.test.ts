import { expect, test } from "vitest";
import { clusterOf, exactly, linkTo, periodOf, readRoute, writeRoute, type Route } from "../src/route";
import notificationLinks from "./notification-links.json?raw";

test("a URL round-trips for any name", () => {
  for (const name of ["research", "a/b?c=d#e", "<img src=x onerror=alert(1)>", "100%", "ünï", ""]) {
    const route = { view: "unit" as const, name, query: { window: "7d", namespace: name || "x" } };
    expect(readRoute(writeRoute(route))).toEqual(route);
  }
});

test("an address without a view is the overview, and one of an unknown view is not found", () => {
  for (const fragment of ["", "#", "#/", "#/?window=7d"]) expect(readRoute(fragment).view).toBe("overview");
  for (const [fragment, name] of [
    ["#/nowhere", "nowhere"],
    ["#/%", "%"],
    ["#nonsense?a", "nonsense"],
  ] as const)
    expect(readRoute(fragment)).toMatchObject({ view: "missing", name });
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

test("the cluster of a drill-down stays in its view", () => {
  const all = readRoute("#/overview?window=7d");
  const hour = readRoute(linkTo(all, "hour", "2026-11-20T10:00:00Z", { cluster: "west", line: "x" }));
  expect([clusterOf(hour), hour.query["cluster"]]).toEqual(["west", undefined]);
  expect(readRoute(linkTo(hour, "explore")).query).toEqual({ window: "7d" });
  expect(clusterOf(readRoute(linkTo(hour, "nodes")))).toBeUndefined();
  const west = readRoute("#/overview?cluster=west");
  expect(readRoute(linkTo(west, "nodes", "", { cluster: "west" })).query).toEqual({ cluster: "west" });
  expect(readRoute(linkTo(all, "savings", "", { cluster: "west" })).query["cluster"]).toBe("west");
});

test("a name's filter matches only that name", () => {
  expect(exactly("a,b!c*d\\e")).toBe("a\\,b\\!c\\*d\\\\e");
  expect(exactly("")).toBe("!*");
});

test("links in notifications lead to the view that they name", () => {
  const links = JSON.parse(notificationLinks) as (Route & { fragment: string })[];
  expect(links.length).toBeGreaterThan(9);
  for (const { fragment, view, name, query } of links) expect(readRoute(fragment)).toEqual({ view, name, query });
});
