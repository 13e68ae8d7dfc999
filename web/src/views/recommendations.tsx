// Recommendations and their savings.

import { useContext, useState } from "preact/hooks";
import type { Recommendation, RecommendationsResponse } from "../api";
import { capitalized, gpuHours, HOUR, moment, percent, roundMoney, type Zone } from "../format";
import { NoticeContext, useZone } from "../hooks";
import { Empty, Help, Name, Table } from "../parts";
import { KINDS } from "../recommendation-kinds";
import {
  cashOnOffer,
  firstReview,
  HOURS_NEEDED,
  hoursReviewed,
  isAtListPrices,
  listPricesOf,
  nextReview,
  reviewsWithoutEnough,
} from "../savings";

const MOST = 5;

export function Recommendations({ response }: { response: RecommendationsResponse | null }) {
  const zone = useZone();
  const notice = useContext(NoticeContext);
  const rows = (response?.rows ?? []).filter(({ state, offer }) => state === "open" && offer !== "alternative");
  if (rows.length === 0) return <Empty>{noneText(response, zone, notice)}</Empty>;
  const inCash = rows.filter(({ saving }) => (saving.cash_usd ?? 0) > 0);
  const areAllAtListPrices = inCash.length > 0 && inCash.every(isAtListPrices);
  return (
    <Table
      name="recommendations"
      caption={`Recommendations by savings per month${areAllAtListPrices ? `. Cash savings are ${AT_LIST_PRICES}` : ""}`}
      sort="-usd"
      most={MOST}
      rows={rows}
      rowKey={(recommendation) => recommendation.id}
      columns={[
        {
          key: "summary",
          title: "Recommendation",
          cell: (recommendation) => <Summary recommendation={recommendation} />,
        },
        {
          key: "usd",
          title: "Savings per month",
          isFigure: true,
          cell: ({ saving, currency }) => (
            <>
              {saved(saving.usd, currency)}
              {saving.low_usd !== saving.high_usd && (
                <div class="note">{savedRange(saving.low_usd, saving.high_usd, currency)}</div>
              )}
            </>
          ),
          by: (recommendation) => recommendation.saving.usd,
        },
        {
          key: "cash",
          title: "Cash savings",
          isFigure: true,
          cell: (recommendation) => (
            <span title="Reduction of the AWS bill. Zero while a commitment applies">
              {recommendation.saving.cash_usd === null
                ? NOT_KNOWN
                : saved(recommendation.saving.cash_usd, recommendation.currency)}
              {!areAllAtListPrices && listPriceMark([recommendation])}
            </span>
          ),
          by: (recommendation) => recommendation.saving.cash_usd,
        },
        {
          key: "confidence",
          title: "Confidence",
          cell: (recommendation) => recommendation.confidence,
          by: (recommendation) => recommendation.confidence,
        },
        {
          key: "risk",
          title: "Risk",
          cell: (recommendation) => <span title={recommendation.risk_note}>{recommendation.risk}</span>,
          by: (recommendation) => recommendation.risk,
        },
        {
          key: "effort",
          title: "Effort",
          cell: (recommendation) => recommendation.effort,
          by: (recommendation) => recommendation.effort,
        },
        {
          key: "kind",
          title: "Kind",
          cell: (recommendation) => <span class="wrapped">{KINDS[recommendation.kind]}</span>,
          by: (recommendation) => KINDS[recommendation.kind],
        },
      ]}
    />
  );
}

/** Why there are no open recommendations. */
export function noneText(
  response: RecommendationsResponse | null,
  zone: Zone,
  notice: string | undefined,
  now = Date.now(),
): string {
  if (response === null) return "Your role may not see recommendations.";
  const reviewed = reviewedAt(response);
  const next = moment(nextReview(now), zone);
  if (reviewed === undefined) return `No recommendations yet. The next review runs ${next}. It needs a week of hours.`;
  const hours = hoursReviewed(response);
  if (hours < HOURS_NEEDED && notice !== undefined)
    return `The review of ${moment(reviewed, zone)} had figures for ${hours} of the ${HOURS_NEEDED} hours that a recommendation needs. More follow: ${notice}`;
  return hours < HOURS_NEEDED
    ? `The review of ${moment(reviewed, zone)} had figures for ${hours} of the ${HOURS_NEEDED} hours that a recommendation needs. The first that can have them runs ${moment(firstReview(response, reviewed), zone)}.`
    : `No open recommendations after the review of ${moment(reviewed, zone)}. The next one runs ${next}.`;
}

/** The clusters that savings leave out, because their review had too few hours; nothing if no review had enough. */
export function WithoutEnoughHours({ response }: { response: RecommendationsResponse }) {
  const zone = useZone();
  return reviewsWithoutEnough(response).map(({ cluster, reviewed_at, hours_known }) => (
    <p class="note" key={cluster}>
      Without <Name>{cluster}</Name>: its review of {moment(reviewed_at, zone)} had figures for {hours_known} hours, and
      recommendations need {HOURS_NEEDED}.
    </p>
  ));
}

/** How much of a saving, or of several, reduces the AWS bill. */
export function cashText(...rows: readonly Pick<Recommendation, "saving" | "currency">[]): string {
  const sum = (amounts: readonly number[]) => amounts.reduce((total, usd) => total + usd, 0);
  const amounts = rows.flatMap(({ saving }) => saving.cash_usd ?? []);
  const lacking = rows.length - amounts.length;
  const cash = sum(amounts);
  if (amounts.length === 0) return CASH_NOT_KNOWN;
  const isAll = lacking === 0 && Math.abs(cash - sum(rows.map(({ saving }) => saving.usd))) < 0.005;
  const amount = cash === 0 ? "none" : saved(cash, rows[0]?.currency ?? "USD");
  if (lacking > 0) return `${CASH_NOT_KNOWN} for ${lacking} of ${rows.length}, ${amount} in cash for the others`;
  return isAll ? "all in cash" : `${amount} in cash`;
}

/** What cash savings are valued at, where that is a price list. */
const AT_LIST_PRICES = "at list prices";

/** The caveat next to the total of cash savings; nothing if no part of it is at list prices. */
export function AtListPrices({ rows, currency }: { rows: readonly Recommendation[]; currency: string | undefined }) {
  const offer = cashOnOffer(rows);
  const share = listPricesOf(offer);
  if (share === "none") return null;
  return (
    <span data-testid="list-prices">
      , {share === "some" && `${roundMoney(offer.atListPrices, currency)} of it `}
      {AT_LIST_PRICES}
      <Help term="at list prices" />
    </span>
  );
}

/** What the caveat next to the total does not say: which savings of several are at list prices. */
export function listPriceMark(rows: readonly Pick<Recommendation, "saving">[]): string {
  const marked = rows.filter((row) => (row.saving.cash_usd ?? 0) > 0 && isAtListPrices(row));
  if (marked.length === 0) return "";
  return marked.length === rows.length ? `, ${AT_LIST_PRICES}` : `, partly ${AT_LIST_PRICES}`;
}

/** In place of cash savings that are null, under a title that says that they are cash. */
const NOT_KNOWN = "not known";
const CASH_NOT_KNOWN = `cash ${NOT_KNOWN}`;

/** What the recommendation changes: GPUs of a workload, or nodes of a pool, as whole ones. */
function changeFact(row: Recommendation): [string, string][] {
  const { current_gpus: current, recommended_gpus: after, subject, kind } = row;
  const earlier = row.state === "applied" || row.state === "verified" ? "before" : "now";
  if (subject.workload !== null)
    return [
      [kind === "spot" ? "GPUs on demand" : "GPUs", `${gpuHours(current, 0)} ${earlier}, ${gpuHours(after, 0)} after`],
    ];
  if ("nodes" in row.evidence.facts) return []; // of the same period as the summary
  const name = kind === "commitment" || kind === "spot" ? "Nodes on demand" : "Nodes";
  return [[name, `${Math.ceil(current - 0.005)} ${earlier}, ${Math.ceil(after - 0.005)} after, in the newest day`]];
}

/** What a recommendation rests on, by name; without names for which its kind has no figures. */
export function factsOf(row: Recommendation, zone: Zone): [string, string][] {
  const { saving, evidence, currency } = row;
  const { mean_utilization: mean, peak_utilization: peak, coverage } = evidence;
  const end = Date.parse(evidence.last_hour) + HOUR; // `last_hour` is the start of the last hour
  const isCost = saving.usd < 0;
  const range = isCost
    ? savedRange(-saving.high_usd, -saving.low_usd, currency)
    : savedRange(saving.low_usd, saving.high_usd, currency);
  const cash =
    saving.cash_usd === null
      ? NOT_KNOWN
      : `${roundMoney(Math.abs(saving.cash_usd), currency)} a month${listPriceMark([row])}`;
  return [
    ["Confidence", row.confidence],
    ["Risk", `${row.risk}: ${row.risk_note}`],
    ["Effort", row.effort],
    ...changeFact(row),
    ...facts(range.includes(" to ") && ["Range", `${range} a month`]),
    [isCost ? "Added to the AWS bill" : "Cash savings", cash],
    ["Evidence", `${moment(evidence.first_hour, zone)} to ${moment(end, zone)}`],
    ["Hours", `${evidence.hours_observed} observed, ${evidence.hours_unknown} without figures`],
    ...facts(
      mean !== null &&
        peak !== null && ["Utilization", `${percent(mean)} on average, ${percent(peak)} in the busiest hour`],
      coverage !== null && ["Measured", `${percent(coverage)} of the allocated GPU-hours`],
    ),
    ...Object.entries(evidence.facts).map(([key, text]): [string, string] => [capitalized(key), text]),
  ];
}

const facts = (...optional: ([string, string] | false)[]) => optional.filter((fact) => fact !== false);

/** When the newest review ended. */
export function reviewedAt({ reviews }: Pick<RecommendationsResponse, "reviews">): string | undefined {
  return reviews
    .map((review) => review.reviewed_at)
    .sort()
    .at(-1);
}

/** Formats savings. Negative savings are costs, for example of more GPUs. */
export function saved(usd: number, currency: string): string {
  return usd < 0 ? `costs ${roundMoney(-usd, currency)}` : roundMoney(usd, currency);
}

/** Formats the bounds of savings, or of costs, from the smaller to the larger amount. */
export function savedRange(low: number, high: number, currency: string): string {
  const [from, to] = high < 0 ? [-high, -low] : [low, high];
  const amounts =
    from === to ? roundMoney(from, currency) : `${roundMoney(from, currency)} to ${roundMoney(to, currency)}`;
  return high < 0 ? `costs ${amounts}` : amounts;
}

function Summary({ recommendation }: { recommendation: Recommendation }) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <span class="wide">
        <Name>{recommendation.summary}</Name>
        {recommendation.part_of !== null && <> (savings included in {recommendation.part_of})</>}
      </span>
      {recommendation.patch !== null && (
        <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
          <summary>Show patch</summary>
          {isOpen && <pre>{recommendation.patch}</pre>}
        </details>
      )}
    </>
  );
}
