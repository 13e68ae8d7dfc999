// Recommendations by state: selection, sums and the commands that change them.

import type { Recommendation, RecommendationsResponse } from "./api";
import { counted, DAY, HOUR } from "./format";
import { KINDS } from "./recommendation-kinds";

export type State = Recommendation["state"];

/** How a recommendation becomes applied and verified. */
export const DETECTED =
  "You do not report changes: the nightly review detects in the figures when a change is applied, and measures what it saves a week later.";

export const STATES: readonly { state: State; name: string; meaning: string }[] = [
  { state: "open", name: "Open", meaning: "The newest figures support the recommendation." },
  { state: "applied", name: "Applied", meaning: "A review detected the change in the figures." },
  { state: "verified", name: "Verified", meaning: "A review measured the saving a week after the change." },
  { state: "dismissed", name: "Dismissed", meaning: "A person dismissed it. It stays dismissed until it is reopened." },
  { state: "withdrawn", name: "Withdrawn", meaning: "Newer figures no longer support it." },
];

/** Hours with figures that a recommendation needs: a week, as in the API's findings. */
export const HOURS_NEEDED = 168;

/** Hours with figures of the newest reviews; of several clusters, the largest number. 0 without a review. */
export function hoursReviewed({ reviews }: Pick<RecommendationsResponse, "reviews">): number {
  return Math.max(0, ...reviews.map((review) => review.hours_known));
}

/** The reviews that had too few hours for recommendations, while others had enough: totals leave their clusters out. */
export function reviewsWithoutEnough({ reviews }: Pick<RecommendationsResponse, "reviews">) {
  const lacking = reviews.filter((review) => review.hours_known < HOURS_NEEDED);
  return lacking.length < reviews.length ? lacking : [];
}

/** The time of day of reviews, in milliseconds: 04:10 UTC. */
const REVIEWED = (4 * 60 + 10) * 60_000;

/** The first review after a time, in milliseconds. */
export function nextReview(after: number): number {
  return (Math.floor((after - REVIEWED) / DAY) + 1) * DAY + REVIEWED;
}

/** The first review that can have a week of hours, if no more of them are missing. */
export function firstReview(response: Pick<RecommendationsResponse, "reviews">, reviewed: string): number {
  return nextReview(Date.parse(reviewed) + (HOURS_NEEDED - hoursReviewed(response)) * HOUR);
}

/** The recommendations of the total on offer: the plan, without savings that another one includes. */
export function onOffer<Row extends Pick<Recommendation, "offer" | "part_of">>(rows: readonly Row[]): Row[] {
  return rows.filter(({ offer, part_of }) => offer === "plan" && part_of === null);
}

/** Whether a saving is valued at price lists, which know no discounts, and not at what a bill charged. */
export function isAtListPrices({ saving }: Pick<Recommendation, "saving">): boolean {
  return saving.list_usd !== null && Math.abs(saving.list_usd - saving.usd) < 0.005;
}

/** The part of what is on offer that reduces the AWS bill, null if that is not known of any; how much of it is at list
 * prices; and the part of which it is not known. Rows of several currencies do not add up: the API's total is null then. */
export function cashOnOffer(rows: readonly Recommendation[]) {
  const offered = onOffer(rows);
  const sum = (some: readonly Recommendation[]) => some.reduce((usd, { saving }) => usd + (saving.cash_usd ?? 0), 0);
  const unknown = offered.filter(({ saving }) => saving.cash_usd === null);
  return {
    cash: unknown.length === offered.length && offered.length > 0 ? null : sum(offered),
    atListPrices: sum(offered.filter(isAtListPrices)),
    unknown: unknown.reduce((usd, { saving }) => usd + saving.usd, 0),
  };
}

/** Whether the cash savings on offer are valued at list prices: all, some or none. */
export function listPricesOf({ cash, atListPrices }: ReturnType<typeof cashOnOffer>): "all" | "some" | "none" {
  if (atListPrices < 0.005) return "none";
  return (cash ?? 0) - atListPrices < 0.005 ? "all" : "some";
}

export type Section = "savings" | "commitments" | "costs" | "included" | "alternatives";

type Counted = Pick<Recommendation, "kind" | "part_of" | "saving" | "offer">;

/** How a recommendation counts: only savings add up to what is on offer. */
export function sectionOf({ kind, part_of, saving, offer }: Counted): Section {
  if (offer === "alternative") return "alternatives";
  if (part_of !== null) return "included";
  if (kind === "commitment") return "commitments";
  return saving.usd > 0 ? "savings" : "costs";
}

/** How the recommendations add up, for example "22 savings + 2 commitments + 2 that add GPUs". */
export function countsText(rows: readonly Counted[]): string {
  const names: Record<Section, [string, string]> = {
    savings: ["saving", "savings"],
    commitments: ["commitment", "commitments"],
    costs: ["that adds GPUs", "that add GPUs"],
    included: ["included in another", "included in others"],
    alternatives: ["alternative", "alternatives"],
  };
  return (Object.keys(names) as Section[])
    .map((section) => [rows.filter((row) => sectionOf(row) === section).length, names[section]] as const)
    .filter(([count]) => count > 0)
    .map(([count, [one, many]]) => `${count} ${count === 1 ? one : many}`)
    .join(" + ");
}

/** Open recommendations that differ only in the name of their workload and in numbers, largest saving first.
 *
 * Others stay single: each has its own history. */
export function grouped<Row extends Pick<Recommendation, "id" | "kind" | "state" | "summary" | "subject" | "saving">>(
  rows: readonly Row[],
): Row[][] {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const { workload, namespace, business_unit } = row.subject;
    const name = `${namespace ?? ""}/${workload ?? ""}`;
    const pattern = workload === null ? row.summary : row.summary.replace(name, "…").replace(/[\d.]+/g, "#");
    const key = row.state === "open" ? [row.kind, business_unit, namespace, pattern].join("\n") : row.id;
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  const sum = (group: readonly Row[]) => group.reduce((usd, { saving }) => usd + saving.usd, 0);
  return [...groups.values()].sort((left, right) => sum(right) - sum(left));
}

const LEVELS: readonly string[] = ["low", "medium", "high"];

/** The confidence or risk of several recommendations: a single level, or the range, for example "low to medium". */
export function levelRange(levels: readonly string[]): string {
  const present = LEVELS.filter((level) => levels.includes(level));
  return [...new Set([present[0], present.at(-1)])].join(" to ");
}

/** What a finding means, before its reason. */
const FINDINGS: Readonly<Record<RecommendationsResponse["findings"][number]["finding"], string>> = {
  idle: "idle workload",
  low: "little used",
  bursty: "used in bursts",
  healthy: "",
  busy: "busy",
  saturated: "at its limit",
  unknown: "", // the reason says what is missing
};

export interface Selection {
  kind?: string | undefined;
  unit?: string | undefined;
}

/** Recommendations of a kind and a business unit, in every state. */
export function selected(rows: readonly Recommendation[], { kind, unit }: Selection): Recommendation[] {
  return rows.filter(
    (row) => (!kind || row.kind === kind) && (unit === undefined || (row.subject.business_unit ?? "") === unit),
  );
}

/** Sum of the measured savings; null if none was measured or the currencies differ.
 *
 * Rows that another row already counts are left out, as in the API's totals. */
export function verifiedTotal(rows: readonly Recommendation[]): number | null {
  const counted = rows.filter((row) => row.state === "verified" && row.verified_usd !== null && row.part_of === null);
  if (counted.length === 0 || new Set(counted.map((row) => row.currency)).size > 1) return null;
  return counted.reduce((sum, row) => sum + (row.verified_usd ?? 0), 0);
}

/** What a person can do next, with the exact command. */
export function commandsOf(row: Pick<Recommendation, "id" | "state" | "patch">): { title: string; command: string }[] {
  const command = (verb: string, options = "") => `gpucost recommendations ${verb} ${row.id} --stack NAME${options}`;
  const show = { title: "Print the manifest", command: command("show", " --patch") };
  const dismiss = { title: "Dismiss it", command: command("dismiss", ' --reason "…"') };
  const reopen = { title: "Reopen it", command: command("reopen") };
  return [
    ...(row.patch === null || row.state !== "open" ? [] : [show]),
    ...(row.state === "open" ? [dismiss] : []),
    ...(row.state === "dismissed" ? [reopen] : []),
  ];
}

function isAbout(subject: Recommendation["subject"], part: Partial<Recommendation["subject"]>): boolean {
  return Object.entries(part).every(([key, value]) => subject[key as keyof typeof part] === value);
}

/** Why a workload has no open recommendation: a person dismissed it, or the newest review's finding, in words. Null if
 * it was not reviewed.
 *
 * A workload without a recommendation can waste much: it may use its GPUs fully for some hours of the day. */
export function findingFor(
  { findings, rows }: Pick<RecommendationsResponse, "findings" | "rows">,
  subject: Partial<Recommendation["subject"]>,
): string | null {
  const dismissed = rows.find((row) => row.state === "dismissed" && isAbout(row.subject, subject));
  if (dismissed !== undefined)
    return `${KINDS[dismissed.kind]}: dismissed by ${dismissed.author ?? "an unknown person"}, ${dismissed.reason ?? "without a reason"}`;
  const found = findings.find((finding) => isAbout(finding.subject, subject));
  if (found === undefined) return null;
  const reason = [FINDINGS[found.finding], found.reason].filter(Boolean).join(", ");
  return `${found.finding === "unknown" ? "Too little is known" : "No safe change found"}: ${reason}`;
}

/** The finding that several workloads share, to be shown once; null if they differ. */
export function commonFinding(findings: readonly (string | null)[]): string | null {
  const [first = null] = findings;
  return findings.length > 1 && findings.every((finding) => finding === first) ? first : null;
}

/** The open recommendation of a workload or node pool with the largest saving, if it is offered. */
export function openFor(
  rows: readonly Recommendation[],
  subject: Partial<Recommendation["subject"]>,
): Recommendation | undefined {
  const fits = rows.filter(
    (row) => row.state === "open" && row.offer !== "alternative" && isAbout(row.subject, subject),
  );
  return fits.sort((left, right) => right.saving.usd - left.saving.usd)[0];
}

interface PoolName {
  cluster: string;
  node_pool: string;
}

const isOfPool = ({ subject }: Pick<Recommendation, "subject">, pool: PoolName) =>
  subject.workload === null && subject.cluster === pool.cluster && subject.node_pool === pool.node_pool;

/** The savings on offer that change the nodes of a pool. Each has its amount everywhere on the page. */
export function plannedFor(rows: readonly Recommendation[], pool: PoolName) {
  return onOffer(rows).filter((row) => isOfPool(row, pool));
}

/** Nodes for a pool's waiting pods that are on offer: fewer nodes would contradict them. */
export function additionsFor(rows: readonly Recommendation[], pool: PoolName) {
  return rows.filter((row) => row.offer === "cost" && isOfPool(row, pool));
}

/** What could be done with a pool instead. It is not on offer, and no total has it. */
export function alternativesFor(rows: readonly Recommendation[], pool: PoolName) {
  return rows.filter((row) => row.state === "open" && row.offer === "alternative" && isOfPool(row, pool));
}

/** Why an alternative is not on offer, with what it is an alternative to. */
export function alternativeText(row: Pick<Recommendation, "alternative_to">, rows: readonly Recommendation[]): string {
  if (row.alternative_to === null) return "not on offer: it costs more than the waiting";
  return `instead of: ${rows.find(({ id }) => id === row.alternative_to)?.title ?? row.alternative_to}`;
}

/** The time that amounts are computed from, which can be longer than the period of the view. */
export function basisOf({ evidence }: Pick<Recommendation, "evidence">): string {
  const hours = (Date.parse(evidence.last_hour) - Date.parse(evidence.first_hour)) / HOUR + 1;
  return hours < 48 ? counted(hours, "hour") : counted(Math.round(hours / 24), "day");
}

/** The open commitment that would cover a node on demand: of its instance type, or of its family (`g5.*`). Capacity that
 * is reserved already needs none. */
export function commitmentFor(
  rows: readonly Recommendation[],
  node: { cluster: string; instance_type: string; capacity_type: string },
): Recommendation | undefined {
  if (node.capacity_type !== "on-demand") return undefined;
  const covers = (type: string | null) =>
    type === node.instance_type || (type?.endsWith(".*") && node.instance_type.startsWith(type.slice(0, -1)));
  return rows.find(
    ({ kind, state, subject }) =>
      kind === "commitment" && state === "open" && subject.cluster === node.cluster && covers(subject.instance_type),
  );
}
