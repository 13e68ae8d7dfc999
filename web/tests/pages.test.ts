import { expect, test } from "vitest";
import type { CostRow, HourRow, Line, NodeRow, Recommendation, RecommendationsResponse } from "../src/api";
import { answerOf, formulaOf, isRounded, largest, notesOn, pricesOf, queriesOf } from "../src/explain";
import { stepsFor } from "../src/next-step";
import { podsOf } from "../src/pods";
import { countsOf, findingsOf, hoursToCheck, joinPriced, lackingHours, noteGroups, restatedOf } from "../src/health";
import { gapsOf } from "../src/series";
import { freeReason, heldGpuHours, removalGroups, removalsOf, shortened, strandedReason } from "../src/removal";
import { KINDS } from "../src/recommendation-kinds";
import {
  cashOnOffer,
  additionsFor,
  alternativesFor,
  alternativeText,
  basisOf,
  commitmentFor,
  commandsOf,
  countsText,
  commonFinding,
  findingFor,
  grouped,
  listPricesOf,
  onOffer,
  openFor,
  plannedFor,
  sectionOf,
  selected,
  verifiedTotal,
} from "../src/savings";
import { listPriceMark } from "../src/views/recommendations";
import { causesOf, didNotRun, inPeriod, questionOf } from "../src/unmeasured";
import { hoursByCluster, monthlyWaste } from "../src/waste";

function recommendation(fields: Partial<Recommendation>): Recommendation {
  return {
    state: "open",
    offer: "plan",
    alternative_to: null,
    kind: "idle",
    currency: "USD",
    part_of: null,
    verified_usd: null,
    saving: { usd: 1 },
    subject: { business_unit: "research" },
    ...fields,
  } as Recommendation;
}

test("commitments, costs, alternatives and included savings are not on offer", () => {
  const offered = recommendation({ kind: "idle" });
  const saving = { usd: -5 } as Recommendation["saving"];
  const rows = [
    offered,
    recommendation({ kind: "commitment", offer: "after-plan" }),
    recommendation({ part_of: "mig-geometry-1" }),
    recommendation({ state: "dismissed", offer: null }),
    recommendation({ kind: "pending", offer: "cost", saving }),
    recommendation({ kind: "consolidate", offer: "alternative" }),
    recommendation({ kind: "mig-slice", offer: "alternative", part_of: "mig-geometry-2" }),
  ];
  expect(onOffer(rows)).toEqual([offered]);
  expect(rows.map(sectionOf)).toEqual([
    "savings",
    "commitments",
    "included",
    "savings",
    "costs",
    "alternatives",
    "alternatives",
  ]);
  const open = rows.filter(({ state }) => state === "open");
  expect(countsText(open)).toBe("1 saving + 1 commitment + 1 that adds GPUs + 1 included in another + 2 alternatives");
});

test("a pool has the savings on offer for its nodes, and no alternatives", () => {
  const subject = { workload: null, cluster: "west", node_pool: "gpu" } as Recommendation["subject"];
  const planned = recommendation({ kind: "consolidate", subject });
  const rows = [
    planned,
    recommendation({ kind: "pending", subject, offer: "alternative" }),
    recommendation({ kind: "consolidate", subject: { ...subject, cluster: "east" } }),
    recommendation({ kind: "idle", subject: { ...subject, workload: "app" } }),
  ];
  expect(plannedFor(rows, { cluster: "west", node_pool: "gpu" })).toEqual([planned]);
  expect(openFor(rows.slice(1, 2), { cluster: "west", node_pool: "gpu" })).toBeUndefined();
});

test("cash on offer is that of the offered savings, and what is not known is named separately", () => {
  const saving = (usd: number, cash_usd: number | null) => ({ saving: { usd, cash_usd } as Recommendation["saving"] });
  const rows = [
    recommendation(saving(10, 10)),
    recommendation(saving(7, null)),
    recommendation(saving(5, 0)),
    recommendation({ ...saving(90, 90), kind: "commitment", offer: "after-plan" }),
    recommendation({ ...saving(80, null), part_of: "mig-geometry-1" }),
  ];
  expect(cashOnOffer(rows)).toMatchObject({ cash: 10, unknown: 7 });
  expect(cashOnOffer(rows.slice(1, 2))).toMatchObject({ cash: null, unknown: 7 });
  expect(cashOnOffer([])).toMatchObject({ cash: 0, unknown: 0 });
});

test("cash on offer says how much of it is at list prices, and savings only where they differ", () => {
  const saving = (usd: number, cash_usd: number | null, list_usd: number | null) =>
    recommendation({ saving: { usd, cash_usd, list_usd } as Recommendation["saving"] });
  const [list, discounted, committed, unknown] = [
    saving(10, 8, 10),
    saving(10, 8, 12.5),
    saving(5, 0, 5),
    saving(7, null, 7),
  ];
  const shares = (...rows: Recommendation[]) => listPricesOf(cashOnOffer(rows));
  expect(cashOnOffer([list, discounted, unknown]).atListPrices).toBe(8);
  expect(shares(list, discounted)).toBe("some");
  expect(shares(list, committed, unknown)).toBe("all");
  expect(shares(discounted, committed, saving(3, 3, null))).toBe("none");
  expect(listPriceMark([list])).toBe(", at list prices");
  expect(listPriceMark([list, discounted])).toBe(", partly at list prices");
  expect(listPriceMark([discounted, committed, unknown])).toBe("");
});

test("a node's commitment is that of its instance type or family, in its cluster", () => {
  const about = (cluster: string, instance_type: string, fields: Partial<Recommendation> = {}) =>
    recommendation({
      kind: "commitment",
      subject: { cluster, instance_type } as Recommendation["subject"],
      ...fields,
    });
  const node = { cluster: "west", instance_type: "g5.xlarge", capacity_type: "on-demand" };
  const of = (row: Recommendation) => commitmentFor([row], node) === row;
  expect(of(about("west", "g5.xlarge"))).toBe(true);
  expect(of(about("west", "g5.*"))).toBe(true);
  expect(of(about("west", "g5g.*"))).toBe(false);
  expect(commitmentFor([about("west", "g5.*")], { ...node, instance_type: "g5g.xlarge" })).toBeUndefined();
  expect(commitmentFor([about("west", "g5.*")], { ...node, capacity_type: "reserved" })).toBeUndefined();
  expect(of(about("west", "g5.x"))).toBe(false);
  expect(of(about("east", "g5.*"))).toBe(false);
  expect(of(about("west", "g5.*", { state: "dismissed" }))).toBe(false);
  expect(of(about("west", "g5.*", { kind: "spot" }))).toBe(false);
});

test("recommendations that differ only in workload and numbers are a group", () => {
  const about = (workload: string, usd: number, namespace = "dev") =>
    recommendation({
      summary: `Stop StatefulSet ${namespace}/${workload} while it is idle: ${100 + usd} of 168 hours`,
      subject: { business_unit: "research", namespace, workload } as Recommendation["subject"],
      saving: { usd } as Recommendation["saving"],
    });
  const rows = [about("a", 10), about("x", 15, "notebooks"), about("b", 7)];
  expect(grouped(rows)).toEqual([[rows[0], rows[2]], [rows[1]]]);
  const verified = rows.map((row, index) => ({ ...row, id: `${index}`, state: "verified" as const }));
  expect(grouped(verified)).toHaveLength(3);
});

test("verified savings leave out open rows and rows that others include", () => {
  const rows = [
    recommendation({ state: "verified", verified_usd: 100 }),
    recommendation({ state: "verified", verified_usd: -30, kind: "pending" }),
    recommendation({ state: "verified", verified_usd: 40, part_of: "mig-geometry-1" }),
    recommendation({ state: "applied", verified_usd: 7 }),
  ];
  expect(verifiedTotal(rows)).toBe(70);
  expect(verifiedTotal(rows.slice(3))).toBeNull();
  expect(verifiedTotal([...rows, recommendation({ state: "verified", verified_usd: 1, currency: "EUR" })])).toBeNull();
});

test("recommendations are selected by kind and business unit", () => {
  const pool = recommendation({ kind: "consolidate", subject: { business_unit: null } as Recommendation["subject"] });
  const rows = [recommendation({}), pool];
  expect(selected(rows, { unit: "research" })).toEqual([rows[0]]);
  expect(selected(rows, { kind: "consolidate" })).toEqual([pool]);
  expect(selected(rows, {})).toEqual(rows);
});

test("only commands that the state allows are offered", () => {
  const verbs = (state: Recommendation["state"], patch: string | null = "kind: Pod") =>
    commandsOf({ id: "idle-1", state, patch }).map(({ command }) => command.split(" ")[2]);
  expect(verbs("open")).toEqual(["show", "dismiss"]);
  expect(verbs("open", null)).toEqual(["dismiss"]);
  expect(verbs("dismissed")).toEqual(["reopen"]);
  expect(verbs("verified")).toEqual([]);
});

test("a workload's open recommendation with the largest saving is shown", () => {
  const subject = { workload: "app", cluster: "west" } as Recommendation["subject"];
  const rows = [
    recommendation({ subject, saving: { usd: 5 } as Recommendation["saving"] }),
    recommendation({ subject, saving: { usd: 9 } as Recommendation["saving"] }),
    recommendation({ subject, saving: { usd: 99 } as Recommendation["saving"], state: "dismissed" }),
  ];
  expect(openFor(rows, { workload: "app", cluster: "west" })).toBe(rows[1]);
  expect(openFor(rows, { workload: "app", cluster: "east" })).toBeUndefined();
});

test("a workload without a recommendation has the finding as reason", () => {
  const finding = (workload: string, finding: string, reason: string) =>
    ({ subject: { workload, cluster: "west" }, finding, reason }) as RecommendationsResponse["findings"][number];
  const findings = [
    finding("new", "unknown", "observed for 65 hours; a recommendation needs 168"),
    finding("app", "healthy", "utilization 55% on average, 80% in the busiest hour"),
  ];
  expect(findingFor({ findings, rows: [] }, { workload: "new", cluster: "west" })).toBe(
    "Too little is known: observed for 65 hours; a recommendation needs 168",
  );
  expect(findingFor({ findings, rows: [] }, { workload: "app", cluster: "west" })).toBe(
    "No safe change found: utilization 55% on average, 80% in the busiest hour",
  );
  expect(findingFor({ findings, rows: [] }, { workload: "app", cluster: "east" })).toBeNull();
  const dismissed = {
    kind: "off-hours",
    state: "dismissed",
    subject: { workload: "app", cluster: "west" },
    author: "ana",
    reason: "needed at night",
  } as Recommendation;
  const textWith = (row: Recommendation) => findingFor({ findings, rows: [row] }, { workload: "app", cluster: "west" });
  expect(textWith(dismissed)).toBe(`${KINDS["off-hours"]}: dismissed by ana, needed at night`);
  expect(textWith({ ...dismissed, state: "withdrawn" })).toMatch(/^No safe change found/);
});

test("a finding that all workloads share is shown once", () => {
  expect(commonFinding(["a", "a"])).toBe("a");
  for (const findings of [["a"], ["a", "b"], ["a", null], [null, null], []]) expect(commonFinding(findings)).toBeNull();
});

function hour(number: number, fields: Partial<HourRow> = {}): HourRow {
  const at = `2026-11-20T${String(number).padStart(2, "0")}:00:00Z`;
  const coverage = { allocation: 1, utilization: 1 };
  return { cluster: "west", hour: at, status: "complete", version: 1, notes: [], coverage, ...fields } as HourRow;
}

test("a missing hour is not restated, and a restated hour is not complete", () => {
  const statuses = ["missing", "incomplete", "pending"] as const;
  const rows = [hour(1), hour(2), ...statuses.map((status, index) => hour(3 + index, { status }))];
  const restated = restatedOf([hour(2), hour(3), hour(2, { cluster: "east" })]);
  expect(countsOf(rows, restated)).toEqual({
    complete: 1,
    provisional: 0,
    restated: 1,
    incomplete: 1,
    pending: 1,
    missing: 1,
    closed: 0,
  });
});

test("hours without figures have the reason of each cluster", () => {
  const note = "Prometheus has no samples of kube-state-metrics in this hour";
  const rows = [
    hour(1, { cluster: "batch", status: "incomplete", notes: [note] }),
    hour(1, { cluster: "east", status: "missing" }),
    hour(1),
  ];
  expect(lackingHours(rows).map(({ cluster, status, reason }) => [cluster, status, reason])).toEqual([
    ["batch", "incomplete", note],
    ["east", "missing", "no result; the hour adds nothing to any figure"],
  ]);
});

test("notes that differ in numbers only are one group with the newest text", () => {
  const groups = noteGroups([
    hour(2, { notes: ["coverage of allocation is 40.0%"] }),
    hour(5, { notes: ["coverage of allocation is 50.5%", "other"] }),
    hour(3, { notes: ["coverage of allocation is 45%"], cluster: "east" }),
  ]);
  expect(groups.map(({ cluster, note, hours }) => [cluster, note, hours])).toEqual([
    ["west", "coverage of allocation is 50.5%", 2],
    ["west", "other", 1],
    ["east", "coverage of allocation is 45%", 1],
  ]);
});

const LISTED = "the list price of 2026-07-20, us-east-1";

test("instance types with the same price source share a note", () => {
  const notes = [`p5.48xlarge is priced at ${LISTED}`, "no scrape", `g5.12xlarge is priced at ${LISTED}`];
  expect(joinPriced(notes)).toEqual([`g5.12xlarge, p5.48xlarge are priced at ${LISTED}`, "no scrape"]);
  expect(joinPriced(notes.slice(0, 1))).toEqual([`p5.48xlarge is priced at ${LISTED}`]);
  expect(joinPriced(["g5.xlarge is priced at 1", "g5.xlarge is priced at 2"])).toHaveLength(2);
});

test("notes of several hours name every instance type, and count each hour once", () => {
  const groups = noteGroups([
    hour(2, { notes: [`g5.12xlarge is priced at ${LISTED}`, `g6.12xlarge is priced at ${LISTED}`] }),
    hour(3, { notes: [`p5.48xlarge is priced at ${LISTED}`] }),
    hour(4, { notes: ["node g5-1 (g5.12xlarge) has no price", "node g5-1 (g6.12xlarge) has no price"] }),
  ]);
  expect(groups.map(({ note, hours }) => [note, hours])).toEqual([
    [`g5.12xlarge, g6.12xlarge, p5.48xlarge are priced at ${LISTED}`, 2],
    ["node g5-1 (g5.12xlarge) has no price", 1],
    ["node g5-1 (g6.12xlarge) has no price", 1],
  ]);
});

test("notes that differ in names only are one group with the names", () => {
  const unknown = (pod: string) => `tokens of pod ${pod} are unknown: its counters of vllm were not scraped`;
  const groups = noteGroups([
    hour(2, {
      notes: [unknown("chat/server-0"), unknown("chat/server-1"), "the number of GPUs of node 'a' is unknown"],
    }),
    hour(3, { notes: [unknown("search/server-0"), "the number of GPUs of node 'a' is unknown"] }),
    hour(4, { notes: ["node ip-10-0-0-1 has no price", "node ip-10-0-0-2 has no price"] }),
  ]);
  expect(groups.map(({ note, names, hours }) => [note, names, hours])).toEqual([
    [unknown("…"), ["chat/server-0", "chat/server-1", "search/server-0"], 2],
    ["the number of GPUs of node 'a' is unknown", [], 2],
    ["node … has no price", ["ip-10-0-0-1", "ip-10-0-0-2"], 1],
  ]);
});

test("every check that the page names is a question in plain words", () => {
  const sources = Object.values(
    import.meta.glob("../src/{unmeasured,health}.ts", { query: "?raw", import: "default", eager: true }),
  );
  const named = sources.flatMap((text) =>
    [...String(text).matchAll(/check: "([^"]+)"|(?:add|lacking)\("([^"]+)"/g)].map(
      ([, check, other]) => check ?? other ?? "",
    ),
  );
  expect(named.length).toBeGreaterThan(8);
  for (const check of named) expect(questionOf(check)).toMatch(/^[A-Z][^?]+\?( [A-Z][^?]+\?)?$/);
  expect(questionOf("a new check")).toBe("a new check");
});

test("each gap names the doctor's check, and complete hours need none", () => {
  const none = new Map([["west", { unmeasured_gpu_hours: 0, unpriced_gpu_hours: 0 }]]);
  expect(findingsOf([hour(1), hour(2, { coverage: { allocation: 1, utilization: null } })], none)).toEqual([]);
  const some = new Map([["west", { unmeasured_gpu_hours: 2, unpriced_gpu_hours: 1 }]]);
  const rows = [
    hour(1, { status: "missing", coverage: null }),
    hour(2, { coverage: { allocation: 0.5, utilization: 0 } }),
  ];
  expect(findingsOf(rows, some).map(({ check }) => check.split(",")[0])).toEqual([
    "Prometheus",
    "kube-state-metrics now",
    "GPU exporter now",
    "pods of devices",
    "kube_node_labels",
  ]);
});

test("hours without figures in a closed month are closed, not missing", () => {
  const rows = [
    hour(1, { status: "missing", coverage: null, closed: true }),
    hour(2, { status: "incomplete", closed: true }),
    hour(3, { status: "complete", closed: true }),
    hour(4, { status: "missing", coverage: null, closed: false }),
    hour(5, { status: "pending", coverage: null, closed: false }),
  ];
  expect(countsOf(rows, restatedOf([]))).toMatchObject({
    closed: 2,
    missing: 1,
    incomplete: 0,
    complete: 1,
    pending: 1,
  });
  expect(gapsOf(rows).map(({ status, start, end }) => [status, (end - start) / 3_600_000])).toEqual([
    ["closed", 2],
    ["missing", 1],
  ]);
  expect(lackingHours(rows).map(({ status }) => status)).toEqual(["closed", "closed", "missing", "being computed"]);
  expect(lackingHours(rows)[0]?.reason).toContain("its month is closed");
  const findings = findingsOf(rows, new Map()).map(({ finding }) => finding);
  expect(findings[0]).toBe(
    "2 hours have no figures in a closed month (2026-11). To complete it, run gpucost months reopen, then gpucost backfill.",
  );
  expect(findings[1]).toMatch(/^1 hour has no result\. /);
});

function nodeHour(node: string, at: string, held: number, fields: Partial<NodeRow> = {}): NodeRow {
  const holders = held > 0 ? [{ allocated_gpu_hours: held, gpu_share: 1, units: held }] : [];
  return {
    kind: "node",
    cluster: "west",
    node,
    hour: at,
    holders,
    node_cost_usd: 8,
    unallocated_usd: 8 - 2 * held,
    capacity_gpu_hours: 4,
    stranded_gpu_hours: 0,
    ...fields,
  } as NodeRow;
}

test("nodes to remove begin with the largest cost of hours without pods", () => {
  const rows = ["01", "02"].flatMap((at) => [
    nodeHour("full", at, 4),
    nodeHour("empty", at, 0),
    nodeHour("partly", at, 1),
    nodeHour("late", at, at === "01" ? 0 : 4),
  ]);
  const removals = removalsOf([...rows, nodeHour("gone", "01", 0), nodeHour("unknown", "02", 0, { holders: null })]);
  expect(removals.map(({ node }) => node.node)).toEqual(["empty", "late", "partly", "full"]);
  expect(removals[0]).toMatchObject({ hours: 2, emptyHours: 2, heldShare: 0, lastHeld: null, unallocatedUsd: 16 });
  expect(removals[0]?.monthlyUsd).toBe(8 * 730);
  expect(removals[1]).toMatchObject({ emptyHours: 1, lastHeld: "02", heldShare: 0.5 });
  expect(removalsOf([nodeHour("a", "01", 0, { node_cost_usd: null })])[0]?.monthlyUsd).toBeNull();
  const large = ["01", "02"].map((at) => nodeHour("large", at, at === "01" ? 0 : 4, { node_cost_usd: 55 }));
  const [first, second] = removalsOf([...rows, ...large]);
  expect([first?.node.node, first?.emptyMonthlyUsd]).toEqual(["empty", 8 * 730]);
  expect([second?.node.node, second?.emptyMonthlyUsd]).toEqual(["large", (55 / 2) * 730]);
});

test("a node without any pod is removed, and the pool of a larger node with pods scales down", () => {
  const hours = Array.from({ length: 8 }, (_, hour) => `0${hour}`);
  const rows = hours.flatMap((at, hour) => [
    nodeHour("empty", at, 0, { node_pool: "small" }),
    nodeHour("large", at, hour < 3 ? 0 : 4, { node_pool: "big", node_cost_usd: 55 }),
    nodeHour("busy", at, 4, { node_pool: "big" }),
    ...(hour === 7 ? [nodeHour("starting", at, 0, { node_pool: "new" })] : []),
  ]);
  const { now, pools } = removalGroups(removalsOf(rows));
  expect(now.map(({ node, monthlyUsd }) => [node.node, monthlyUsd])).toEqual([["empty", 8 * 730]]);
  expect(pools).toMatchObject([{ cluster: "west", name: "big", emptyMonthlyUsd: ((3 * 55) / 8) * 730 }]);
  expect(pools[0]?.nodes).toHaveLength(1);
});

test("a node has its cost and that of its hours without pods in the period", () => {
  const rows = ["01", "02"].flatMap((at) => [
    nodeHour("full", at, 4),
    nodeHour("empty", at, 0),
    nodeHour("late", at, at === "01" ? 0 : 4),
  ]);
  const amounts = removalsOf(rows).map(({ node, costUsd, emptyUsd }) => [node.node, costUsd, emptyUsd]);
  expect(amounts).toEqual([
    ["empty", 16, 16],
    ["late", 16, 8],
    ["full", 16, 0],
  ]);
});

test("a pool of reserved nodes is not scaled down, because its commitment is charged all the same", () => {
  const rows = ["01", "02"].flatMap((at) => [
    nodeHour("bought", at, at === "01" ? 0 : 4, { node_pool: "bought", capacity_type: "reserved" }),
    nodeHour("rented", at, at === "01" ? 0 : 4, { node_pool: "rented", capacity_type: "on-demand" }),
  ]);
  const { pools, reserved } = removalGroups(removalsOf(rows));
  expect(pools.map(({ name }) => name)).toEqual(["rented"]);
  expect(reserved.map(({ name, emptyUsd }) => [name, emptyUsd])).toEqual([["bought", 8]]);
});

test("a pool has one plan, and what contradicts it is an alternative or nothing", () => {
  const about = (id: string, fields: Partial<Recommendation>) =>
    recommendation({
      id,
      title: `title of ${id}`,
      subject: { cluster: "west", node_pool: "a", workload: null } as Recommendation["subject"],
      alternative_to: null,
      ...fields,
    });
  const fewer = about("fewer", { offer: "plan" });
  const more = about("more", { offer: "alternative", alternative_to: "fewer" });
  const costly = about("costly", { offer: "alternative" });
  const waiting = about("waiting", { offer: "cost" });
  const rows = [fewer, more, costly, waiting, about("old", { offer: "alternative", state: "dismissed" })];
  const pool = { cluster: "west", node_pool: "a" };
  const ids = (found: readonly Recommendation[]) => found.map(({ id }) => id);
  expect(ids(alternativesFor(rows, pool))).toEqual(["more", "costly"]);
  expect(ids(additionsFor(rows, pool))).toEqual(["waiting"]);
  expect(ids(alternativesFor(rows, { ...pool, node_pool: "b" }))).toEqual([]);
  expect(alternativeText(more, rows)).toBe("instead of: title of fewer");
  expect(alternativeText(costly, rows)).toBe("not on offer: it costs more than the waiting");
});

test("a saving says from how many days it is computed", () => {
  const from = (first_hour: string) =>
    basisOf({ evidence: { first_hour, last_hour: "2026-11-29T21:00:00Z" } as Recommendation["evidence"] });
  expect(from("2026-10-30T22:00:00Z")).toBe("30 days");
  expect(from("2026-11-28T22:00:00Z")).toBe("24 hours");
});

test("the next step of a node names the commands that fit", () => {
  const node = (held: number, hours = 6) =>
    Array.from({ length: hours }, (_, at) =>
      nodeHour("n1", `0${at}`, held, { provider_id: "aws:///us-east-1b/i-0a1" }),
    );
  const commands = (rows: NodeRow[]) =>
    removalsOf(rows).flatMap((removal) => stepsFor(removal).map(({ command }) => command ?? ""));
  expect(commands(node(0))).toEqual([
    "kubectl cordon n1",
    "kubectl drain n1 --ignore-daemonsets --delete-emptydir-data",
    "kubectl delete node n1",
    "aws autoscaling terminate-instance-in-auto-scaling-group --instance-id i-0a1 --should-decrement-desired-capacity",
  ]);
  expect(commands(node(4))).toEqual([]);
  expect(commands(node(0, 5))).toEqual([]); // it may be starting for a pod that waits
  const late = [nodeHour("n1", "01", 0, { node_pool: "a b" }), nodeHour("n1", "02", 4, { node_pool: "a b" })];
  expect(commands(late)[0]).toBe("kubectl get nodepool 'a b' -o jsonpath='{.spec.disruption}'");
});

test("the reason of a stranded GPU follows from what the node offered", () => {
  expect(strandedReason(nodeHour("a", "01", 0, { stranded_gpu_hours: 4 }))).toContain("offered no GPUs");
  expect(strandedReason(nodeHour("a", "01", 2, { stranded_gpu_hours: 1 }))).toContain("unhealthy");
  const slice = { gpu_share: 2 / 7, allocated_gpu_hours: 2 / 7, units: 1 } as NonNullable<NodeRow["holders"]>[number];
  expect(strandedReason(nodeHour("a", "01", 0, { holders: [slice], stranded_gpu_hours: 1 / 7 }))).toContain("geometry");
  expect(freeReason(nodeHour("a", "01", 0))).toContain("can be removed");
  expect(freeReason(nodeHour("a", "01", 1))).not.toContain("can be removed");
});

test("GPU-hours of a node's pods without a measurement are counted", () => {
  const pod = { allocated_gpu_hours: 2, unmeasured_gpu_hours: 1.5 } as NonNullable<NodeRow["holders"]>[number];
  const rows = [nodeHour("a", "01", 0, { holders: [pod] }), nodeHour("a", "02", 0, { holders: [pod, pod] })];
  expect(heldGpuHours(rows)).toEqual({ allocated_gpu_hours: 6, unmeasured_gpu_hours: 4.5 });
  expect(heldGpuHours([...rows, nodeHour("a", "03", 0, { holders: null })]).unmeasured_gpu_hours).toBeNull();
});

test("long names lose their middle, and short room shows none", () => {
  const within = (most: number) => (text: string) => text.length <= most;
  expect(shortened("train-22", within(8))).toBe("train-22");
  expect(shortened("research-training-7f9c-x2k4p", within(11))).toBe("resea…x2k4p");
  expect(shortened("research-training-7f9c-x2k4p", within(5))).toBeNull();
  expect(shortened("research-training-7f9c-x2k4p", within(0))).toBeNull();
});

test("formulas name the parts with their amounts", () => {
  const row = { allocated_usd: 10, effective_usd: 4, unmeasured_usd: 1, waste_usd: 5, node_cost_usd: 12, host_usd: 2 };
  expect(formulaOf("waste_usd", row, "USD")).toBe(
    "allocated cost $10.00 − effective cost $4.00 − unmeasured cost $1.00 = waste $5.00",
  );
  expect(formulaOf("node_cost_usd", row, "USD")).toBe(
    "effective cost $4.00 + waste $5.00 + unmeasured cost $1.00 + host cost $2.00 = node cost $12.00",
  );
});

test("formulas say that the waste of an unmeasured cost is unknown", () => {
  const hours = { allocated_gpu_hours: 5, unmeasured_gpu_hours: 5 };
  const row = { ...hours, allocated_usd: 10, effective_usd: 0, unmeasured_usd: 10, waste_usd: 0 };
  expect(formulaOf("waste_usd", row, "USD")).toBe("waste –: utilization was not measured. Unmeasured cost $10.00.");
  expect(formulaOf("allocated_usd", row, "USD")).toBe(
    "effective cost – + waste – + unmeasured cost $10.00 = allocated cost $10.00",
  );
  const line = { ...row, currency: "USD", gpu_hourly_usd: 2, effective_gpu_hours: null };
  expect(answerOf("effective_usd", line)).toContain("effective cost –: utilization was not measured");
});

test("a pod's dialog answers the figure that was selected", () => {
  const line = {
    currency: "USD",
    gpu_hourly_usd: 2.60747,
    allocated_gpu_hours: 1,
    effective_gpu_hours: 0.23,
    unmeasured_gpu_hours: 0.667,
    allocated_usd: 2.60747,
    effective_usd: 0.6,
    waste_usd: 0.27,
    unmeasured_usd: 1.739182,
  };
  expect(answerOf("unmeasured_usd", line)).toBe(
    "Without a measurement: 0.667 GPU-hours × $2.60747 = unmeasured cost $1.739182",
  );
  expect(answerOf("allocated_usd", line)).toContain("= allocated cost $2.60747");
  expect(answerOf("waste_usd", line)).toBe(formulaOf("waste_usd", line, "USD"));
});

test("the rows that are not shown are added up", () => {
  const rows = [3, 1, null, 4, 0].map((usd) => ({ waste_usd: usd }));
  expect(largest(rows, "waste_usd", 1)).toEqual({ shown: [{ waste_usd: 4 }], others: 2, rest: 4 });
});

test("prices are grouped by source, split and amount", () => {
  const line = { price_source: "cur", split_policy: "vcpu", gpu_hourly_usd: 3, allocated_gpu_hours: 2 };
  expect(pricesOf([line, { ...line, gpu_hourly_usd: null, allocated_gpu_hours: 9 }, line])).toEqual([
    { source: "cur", split: "vcpu", amount: null, rows: 1, gpuHours: 9 },
    { source: "cur", split: "vcpu", amount: 3, rows: 2, gpuHours: 4 },
  ]);
});

test("queries name the pod and escape its names", () => {
  const queries = queriesOf({ namespace: 'a"b', pod: "p-0", resource: "nvidia.com/mig-1g.10gb" });
  expect(queries[0]?.query).toBe(
    'kube_pod_container_resource_requests{namespace="a\\"b", pod="p-0", resource="nvidia_com_mig_1g_10gb"}',
  );
  expect(queries[1]?.query).toContain('exported_pod="p-0"');
});

test("the waste of a month counts only hours with figures", () => {
  const rows = ["complete", "provisional", "missing"].map((status) => hour(1, { status: status as HourRow["status"] }));
  expect(hoursByCluster(rows)?.get("west")).toBe(2);
  expect(monthlyWaste(4, 2)).toBe(1460);
  expect(monthlyWaste(4, 0)).toBeNull();
  expect(monthlyWaste(null, 2)).toBeNull();
});

function pod(name: string, fields: Partial<Line> = {}): Line {
  return {
    cluster: "west",
    hour: "2026-11-20T01:00:00Z",
    pod: name,
    node: "n1",
    resource: "nvidia.com/gpu",
    units: 1,
    gpu_share: 1,
    shared_from: "",
    allocated_gpu_hours: 1,
    unmeasured_gpu_hours: 1,
    unmeasured_usd: 2,
    ...fields,
  } as Line;
}

test("each unmeasured pod has the cause that the other pods and the coverage show", () => {
  const measured = pod("measured", { unmeasured_gpu_hours: 0 });
  const checks = (lines: Line[], utilization = 1) =>
    causesOf(lines, [hour(1, { coverage: { allocation: 1, utilization } })]).map(({ check }) => check);
  expect(checks([pod("a")])).toEqual(["exporter on every node"]);
  expect(checks([pod("a"), measured])).toEqual(["pods of devices"]);
  expect(checks([pod("a", { resource: "nvidia.com/mig-1g.10gb" }), measured])).toEqual(["signal under MIG"]);
  expect(checks([pod("a", { unmeasured_gpu_hours: 0.3 })])).toEqual(["scrape interval"]);
  expect(checks([pod("a", { unmeasured_gpu_hours: 0.3 })], 0.7)).toEqual(["GPU exporter now"]);
  expect(checks([pod("a")], 0.7)).toEqual(["exporter on every node"]);
  expect(checks([measured])).toEqual([]);
});

test("causes add up, the largest first, and an unknown price makes an amount unknown", () => {
  const lines = [pod("a"), pod("b", { node: "n2" }), pod("c", { node: "n2", unmeasured_usd: null })];
  const [measured, mig] = [pod("d", { unmeasured_gpu_hours: 0 }), pod("e", { resource: "nvidia.com/mig-1g.10gb" })];
  const causes = causesOf([mig, ...lines, measured], []);
  expect(causes.map(({ check, gpuHours, usd }) => [check, gpuHours, usd])).toEqual([
    ["exporter on every node", 2, null],
    ["signal under MIG", 1, 2],
    ["pods of devices", 1, 2],
  ]);
});

test("an exporter that was silent on one node is one cause with its node and minutes", () => {
  const slice = { gpu_share: 2 / 7, resource: "nvidia.com/mig-2g.10gb", allocated_gpu_hours: 2 / 7 };
  const silent = [
    pod("a", { unmeasured_gpu_hours: 2 / 3, unmeasured_usd: 4 }),
    pod("b", { ...slice, unmeasured_gpu_hours: (2 / 7) * (2 / 3), unmeasured_usd: 1 }),
    // Ended before the gap did, and began within it.
    pod("c", { allocated_gpu_hours: 0.5, unmeasured_gpu_hours: 0.5, unmeasured_usd: 1 }),
  ];
  const lines = [...silent, pod("elsewhere", { node: "n2", unmeasured_gpu_hours: 0, unmeasured_usd: 0 })];
  const rows = [hour(1, { coverage: { allocation: 1, utilization: 0.643 } })];
  const [cause, ...others] = causesOf(lines, rows);
  expect(others).toEqual([]);
  expect(cause).toMatchObject({ nodes: ["n1"], usd: 6, check: "exporter on every node", hour: rows[0]?.hour });
  expect(cause?.cause).toBe("The GPU exporter gave no samples for 40 of 60 minutes");
  // With a filter, the other pods of the hour still show the same cause.
  expect(causesOf([lines[1] as Line], rows, lines)[0]?.cause).toBe(cause?.cause);
  // Data health has the same answer, and no second one from the hour's coverage.
  const unmeasured = new Map([["west", { unmeasured_gpu_hours: 2, unpriced_gpu_hours: 0 }]]);
  const findings = findingsOf(rows, unmeasured, lines);
  expect(findings).toMatchObject([{ check: cause?.check, hour: cause?.hour, cause: { nodes: ["n1"], usd: 6 } }]);
});

test("a cause has what its workloads lack in the period, and a gap what its hour lacks", () => {
  const gap = { node: "n2", unmeasured_gpu_hours: 0.5, unmeasured_usd: 1 };
  const lines = [
    pod("a", { workload: "train" }),
    pod("b", { workload: "train", ...gap }),
    pod("c", { workload: "chat", ...gap }),
  ];
  const causes = causesOf(lines, [hour(1, { coverage: { allocation: 1, utilization: 0.5 } })]);
  expect(causes.map(({ isOfHour }) => isOfHour)).toEqual([false, true]);
  const row = (workload: string, unmeasured_usd: number | null) =>
    ({ group: { cluster: "west", workload }, unmeasured_usd, unmeasured_gpu_hours: 40 }) as unknown as CostRow;
  const figures = (...rows: CostRow[]) => causes.map((cause) => inPeriod(cause, causes, rows));
  const amounts = (...rows: CostRow[]) => figures(...rows).map(({ usd }) => usd);
  const gpuHours = (...rows: CostRow[]) => figures(...rows).map((figure) => figure.gpuHours);
  expect(gpuHours(row("train", 300), row("chat", 50))).toEqual([39.5, 1]);
  expect(gpuHours(row("chat", 50))).toEqual([1, 1]);
  expect(amounts(row("train", 300), row("chat", 50))).toEqual([299, 2]);
  expect(amounts(row("chat", 50))).toEqual([2, 2]); // not among the largest workloads
  expect(amounts(row("train", null))).toEqual([null, 2]);
});

test("nodes with the same cause are one cause", () => {
  const lines = [pod("a"), pod("b", { node: "n2" }), pod("c", { node: "n3", unmeasured_gpu_hours: 0 })];
  const rows = [hour(1, { coverage: { allocation: 1, utilization: 0.33 } })];
  expect(causesOf(lines, rows)).toMatchObject([{ nodes: ["n1", "n2"], gpuHours: 2, check: "exporter on every node" }]);
});

test("a few missing scrapes are no finding", () => {
  const none = new Map([["west", { unmeasured_gpu_hours: 0, unpriced_gpu_hours: 0 }]]);
  expect(findingsOf([hour(1, { coverage: { allocation: 1, utilization: 0.994 } })], none)).toEqual([]);
  const [finding] = findingsOf([hour(1, { coverage: { allocation: 0, utilization: 1 } })], none);
  expect(finding).toMatchObject({ finding: "All samples of kube-state-metrics are missing.", hour: hour(1).hour });
});

test("the hour with most unmeasured GPU-hours and the newest are looked at, per cluster", () => {
  const row = (cluster: string, start: string, gpuHours: number) => ({
    start,
    group: { cluster },
    unmeasured_gpu_hours: gpuHours,
  });
  const rows = [row("west", "01", 5), row("west", "02", 1), row("west", "03", 0), row("east", "01", 2)];
  expect(hoursToCheck(rows)).toEqual([
    { cluster: "west", start: "01" },
    { cluster: "west", start: "02" },
    { cluster: "east", start: "01" },
  ]);
});

test("Data health names the causes of its hours as the hour view does", () => {
  const rows = [hour(1, { coverage: { allocation: 1, utilization: 1 } })];
  const unmeasured = new Map([["west", { unmeasured_gpu_hours: 2, unpriced_gpu_hours: 0 }]]);
  const named = findingsOf(rows, unmeasured, [pod("a"), pod("elsewhere", { cluster: "east" })]);
  expect(named.map(({ cause }) => cause)).toEqual(causesOf([pod("a")], rows));
  const [unknown] = findingsOf(rows, unmeasured, [pod("a", { unmeasured_gpu_hours: 0 })]);
  expect(unknown?.check).toBe("pods of devices");
});

test("hours of a pod are one row with their sums", () => {
  const line = (uid: string, at: string, usd: number | null) =>
    ({
      cluster: "west",
      uid,
      resource: "gpu",
      business_unit: "a",
      shared_from: "",
      hour: at,
      allocated_gpu_hours: 1,
      effective_gpu_hours: 0.5,
      unmeasured_gpu_hours: 0,
      allocated_usd: usd,
      waste_usd: 1,
      effective_usd: 1,
      unmeasured_usd: 0,
    }) as Line;
  const pods = podsOf([line("x", "01", 2), line("y", "01", null), line("x", "02", 3), line("y", "02", 4)]);
  expect(
    pods.map(({ uid, hour, hours, allocated_usd, waste_usd }) => [uid, hour, hours.length, allocated_usd, waste_usd]),
  ).toEqual([
    ["x", "02", 2, 5, 2],
    ["y", "02", 2, null, 2],
  ]);
  const unmeasured = { unmeasured_gpu_hours: 1, unmeasured_usd: 2, waste_usd: null, effective_usd: null };
  const [pod] = podsOf([line("x", "01", 2), { ...line("x", "02", 2), ...unmeasured }]);
  expect(pod).toMatchObject({ allocated_usd: 4, waste_usd: 1, effective_usd: 1, unmeasured_usd: 2 });
});

test("only notes on the prices of the listed instance types are shown", () => {
  const notes = ["g5.xlarge is priced at 1", "p5.48xlarge is priced at 2", "node n1 was not scraped"];
  expect(notesOn(notes, new Set(["g5.xlarge"]))).toEqual([notes[0], notes[2]]);
});

test("a sum of rounded amounts says so", () => {
  const rounded = {
    allocated_usd: 1925.3584694,
    effective_usd: 1137.3662052,
    unmeasured_usd: 0,
    waste_usd: 787.9922642,
  };
  expect(isRounded("waste_usd", rounded)).toBe(true);
  expect(isRounded("effective_usd", rounded)).toBe(false);
  expect(isRounded("waste_usd", { allocated_usd: 3.5, effective_usd: 1.25, unmeasured_usd: 0, waste_usd: 2.25 })).toBe(
    false,
  );
  expect(
    isRounded("waste_usd", { allocated_usd: 1925.358469, effective_usd: 1137.366205, waste_usd: 787.992264 }),
  ).toBe(false);
});

test("a pod without a measurement did not run only if all of its cost is waste", () => {
  expect(didNotRun({ utilization_source: "none", unmeasured_gpu_hours: 0 })).toBe(true);
  expect(didNotRun({ utilization_source: "none", unmeasured_gpu_hours: 0.5 })).toBe(false);
  expect(didNotRun({ utilization_source: "pod", unmeasured_gpu_hours: 0 })).toBe(false);
});
