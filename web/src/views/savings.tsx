// Recommendations by state: what they save, on what evidence, and the commands that change them.

import { useContext } from "preact/hooks";
import { type ComponentChildren, Fragment } from "preact";
import { fetchIfAllowed, type Recommendation, type RecommendationsResponse } from "../api";
import { HOUR, moment, roundMoney } from "../format";
import { NoticeContext, ServeContext, changed, go, useFetch, useRoute, useZone } from "../hooks";
import { Decision, Empty, Help, Name, Section, Stat, Table, View } from "../parts";
import { exactly, linkTo } from "../route";
import { KINDS } from "../recommendation-kinds";
import {
  alternativeText,
  cashOnOffer,
  commandsOf,
  countsText,
  DETECTED,
  grouped,
  HOURS_NEEDED,
  hoursReviewed,
  levelRange,
  listPricesOf,
  nextReview,
  onOffer,
  type Section as SectionName,
  sectionOf,
  selected,
  type State,
  STATES,
  verifiedTotal,
} from "../savings";
import {
  AtListPrices,
  cashText,
  factsOf,
  listPriceMark,
  noneText,
  reviewedAt,
  saved,
  WithoutEnoughHours,
} from "./recommendations";

interface ViewData {
  /** All states, kinds and units. */
  all: RecommendationsResponse;
  /** The open ones of the selected kind and unit, with the API's totals. */
  open: RecommendationsResponse;
}

const MOST = 50;

const STACK_NAME = "NAME is the name of the CloudFormation stack of gpucost.";

const plural = (count: number, noun: string) => `${count} ${noun}${count === 1 ? "" : "s"}`;

export function Savings() {
  const route = useRoute();
  const { cluster, kind, unit } = route.query;
  const request = useFetch(JSON.stringify([cluster, kind, unit]), async (): Promise<ViewData | null> => {
    const units = unit === undefined ? {} : { business_unit: exactly(unit) };
    const [all, open] = await Promise.all([
      fetchIfAllowed("v1/recommendations", { cluster, state: "all" }),
      fetchIfAllowed("v1/recommendations", { cluster, kind: kind as Recommendation["kind"] | undefined, ...units }),
    ]);
    return all === null || open === null ? null : { all, open };
  });
  return (
    <View title="Savings" request={request}>
      {(viewData) =>
        viewData === null ? <Empty>Your role may not see recommendations.</Empty> : <Shown {...viewData} />
      }
    </View>
  );
}

function Shown({ all, open }: ViewData) {
  const route = useRoute();
  const zone = useZone();
  const { state = "open", kind, unit } = route.query;
  const rows = selected(all.rows, { kind, unit });
  const shown = state === "all" ? rows : rows.filter((row) => row.state === state);
  const currency = all.rows[0]?.currency ?? "USD";
  const count = (name: string) => rows.filter((row) => row.state === name).length;
  const { savings, costs } = open.totals;
  const reviewed = reviewedAt(all);
  const verified = verifiedTotal(rows);
  const offer = cashOnOffer(rows);
  const { cash, unknown } = offer;
  const openRows = rows.filter((row) => row.state === "open");
  // Before a review had enough hours, savings are unknown and not zero.
  const isKnown = all.rows.length > 0 || hoursReviewed(all) >= HOURS_NEEDED;
  return (
    <>
      <dl class="stats">
        <Stat
          name="Savings on offer"
          value={roundMoney(isKnown ? savings.usd : null, currency)}
          note={
            isKnown
              ? `a month, from ${plural(onOffer(rows).length, "saving")}`
              : "a month, known after the first review with a week of hours"
          }
          testId="on-offer"
        />
        {isKnown && savings.usd !== null && (
          <Stat
            name="Cash savings"
            value={roundMoney(cash, currency)}
            note={
              <>
                of it a month
                <AtListPrices rows={rows} currency={currency} />
                {unknown > 0 && `; not known for ${roundMoney(unknown, currency)}`} <Help term="cash savings" />
              </>
            }
            testId="cash"
          />
        )}
        <Stat
          name="Verified savings"
          value={roundMoney(verified, currency)}
          note={
            verified === null
              ? "No saving is measured yet. It takes a week."
              : "of GPU cost a month, measured after the change"
          }
          testId="verified"
        />
        <Stat
          name="Cost of added GPUs"
          value={roundMoney(isKnown ? costs.usd : null, currency)}
          note="a month, where GPUs are full or work waits"
          testId="added"
        />
        <Stat
          name="Last review"
          value={reviewed === undefined ? "–" : moment(reviewed, zone)}
          note={
            <>
              Next review: {moment(nextReview(Date.now()), zone)} <Help term="review" />
            </>
          }
        />
      </dl>
      <p class="note" data-testid="counts">
        {openRows.length > 0 && `${openRows.length} open: ${countsText(openRows)}. `}
        All changes on offer can be made together, and their savings add up. They have no commitments, because what they
        save depends on the other changes. Amounts are computed from up to 30 days, for a month of 730 hours. Each
        recommendation has its risk and confidence <Help term="risk, confidence" />.
      </p>
      <WithoutEnoughHours response={all} />
      <Section title="Recommendations" aside={<Filters all={all.rows} />}>
        <nav class="filters" aria-label="States">
          {[...STATES, { state: "all", name: "All", meaning: "Every state" }].map((entry) => (
            <a
              key={entry.state}
              class="filter"
              href={changed(route, { state: entry.state === "open" ? "" : entry.state })}
              aria-current={state === entry.state ? "page" : undefined}
              title={entry.meaning}
            >
              {entry.name} {entry.state === "all" ? rows.length : count(entry.state)}
            </a>
          ))}
        </nav>
        <p class="note" data-testid="state-meaning">
          {STATES.find((entry) => entry.state === state)?.meaning ?? "Every state."}{" "}
          {["open", "applied", "verified", "all"].includes(state) && DETECTED}
        </p>
        {shown.length === 0 ? (
          <Nothing state={state} all={all} hasOthers={rows.length > 0} />
        ) : (
          SECTIONS.map(({ section, title, meaning }) => (
            <Part
              key={section}
              title={title}
              meaning={meaning}
              rows={shown.slice(0, MOST).filter((row) => sectionOf(row) === section)}
              others={all.rows}
              hasState={state === "all"}
              marksListPrices={listPricesOf(offer) === "some"}
            />
          ))
        )}
        {shown.length > MOST && (
          <p class="note">
            {shown.length - MOST} more. Select a kind or a business unit, or run{" "}
            <code>gpucost recommendations list --stack NAME</code>. {STACK_NAME}
          </p>
        )}
      </Section>
      <Reviews reviews={all.reviews} />
    </>
  );
}

/** When each cluster was reviewed, and with how many hours. */
function Reviews({ reviews }: Pick<RecommendationsResponse, "reviews">) {
  const zone = useZone();
  if (reviews.length === 0) return null;
  return (
    <Section title="Reviews">
      <Table
        name="reviews"
        caption="Reviews by cluster"
        sort="cluster"
        rows={reviews}
        rowKey={(review) => review.cluster}
        columns={[
          {
            key: "cluster",
            title: "Cluster",
            cell: (review) => <Name>{review.cluster}</Name>,
            by: (review) => review.cluster,
          },
          {
            key: "hours",
            title: "Hours with figures",
            isFigure: true,
            cell: ({ hours_known, start, end }) => `${hours_known} of ${(Date.parse(end) - Date.parse(start)) / HOUR}`,
            by: (review) => review.hours_known,
          },
          {
            key: "reviewed",
            title: "Reviewed",
            cell: (review) => moment(review.reviewed_at, zone),
            by: (review) => review.reviewed_at,
          },
        ]}
      />
    </Section>
  );
}

/** The sections of the list: only the first adds up to what is on offer. */
const SECTIONS: readonly { section: SectionName; title: string; meaning: string }[] = [
  { section: "savings", title: "Savings", meaning: "" },
  {
    section: "commitments",
    title: "Commitments",
    meaning: "Not in the savings on offer: apply the savings first, then commit to the rest.",
  },
  {
    section: "costs",
    title: "Added GPUs",
    meaning: "They cost money: work waits for GPUs, or GPUs are at their limit.",
  },
  { section: "included", title: "Included in others", meaning: "Another recommendation counts these savings." },
  {
    section: "alternatives",
    title: "Alternatives",
    meaning:
      "Not on offer, and in no total: each says what it is an alternative to. A pool has one plan; at most one of its alternatives can be taken in its place.",
  },
];

/** A section of the list. Recommendations that differ only in their workload are one line until it is opened. */
function Part(props: { title: string; meaning: string; rows: readonly Recommendation[] } & Omit<CardProps, "row">) {
  const { title, meaning, rows, ...shown } = props;
  if (rows.length === 0) return null;
  return (
    <>
      <h3 class="part">{title}</h3>
      {meaning !== "" && <p class="note">{meaning}</p>}
      <ul class="cards paired" data-testid="savings">
        {grouped(rows).map((group) =>
          group.length === 1 ? (
            group.map((row) => <Card key={row.id} row={row} {...shown} />)
          ) : (
            <Group key={group[0]?.id} rows={group} {...shown} />
          ),
        )}
      </ul>
    </>
  );
}

/** Recommendations that differ only in their workload: their sum, and what a single one says without being opened. */
function Group({ rows, ...shown }: { rows: readonly Recommendation[] } & Omit<CardProps, "row">) {
  const route = useRoute();
  const [first] = rows;
  if (first === undefined) return null;
  const names = rows.map(({ subject }) => subject.workload ?? "");
  const usd = rows.reduce((sum, { saving }) => sum + saving.usd, 0);
  const unit = first.subject.business_unit; // that of all rows
  const clusters = [...new Set(rows.map(({ subject }) => subject.cluster))].sort();
  return (
    <li class="item" data-testid="group">
      <Amount usd={usd} currency={first.currency}>
        {first.kind !== "commitment" && usd > 0 && <CashNote rows={rows} {...shown} />}
      </Amount>
      <div>
        <h4>
          {rows.length} × {KINDS[first.kind]}: {names.slice(0, MOST_NAMES).join(", ")}
          {names.length > MOST_NAMES && ` and ${names.length - MOST_NAMES} more`} in{" "}
          <Name>{first.subject.namespace ?? ""}</Name>
        </h4>
        <p class="note">
          {levelRange(rows.map(({ confidence }) => confidence))} confidence · {levelRange(rows.map(({ risk }) => risk))}{" "}
          risk ·{" "}
          {unit !== null && (
            <>
              Business unit{" "}
              <a href={linkTo(route, "unit", unit)}>
                <Name>{unit}</Name>
              </a>
              ,{" "}
            </>
          )}
          {clusters.length === 1 ? "cluster" : "clusters"}{" "}
          {clusters.map((cluster, index) => (
            <Fragment key={cluster}>
              {index > 0 && ", "}
              <Name>{cluster}</Name>
            </Fragment>
          ))}
        </p>
        <details>
          <summary>The {rows.length} recommendations</summary>
          <ul class="cards">
            {rows.map((row) => (
              <Card key={row.id} row={row} {...shown} />
            ))}
          </ul>
        </details>
      </div>
    </li>
  );
}

const MOST_NAMES = 4;

/** A monthly amount; amounts stand in one column. */
function Amount({ usd, currency, children }: { usd: number; currency: string; children?: ComponentChildren }) {
  return (
    <p class="amount">
      <strong>{saved(usd, currency)}</strong>
      <span class="note">a month</span>
      {children}
    </p>
  );
}

function Nothing({ state, all, hasOthers }: { state: string; all: RecommendationsResponse; hasOthers: boolean }) {
  const route = useRoute();
  const zone = useZone();
  const { kind, unit } = route.query;
  const isServed = useContext(ServeContext);
  const notice = useContext(NoticeContext);
  if (hasOthers) return <Empty>No recommendation is {state}. Select another state.</Empty>;
  if (reviewedAt(all) === undefined || (all.rows.length === 0 && hoursReviewed(all) < HOURS_NEEDED))
    return (
      <Empty>
        {noneText(all, zone, notice)}
        {!isServed && (
          <>
            {" "}
            To run one now: <code>gpucost recommendations run --stack NAME</code>. {STACK_NAME}
          </>
        )}
      </Empty>
    );
  return (
    <Empty>
      The last review recommends nothing.{" "}
      {kind || unit
        ? "Select all kinds and business units."
        : `Reviews need a week of hours with measured utilization; the next one runs ${moment(nextReview(Date.now()), zone)}. `}
      {!kind && !unit && <a href={linkTo(route, "health", "", { window: "7d" })}>Data health of the last week</a>}
    </Empty>
  );
}

function Filters({ all }: { all: readonly Recommendation[] }) {
  const route = useRoute();
  const { kind, unit } = route.query;
  const kinds = [...new Set([...all.map((row) => row.kind as string), ...(kind ? [kind] : [])])].sort();
  const units = [...new Set([...all.map((row) => row.subject.business_unit ?? ""), ...(unit ? [unit] : [])])].sort();
  const select = (
    name: string,
    title: string,
    value: string | undefined,
    names: readonly string[],
    shown = (text: string) => text,
  ) => (
    <label>
      {title}
      <select value={value ?? ""} onChange={(event) => go(changed(route, { [name]: event.currentTarget.value }))}>
        <option value="">All</option>
        {names
          .filter((text) => text !== "")
          .map((text) => (
            <option key={text} value={text}>
              {shown(text)}
            </option>
          ))}
      </select>
    </label>
  );
  return (
    <span class="filters-of">
      {select("kind", "Kind", kind, kinds, (text) => (KINDS as Record<string, string>)[text] ?? text)}{" "}
      {select("unit", "Business unit", unit, units)}
    </span>
  );
}

interface CardProps {
  row: Recommendation;
  /** All of the view, of which one can be an alternative to another. */
  others: readonly Recommendation[];
  hasState: boolean;
  /** Only some savings are at list prices, so that the caveat next to the total does not say which. */
  marksListPrices: boolean;
}

function CashNote(props: { rows: readonly Recommendation[] } & Pick<CardProps, "marksListPrices">) {
  const { rows, marksListPrices } = props;
  return (
    <span class="note">
      {cashText(...rows)}
      {marksListPrices && listPriceMark(rows)}
    </span>
  );
}

function Card({ row, others, hasState, marksListPrices }: CardProps) {
  const route = useRoute();
  const zone = useZone();
  const { subject, saving, currency } = row;
  const commands = useContext(ServeContext) ? [] : commandsOf(row);
  const facts: [string, ComponentChildren][] = [...factsOf(row, zone), ["ID", <code key="id">{row.id}</code>]];
  return (
    <li class="item">
      <Amount usd={saving.usd} currency={currency}>
        {row.kind !== "commitment" && saving.usd > 0 && <CashNote {...{ rows: [row], marksListPrices }} />}
      </Amount>
      <div>
        <h4>
          {hasState && <span class={`state ${row.state}`}>{row.state}</span>} <Name>{row.summary}</Name>
          {row.offer === "alternative" && row.state === "open" && ` (${alternativeText(row, others)})`}
        </h4>
        <p class="note">
          {row.state === "verified" && row.verified_usd !== null && (
            <>
              <strong>{saved(row.verified_usd, currency)} verified</strong> ·{" "}
            </>
          )}
          {KINDS[row.kind]} · {row.confidence} confidence · {row.risk} risk ·{" "}
          {subject.business_unit !== null && (
            <>
              Business unit{" "}
              <a href={linkTo(route, "unit", subject.business_unit)}>
                <Name>{subject.business_unit}</Name>
              </a>
              ,{" "}
            </>
          )}
          {subject.workload !== null && (
            <>
              {subject.workload_kind} <Name>{subject.workload}</Name> in <Name>{subject.namespace ?? ""}</Name>,{" "}
            </>
          )}
          {subject.node_pool !== null && (
            <>
              node pool{" "}
              <a href={linkTo(route, "nodes", "", { pool: subject.node_pool, cluster: subject.cluster })}>
                <Name>{subject.node_pool}</Name>
              </a>
              ,{" "}
            </>
          )}
          {row.evidence.facts["node pools"] !== undefined && `of node pool ${row.evidence.facts["node pools"]}, `}
          cluster <Name>{subject.cluster}</Name>
          <History row={row} />
        </p>
        {row.state === "open" && <Decision title="Dismiss" path={`recommendations/${row.id}/dismiss`} reason="Why?" />}
        {row.state === "dismissed" && <Decision title="Reopen" path={`recommendations/${row.id}/reopen`} />}
        <details>
          <summary>Evidence, risk and commands</summary>
          <dl class="facts">
            {facts.map(([key, text]) => (
              <div key={key}>
                <dt>{key}</dt>
                <dd>{text}</dd>
              </div>
            ))}
          </dl>
          {row.patch !== null && (
            <>
              <h4>Manifest</h4>
              <pre tabIndex={0}>{row.patch}</pre>
            </>
          )}
          {commands.map(({ title, command }) => (
            <p key={command}>
              {title}: <code class="command">{command}</code>
            </p>
          ))}
          {commands.length > 0 && <p class="note">{STACK_NAME}</p>}
        </details>
      </div>
    </li>
  );
}

/** Why the recommendation is in its state. */
function History({ row }: { row: Recommendation }) {
  const zone = useZone();
  const since = moment(row.since, zone);
  const texts: Record<State, string> = {
    open: `Open since ${since}.`,
    applied: `The figures show the change from ${row.applied_at === null ? since : moment(row.applied_at, zone)}. The saving is measured after a week.`,
    verified: `Applied ${row.applied_at === null ? "" : moment(row.applied_at, zone)}, measured ${since}.`,
    dismissed: `Dismissed ${since} by ${row.author ?? "an unknown person"}: ${row.reason ?? "no reason"}`,
    withdrawn: `Withdrawn ${since}: ${row.reason ?? "newer figures no longer support it"}`,
  };
  return (
    <>
      {". "}
      {texts[row.state]}
      {row.part_of !== null && ` Its saving is included in ${row.part_of}.`}
    </>
  );
}
