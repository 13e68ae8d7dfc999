import { afterEach, describe, expect, it, vi } from "vitest";
import { fetchAll } from "../src/api";
import { addedUp } from "../src/parts-of-report";

const row = (workload: string, usd: number | null, hours: number, more: object = {}) => ({
  start: "2026-09-01T00:00:00Z",
  end: "2026-11-20T00:00:00Z",
  group: { workload },
  allocated_usd: usd,
  allocated_gpu_hours: hours,
  energy_kwh: null,
  ...more,
});

/** An API that answers with these pages, and what it was asked. */
function answering(pages: object[]): URLSearchParams[] {
  const asked: URLSearchParams[] = [];
  vi.stubGlobal("fetch", (address: string) => {
    const query = new URLSearchParams(address.split("?")[1]);
    asked.push(query);
    return Promise.resolve(new Response(JSON.stringify(pages[Number(query.get("cursor") ?? 0)])));
  });
  return asked;
}

afterEach(() => vi.unstubAllGlobals());

describe("a report in parts", () => {
  const pages = [
    { rows: [row("a", 4, 2), row("b", 1, 1)], row_count: null, cursor: "1" },
    { rows: [row("b", 7, 3, { energy_kwh: 2 }), row("c", null, 5)], row_count: null, cursor: "2" },
    { rows: [row("c", 2, 1)], row_count: null, cursor: null },
  ];

  it("is added up by group, in the order of the request", async () => {
    answering(pages);
    const { rows, row_count: count, cursor } = await fetchAll("v1/costs", { window: "90d", sort: "-allocated_usd" }, 1);
    expect([count, cursor]).toEqual([3, null]);
    expect(
      rows.map(({ group, allocated_usd: usd, allocated_gpu_hours: hours, energy_kwh: energy }) => [
        group["workload"],
        usd,
        hours,
        energy,
      ]),
    ).toEqual([
      ["b", 8, 4, 2],
      ["a", 4, 2, null],
      ["c", 2, 6, null],
    ]);
  });

  it("has the first rows of all parts where only some are wanted", async () => {
    const asked = answering(pages);
    const { rows } = await fetchAll("v1/costs", { window: "90d", sort: "-allocated_usd", limit: "2" }, 1);
    expect(rows.map(({ group }) => group["workload"])).toEqual(["b", "a"]);
    expect(asked.map((query) => query.get("limit"))).toEqual(["2", null, null, null]);
  });

  it("has unknown idle costs where one part's are unknown", async () => {
    const idle = (usd: number | null) => ({
      idle_gpu_hours: usd,
      idle_usd: usd,
      cost_usd: usd === null ? null : usd + 1,
    });
    answering([
      { rows: [row("a", 1, 1, idle(1)), row("b", 1, 1, idle(null))], row_count: null, cursor: "1" },
      { rows: [row("a", 1, 1, idle(2)), row("b", 1, 1, idle(2))], row_count: null, cursor: null },
    ]);
    const { rows } = await fetchAll("v1/costs", { window: "90d", idle: "separate" });
    expect(rows.map(({ idle_usd: usd, cost_usd: cost }) => [usd, cost])).toEqual([
      [3, 5],
      [null, null],
    ]);
  });
});

describe("a CSV file of a report in parts", () => {
  it("has exact sums, and names as they are written", () => {
    const header = "start,end,workload,allocated_gpu_hours,allocated_usd";
    const name = `2026-09-01T00:00:00Z,2026-11-20T00:00:00Z,"a, ""b"""`;
    expect(
      addedUp(
        [header, `${name},0.1,0.200000000001`, `s,e,c,1.000000000000,`, `${name},0.2,123456789012345.1`, ""].join(
          "\r\n",
        ),
      ),
    ).toBe([header, `${name},0.300000000000,123456789012345.300000000001`, `s,e,c,1.000000000000,`, ""].join("\r\n"));
  });

  it("stays as it is with figures that are no sums", () => {
    const csv = "model,allocated_usd,usd_per_request\r\na,1,2\r\na,1,2\r\n";
    expect(addedUp(csv)).toBe(csv);
  });
});
