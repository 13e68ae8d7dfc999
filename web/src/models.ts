// Costs and tokens of models: what the views ask the API, and the bars of their charts.

import type { ModelRow } from "./api";
import { DIMENSIONS, type Filter, filtersOf } from "./explore";
import { type Figure, knownParts, money, percent, ratio } from "./format";
import { UNIT_COSTS } from "./identity";
import { align, type Buckets } from "./series";

/** The dimensions of models. */
export const MODEL_DIMENSIONS: Readonly<Record<string, string>> = {
  business_unit: DIMENSIONS["business_unit"] ?? "",
  cluster: DIMENSIONS["cluster"] ?? "",
  namespace: DIMENSIONS["namespace"] ?? "",
  workload: DIMENSIONS["workload"] ?? "",
  gpu_model: DIMENSIONS["gpu_model"] ?? "",
  server: "Inference server",
  model: "Model",
  consumer: "Consumer",
};

/** The API's parameters of filters. Pods without an inference server are left out. */
export function modelFiltersOf(filters: readonly Filter[]): Record<string, string> {
  return { server: "*", ...filtersOf(filters.filter(({ dimension }) => Object.hasOwn(MODEL_DIMENSIONS, dimension))) };
}

/** Prompt and generated tokens; null if they are unknown. */
export function tokensOf(row: Pick<ModelRow, "prompt_tokens" | "generated_tokens">): number | null {
  return row.prompt_tokens === null || row.generated_tokens === null ? null : row.prompt_tokens + row.generated_tokens;
}

/** Share of the cost whose tokens are known, 0 to 1. */
export function knownTokens(row: Pick<ModelRow, "allocated_usd" | "unknown_tokens_usd">): number {
  return 1 - (ratio(row.unknown_tokens_usd, row.allocated_usd) ?? 0);
}

/** A bar of a chart. */
export interface Bar {
  /** Figures by part; undefined if they are unknown. Empty where there is nothing to divide. */
  figures: Record<string, number | null> | undefined;
  /** Share of what the bar is about that is known, 0 to 1. */
  known: number;
  /** What a reader should know about it. */
  note?: string;
}

const NO_PRICE = "The GPUs have no price yet.";

/** What a million tokens cost: at full use, and what waiting adds; together as it was. */
export function unitCostBar(row: ModelRow, currency: string): Bar {
  const bar = tokenBar(row, currency);
  if (bar !== null) return bar;
  const { usd_per_million_tokens: asItWas, usd_per_million_tokens_at_full_use: atFullUse } = row;
  if (asItWas === null) return { figures: undefined, known: 0, note: NO_PRICE };
  const figures =
    atFullUse === null ? { unmeasured: asItWas } : { full_use: atFullUse, waiting: Math.max(0, asItWas - atFullUse) };
  return { figures, ...partlyKnown(row) };
}

/** The cost: serving, waiting and unmeasured. */
export function costBar(row: ModelRow): Bar {
  const { effective_usd, waste_usd, unmeasured_usd } = knownParts(row);
  if (row.allocated_usd === null) return { figures: undefined, known: 0, note: NO_PRICE };
  return { figures: { effective_usd, waste_usd, unmeasured_usd }, known: 1 };
}

/** Tokens per GPU-second. */
export function loadBar(row: ModelRow, currency: string): Bar {
  const bar = tokenBar(row, currency);
  if (bar?.known === 0) return bar;
  return { ...(bar ?? partlyKnown(row)), figures: { load: row.tokens_per_gpu_second } };
}

/** Prompt and generated tokens. */
export function tokensBar(row: ModelRow): Bar {
  const { prompt_tokens, generated_tokens } = row;
  if (tokensOf(row) === null) return { figures: undefined, known: 0, note: "Tokens are unknown." };
  return { figures: { prompt_tokens, generated_tokens }, ...partlyKnown(row) };
}

/** The bar of a row with unknown tokens or without tokens; null if there are tokens. */
function tokenBar(row: ModelRow, currency: string): Bar | null {
  const tokens = tokensOf(row);
  if (tokens === null) return { figures: undefined, known: 0, note: "Tokens are unknown." };
  if (tokens > 0) return null;
  return {
    figures: {},
    known: 1,
    note: `No tokens were processed. The GPUs cost ${money(row.allocated_usd, currency)}.`,
  };
}

function partlyKnown(row: ModelRow): Omit<Bar, "figures"> {
  const known = knownTokens(row);
  return known > 0.9995 ? { known } : { known, note: `Tokens of ${percent(1 - known)} of the cost are unknown.` };
}

export interface Bars {
  rows: (Record<string, number | null> | undefined)[];
  known: number[];
  notes: (string | undefined)[];
}

/** What the bars of a model or a consumer cannot have. */
export interface Unattributed {
  /** Costs by bucket that may be of the model or the consumer. */
  usd: readonly number[];
  /** A sentence about such a cost. */
  note: (amount: string) => string;
  /** Whether a bucket with other figures is less known because of such a cost. */
  isPart: boolean;
  /** Why hours with figures have no row. */
  absent: string;
}

/** What figures are about. */
export type Subject = "model" | "consumer";

export const UNATTRIBUTED: Readonly<Record<Subject, Omit<Unattributed, "usd">>> = {
  model: {
    note: (amount) => `Tokens of pods that cost ${amount} are unknown.`,
    isPart: true,
    absent: "No server of this model was seen.",
  },
  consumer: {
    note: (amount) => `Requests that cost ${amount} have no consumer's name.`,
    isPart: false,
    absent: "No requests of this consumer were counted.",
  },
};

/** The bars of a model or a consumer. */
export function barsOf(
  buckets: Buckets,
  rows: readonly ModelRow[],
  coverage: readonly number[],
  unattributed: Unattributed,
  currency: string,
  barOf: (row: ModelRow, currency: string) => Bar,
): Bars {
  const aligned = align(buckets, rows);
  const bars = aligned.map((row, index): Bar => {
    const unknown = unattributed.usd[index] ?? 0;
    const bar: Bar =
      row !== undefined
        ? barOf(row, currency)
        : (coverage[index] ?? 0) <= 0 || unknown > 0
          ? { figures: undefined, known: 1 }
          : { figures: {}, known: 1, note: unattributed.absent };
    if (unknown === 0) return bar;
    const note = unattributed.note(money(unknown, currency));
    const share = row !== undefined && !unattributed.isPart ? 1 : 1 - unknown / (unknown + (row?.allocated_usd ?? 0));
    return { ...bar, known: bar.known * share, note: bar.note === undefined ? note : `${bar.note} ${note}` };
  });
  return {
    rows: bars.map(({ figures }) => figures),
    known: bars.map(({ known }) => known),
    notes: bars.map(({ note }) => note),
  };
}

/** Rows of pods whose tokens are unknown, of workloads that served the model: which part was its is unknown. */
export function unknownRowsOf(unknown: readonly ModelRow[], workloads: readonly ModelRow[]): ModelRow[] {
  const keyOf = ({ group }: ModelRow) => [group["cluster"], group["namespace"], group["workload"]].join("\n");
  const served = new Set(workloads.map(keyOf));
  return unknown.filter((row) => served.has(keyOf(row)));
}

/** Rows of requests without a consumer's name, to models and workloads that the consumer used. Without requests, none. */
export function unnamedRowsOf(unnamed: readonly ModelRow[], used: readonly ModelRow[]): ModelRow[] {
  const models = new Set(used.map(({ group }) => group["model"]));
  return unknownRowsOf(unnamed, used).filter(
    (row) =>
      (row.group["model"] === null || models.has(row.group["model"])) &&
      (tokensOf(row) !== 0 || (row.requests ?? 0) > 0),
  );
}

/** The costs of rows by bucket. */
export function costsByBucket({ starts }: Buckets, rows: readonly ModelRow[]): number[] {
  return starts.map((start) =>
    rows.reduce((sum, row) => (Date.parse(row.start) === start ? sum + (row.allocated_usd ?? 0) : sum), 0),
  );
}

/** A row of the table of unit costs. */
export interface UnitCost {
  name: string;
  count: Figure;
  asItWas: Figure;
  atFullUse: Figure;
}

export function unitCostsOf(row: ModelRow): UnitCost[] {
  const cost = (name: string, count: Figure, asItWas: Figure, atFullUse: Figure): UnitCost => ({
    name,
    count,
    asItWas,
    atFullUse,
  });
  const uncached = row.prompt_tokens === null ? null : row.prompt_tokens - (row.cached_tokens ?? 0);
  return [
    cost(
      UNIT_COSTS.usd_per_million_tokens,
      tokensOf(row),
      row.usd_per_million_tokens,
      row.usd_per_million_tokens_at_full_use,
    ),
    cost(
      UNIT_COSTS.usd_per_million_prompt_tokens,
      uncached,
      row.usd_per_million_prompt_tokens,
      row.usd_per_million_prompt_tokens_at_full_use,
    ),
    cost(
      UNIT_COSTS.usd_per_million_cached_tokens,
      row.cached_tokens,
      row.usd_per_million_cached_tokens,
      row.usd_per_million_cached_tokens_at_full_use,
    ),
    cost(
      UNIT_COSTS.usd_per_million_generated_tokens,
      row.generated_tokens,
      row.usd_per_million_generated_tokens,
      row.usd_per_million_generated_tokens_at_full_use,
    ),
    cost(
      "Cost per 1,000 requests",
      row.requests,
      thousandfold(row.usd_per_request),
      thousandfold(row.usd_per_request_at_full_use),
    ),
  ];
}

const thousandfold = (figure: number | null) => (figure === null ? null : 1000 * figure);

/** What waiting adds to a unit cost; null if it is unknown. */
export function addedByWaiting({ asItWas, atFullUse }: Pick<UnitCost, "asItWas" | "atFullUse">): number | null {
  return asItWas == null || atFullUse == null ? null : asItWas - atFullUse;
}
