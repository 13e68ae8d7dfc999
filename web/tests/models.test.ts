import { expect, test } from "vitest";
import type { ModelRow } from "../src/api";
import { axisPrice, tokenCount, tokenRate, unitPrice } from "../src/format";
import {
  addedByWaiting,
  barsOf,
  costBar,
  costsByBucket,
  knownTokens,
  loadBar,
  modelFiltersOf,
  tokensBar,
  tokensOf,
  UNATTRIBUTED,
  unitCostBar,
  unitCostsOf,
  unknownRowsOf,
  unnamedRowsOf,
} from "../src/models";
import { bucketsOf } from "../src/series";
import { areMixed } from "../src/views/models";

/** The worked example of docs/explanation/inference.md. */
const CHAT = {
  start: "2026-11-19T10:00:00Z",
  allocated_usd: 3.6,
  effective_usd: 2.88,
  waste_usd: 0.72,
  unmeasured_usd: 0,
  unknown_tokens_usd: 0,
  prompt_tokens: 3_000_000,
  generated_tokens: 480_000,
  cached_tokens: 1_000_000,
  requests: 2400,
  usd_per_million_tokens: 1.03,
  usd_per_million_tokens_at_full_use: 0.83,
  usd_per_million_prompt_tokens: 0.8,
  usd_per_million_prompt_tokens_at_full_use: 0.64,
  usd_per_million_cached_tokens: 0.08,
  usd_per_million_cached_tokens_at_full_use: 0.064,
  usd_per_million_generated_tokens: 4,
  usd_per_million_generated_tokens_at_full_use: 3.2,
  usd_per_request: 0.0015,
  usd_per_request_at_full_use: 0.0012,
  tokens_per_gpu_second: 1000,
  group: { cluster: "west", namespace: "chat", workload: "llm" },
} as unknown as ModelRow;

function row(fields: Partial<ModelRow>): ModelRow {
  return { ...CHAT, ...fields };
}

const UNKNOWN = { prompt_tokens: null, generated_tokens: null, tokens_per_gpu_second: null };
const NOT_CALLED = row({
  prompt_tokens: 0,
  generated_tokens: 0,
  usd_per_million_tokens: null,
  usd_per_million_tokens_at_full_use: null,
  tokens_per_gpu_second: 0,
});

test("pods without an inference server are left out, and filters of other views", () => {
  const filter = (dimension: string, name: string, isExcluded = false) => ({ dimension, name, isExcluded });
  expect(modelFiltersOf([])).toEqual({ server: "*" });
  expect(modelFiltersOf([filter("model", "meta-llama/Llama"), filter("node", "n1")])).toEqual({
    server: "*",
    model: "meta-llama/Llama",
  });
  expect(modelFiltersOf([filter("server", "vllm"), filter("model", "a,b", true)])).toEqual({
    server: "vllm",
    model: "!a\\,b",
  });
});

test("a million tokens cost what they cost at full use, and what waiting adds", () => {
  const { figures, known, note } = unitCostBar(CHAT, "USD");
  expect(figures?.["full_use"]).toBe(0.83);
  expect(figures?.["waiting"]).toBeCloseTo(0.2);
  expect([known, note]).toEqual([1, undefined]);
  const unmeasured = unitCostBar(row({ usd_per_million_tokens_at_full_use: null }), "USD");
  expect(unmeasured.figures).toEqual({ unmeasured: 1.03 });
});

test("a cost without tokens is no price per token, and its load is zero", () => {
  expect(unitCostBar(NOT_CALLED, "USD")).toEqual({
    figures: {},
    known: 1,
    note: "No tokens were processed. The GPUs cost $3.60.",
  });
  expect(loadBar(NOT_CALLED, "USD").figures).toEqual({ load: 0 });
});

test("unknown tokens have neither price nor load", () => {
  const unknown = { figures: undefined, known: 0, note: "Tokens are unknown." };
  expect(tokensOf(row({ generated_tokens: null }))).toBeNull();
  expect(unitCostBar(row(UNKNOWN), "USD")).toEqual(unknown);
  expect(loadBar(row(UNKNOWN), "USD")).toEqual(unknown);
  expect(costBar(row(UNKNOWN)).figures).toEqual({ effective_usd: 2.88, waste_usd: 0.72, unmeasured_usd: 0 });
  const partly = unitCostBar(row({ unknown_tokens_usd: 0.9 }), "USD");
  expect(partly.known).toBe(0.75);
  expect(partly.note).toBe("Tokens of 25% of the cost are unknown.");
  expect(knownTokens(row({ allocated_usd: null, unknown_tokens_usd: null }))).toBe(1);
});

test("GPUs without a price have a load and no cost", () => {
  const unpriced = row({ allocated_usd: null, usd_per_million_tokens: null, unknown_tokens_usd: null });
  expect(unitCostBar(unpriced, "USD").figures).toBeUndefined();
  expect(costBar(unpriced)).toEqual({ figures: undefined, known: 0, note: "The GPUs have no price yet." });
  expect(loadBar(unpriced, "USD").figures).toEqual({ load: 1000 });
});

test("buckets without a row are missing, without a server, or unknown", () => {
  const buckets = bucketsOf("2026-11-19T10:00:00Z", "2026-11-19T14:00:00Z", "hour");
  const unknown = { ...UNATTRIBUTED.model, usd: [0, 0, 0, 4] };
  const { rows, known, notes } = barsOf(buckets, [CHAT], [1, 0, 1, 1], unknown, "USD", unitCostBar);
  expect(rows.map((figures) => figures && Object.keys(figures))).toEqual([
    ["full_use", "waiting"],
    undefined,
    [],
    undefined,
  ]);
  expect(notes).toEqual([
    undefined,
    undefined,
    "No server of this model was seen.",
    "Tokens of pods that cost $4.00 are unknown.",
  ]);
  expect(known).toEqual([1, 1, 1, 0]);
  const less = { ...unknown, usd: [1.2, 0, 0, 0] };
  const partly = barsOf(buckets, [CHAT], [1, 1, 1, 1], less, "USD", unitCostBar);
  expect(partly.known[0]).toBeCloseTo(0.75);
});

test("an hour with only unnamed requests is unknown for a consumer, and one with its own requests is known", () => {
  const buckets = bucketsOf("2026-11-19T10:00:00Z", "2026-11-19T13:00:00Z", "hour");
  const unnamed = { ...UNATTRIBUTED.consumer, usd: [1.2, 1.2, 0] };
  const { rows, known, notes } = barsOf(buckets, [CHAT], [1, 1, 1], unnamed, "USD", tokensBar);
  expect(rows).toEqual([{ prompt_tokens: 3_000_000, generated_tokens: 480_000 }, undefined, {}]);
  expect(known).toEqual([1, 0, 1]);
  const note = "Requests that cost $1.20 have no consumer's name.";
  expect(notes).toEqual([note, note, "No requests of this consumer were counted."]);
});

test("unnamed requests to what the consumer used are listed, and hours without requests are not", () => {
  const of = (model: string | null, cluster = "west") => ({ cluster, namespace: "chat", workload: "llm", model });
  const used = row({ group: of("chat") });
  const [otherCluster, otherModel] = [row({ group: of("chat", "east") }), row({ group: of("chat-sql") })];
  const requestsOnly = row({ ...UNKNOWN, requests: 7, group: of("chat") });
  const unknown = row({ ...UNKNOWN, requests: null, group: of(null) });
  const waiting = row({ prompt_tokens: 0, generated_tokens: 0, requests: 0, group: of("chat") });
  const rows = [used, otherCluster, otherModel, requestsOnly, unknown, waiting];
  expect(unnamedRowsOf(rows, [used])).toEqual([used, requestsOnly, unknown]);
});

test("only workloads that served the model have a part of its unknown tokens", () => {
  const other = row({ group: { cluster: "east", namespace: "chat", workload: "llm" } });
  const later = row({ start: "2026-11-19T11:00:00Z", allocated_usd: null });
  const rows = unknownRowsOf([CHAT, other, later], [CHAT]);
  expect(rows).toEqual([CHAT, later]);
  expect(costsByBucket(bucketsOf("2026-11-19T10:00:00Z", "2026-11-19T12:00:00Z", "hour"), rows)).toEqual([3.6, 0]);
});

test("unit costs are those of a million tokens and of a thousand requests", () => {
  const costs = unitCostsOf(CHAT);
  expect(costs.map(({ count }) => count)).toEqual([3_480_000, 2_000_000, 1_000_000, 480_000, 2400]);
  expect(costs.map(({ asItWas }) => asItWas)).toEqual([1.03, 0.8, 0.08, 4, 1.5]);
  expect(costs.map(({ atFullUse }) => atFullUse)).toEqual([0.83, 0.64, 0.064, 3.2, 1.2]);
  expect(addedByWaiting({ asItWas: 4, atFullUse: 3 })).toBe(1);
  expect(addedByWaiting({ asItWas: 4, atFullUse: null })).toBeNull();
  expect(unitCostsOf(row({ ...UNKNOWN, usd_per_request: null })).map(({ count }) => count)).toEqual([
    null,
    null,
    1_000_000,
    null,
    2400,
  ]);
});

test("small prices keep four decimals, and unknown figures are dashes", () => {
  expect([1.0345, 0.8, 12.345, 0, 0.00001, null].map((value) => unitPrice(value))).toEqual([
    "$1.0345",
    "$0.8000",
    "$12.35",
    "$0.00",
    "<$0.0001",
    "–",
  ]);
  expect([0.05, 4, 2500].map((value) => axisPrice(value))).toEqual(["$0.05", "$4", "$2.5k"]);
  expect([0, 9999, 38_115, 3_480_000, 1_234_567_890, null].map(tokenCount)).toEqual([
    "0",
    "9,999",
    "38.1K",
    "3.48M",
    "1.23B",
    "–",
  ]);
  expect([13.09, 12_345, undefined].map(tokenRate)).toEqual(["13.1", "12.3K", "–"]);
});

test("embeddings and models that generate tokens have no price in common", () => {
  const model = (prompt_tokens: number | null, generated_tokens: number | null) =>
    ({ prompt_tokens, generated_tokens }) as ModelRow;
  expect(areMixed([model(100, 20), model(5000, 0)])).toBe(true);
  expect(areMixed([model(100, 20), model(50, 7), model(null, null), model(0, 0)])).toBe(false);
  expect(areMixed([model(100, 0), model(50, 0)])).toBe(false);
});
