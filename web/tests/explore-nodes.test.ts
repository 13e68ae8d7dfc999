import { expect, test } from "vitest";
import type { NodeRow } from "../src/api";
import { questionOf } from "../src/explore";
import { costsOfNodes, isIncluded, summed } from "../src/explore-nodes";

const HOURS = ["2026-11-18T22:00:00Z", "2026-11-18T23:00:00Z", "2026-11-19T00:00:00Z"];
const PERIOD = { start: "2026-11-18T22:00:00Z", end: "2026-11-19T01:00:00Z" };
const node = (hour: string, name: string, node_pool: string, usd: number | null): NodeRow =>
  ({
    ...{
      hour,
      node: name,
      node_pool,
      cluster: "west",
      zone: "a",
      kind: "node",
      instance_type: "g5",
      gpu_model: "A10G",
    },
    ...{ capacity_type: "spot", node_cost_usd: usd, unallocated_usd: usd === null ? null : usd / 4 },
    ...{ allocated_usd: 1, effective_usd: 1, waste_usd: 0, unmeasured_usd: 0, unpriced_capacity_gpu_hours: 0 },
    holders: [{ allocated_gpu_hours: 3, effective_gpu_hours: 1, unmeasured_gpu_hours: 0.5 }],
  }) as unknown as NodeRow;
const query = (query: Record<string, string>) => questionOf({ view: "explore", name: "", query });

test("node costs are added up by group, for the table and for each day of the chart", () => {
  const question = query({ by: "node_pool", measure: "node_cost_usd" });
  const nodes = HOURS.flatMap((hour) => [node(hour, "n1", "a", 8), node(hour, "n2", "a", 4), node(hour, "n3", "b", 2)]);
  const { rows, names, groups, all } = summed(question, costsOfNodes(question, PERIOD, "day", nodes), 1);
  expect(rows.map(({ group, node_cost_usd, unallocated_usd }) => [group, node_cost_usd, unallocated_usd])).toEqual([
    [{ node_pool: "a" }, 36, 9],
    [{ node_pool: "b" }, 6, 1.5],
  ]);
  expect(rows[0]).toMatchObject({ allocated_gpu_hours: 18, effective_gpu_hours: 6, unmeasured_gpu_hours: 3 });
  expect(names).toEqual(["a"]);
  expect(groups.map(({ start, group, node_cost_usd }) => [start, group["node_pool"], node_cost_usd])).toEqual([
    ["2026-11-18T22:00:00Z", "a", 24],
    ["2026-11-18T22:00:00Z", "b", 4],
    ["2026-11-19T00:00:00Z", "a", 12],
    ["2026-11-19T00:00:00Z", "b", 2],
  ]);
  expect(all.map(({ node_cost_usd }) => node_cost_usd)).toEqual([28, 14]);
});

test("a node without a price makes the cost of its group unknown, not smaller", () => {
  const question = query({ by: "node_pool", then: "zone", measure: "node_cost_usd" });
  const nodes = HOURS.flatMap((hour) => [
    node(hour, "n1", "a", 8),
    node(hour, "n2", "a", null),
    node(hour, "n3", "b", 2),
  ]);
  const { rows } = summed(question, costsOfNodes(question, PERIOD, "hour", nodes), 7);
  expect(rows.map(({ group, node_cost_usd }) => [group, node_cost_usd])).toEqual([
    [{ node_pool: "a", zone: "a" }, null],
    [{ node_pool: "b", zone: "a" }, 6],
  ]);
});

test("filters of nodes are those of the address", () => {
  const names = { cluster: "west", node_pool: "a" };
  const of = (parameters: Record<string, string>) => isIncluded(query(parameters).filters, names);
  expect([of({}), of({ "f.cluster": "east,west" }), of({ "f.node_pool": "!a" }), of({ "f.node_pool": "!*" })]).toEqual([
    ...[true, true, false, false],
  ]);
});
