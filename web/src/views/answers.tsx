// The first questions about a period: spend, use, change, what to do, and what is known. Each answer is one figure
// with what explains it.

import type { ComponentChildren } from "preact";
import { useContext } from "preact/hooks";
import type {
  BudgetsResponse,
  CostRow,
  CostsResponse,
  Coverage,
  FleetResponse,
  FleetTotals,
  Forecast,
  HoursResponse,
  Recommendation,
  RecommendationsResponse,
  Settled,
} from "../api";
import { colored } from "../charts/colors";
import {
  changeOf,
  type Compared,
  comparisonNote,
  comparisonOf,
  earlierText,
  relativeChange,
  withVanished,
} from "../compare";
import {
  changeWord,
  counted,
  gpuHours,
  isMeasured,
  knownFigure,
  moment,
  NOT_MEASURED,
  percent,
  ratio,
  roundMoney,
  shortNode,
  signed,
  utilizationText,
} from "../format";
import type { Term } from "../glossary";
import { changed, NoticeContext, useIsNarrow, useResponse, useRoute, useZone } from "../hooks";
import type { NodeHours } from "../node-hours";
import { AMOUNTS, amountTitle, type PartKey, partsOf } from "../identity";
import { ErrorMessage, Help, Name, Swatch } from "../parts";
import { isReserved, removalGroups, removalsOf } from "../removal";
import { linkTo, linkToNodes, writeRoute } from "../route";
import { pricedShare } from "../series";
import { WhyLink } from "./figure";
import { cashOnOffer, countsText, onOffer } from "../savings";
import { AtListPrices, noneText, saved, WithoutEnoughHours } from "./recommendations";
import { unitOf } from "./units";

export interface AnswersData {
  fleet: FleetResponse;
  units: CostsResponse;
  /** The same of an earlier period. */
  before: Compared<{ fleet: FleetResponse; units: CostsResponse }>;
  lastHour: FleetResponse;
  month: FleetResponse;
  /** Of the fleet's month, by business unit; by cluster if one is selected. */
  forecast: Settled<Forecast | null>;
  hours: HoursResponse | null;
  /** This month's, of all clusters. */
  budgets: Settled<BudgetsResponse | null>;
  recommendations: Settled<RecommendationsResponse | null>;
  /** Only if there are no recommendations: what to do until there are. The largest request, which nothing else awaits. */
  nodeHours: Promise<Settled<NodeHours | null>>;
}

const MOST = 3;
/** Recommendations that are shown. */
const MOST_TO_DO = 5;
const MOST_TO_DO_ON_PHONES = 2;
/** Parts of the cost whose names need an explanation. */
const JARGON: readonly PartKey[] = ["stranded_usd", "unobserved_usd", "host_usd", "residual_usd"];

/** The node cost, or for a role that sees only some units, their allocated cost. */
const amountOf = (totals: FleetTotals) => (totals.node_cost_usd === null ? "allocated_usd" : "node_cost_usd");
const costOf = (totals: FleetTotals) => totals[amountOf(totals)];

export function Answers(props: AnswersData) {
  return (
    <section class="answers" aria-label="Summary">
      <Cost {...props} />
      <Worked {...props} />
      <Changed {...props} />
      <ToDo {...props} />
      <Known {...props} />
      <Month {...props} />
    </section>
  );
}

function Answer(props: {
  title: string;
  figure: string;
  testId: string;
  note: ComponentChildren;
  /** It has little to show, so the cards share the room evenly. */
  isSmall?: boolean;
  children?: ComponentChildren;
}) {
  return (
    <div class={props.isSmall ? "answer small" : "answer"}>
      <h2>{props.title}</h2>
      <strong data-testid={props.testId}>{props.figure}</strong>
      <p class="note">{props.note}</p>
      {props.children}
    </div>
  );
}

/** What a phone folds. */
function Folded({ summary, children }: { summary: string; children: ComponentChildren }) {
  if (!useIsNarrow()) return <>{children}</>;
  return (
    <details>
      <summary>{summary}</summary>
      {children}
    </details>
  );
}

function Row({ name, children, testId }: { name: ComponentChildren; children: ComponentChildren; testId?: string }) {
  return (
    <li>
      <span>{name}</span> <span data-testid={testId}>{children}</span>
    </li>
  );
}

function Cost({ fleet, lastHour, month }: AnswersData) {
  const route = useRoute();
  const zone = useZone();
  const { totals, currency } = fleet;
  const amount = amountOf(totals);
  const now = lastHour.rows.at(-1); // the newest hour with figures, because the last hour may not be published yet
  const cost = roundMoney(costOf(totals), currency);
  const { hours_complete: known, hours_expected: expected } = month.coverage;
  return (
    <Answer
      title={amount === "node_cost_usd" ? amountTitle(amount) : `${amountTitle(amount)} of your pods`}
      figure={cost}
      testId="cost-period"
      note={
        <>
          {moment(fleet.start, zone)} to {moment(fleet.end, zone)} <WhyLink figure={amount} amount={cost} />{" "}
          <Help term={amount === "node_cost_usd" ? "node cost" : "allocated"} />
        </>
      }
    >
      <ul>
        <Row name={now === undefined ? "Now, per hour" : `Per hour, from ${moment(now.start, zone)}`} testId="cost-now">
          {roundMoney(now && costOf(now), currency)}
        </Row>
        <Row
          name={<a href={changed(route, { window: "month", start: "", end: "" })}>This month (UTC) so far</a>}
          testId="cost-month"
        >
          {roundMoney(costOf(month.totals), month.currency)}
        </Row>
        {known < expected && (
          <Row
            name={
              <>
                Complete cluster-hours of it <Help term="cluster-hour" />
              </>
            }
          >
            {known} of {expected}
          </Row>
        )}
      </ul>
    </Answer>
  );
}

/** The month by its end, and the budgets. */
function Month({ forecast, budgets }: AnswersData) {
  const isNothing =
    "response" in forecast && "response" in budgets && !forecast.response && !budgets.response?.rows.length;
  if (isNothing) return null;
  return (
    <div class="answer month">
      <h2>This month (UTC)</h2>
      <div class="halves">
        {"error" in forecast ? <ErrorMessage error={forecast.error} /> : <MonthEnd forecast={forecast.response} />}
        {"error" in budgets ? <ErrorMessage error={budgets.error} /> : <Budgets response={budgets.response} />}
      </div>
    </div>
  );
}

/** What the fleet's month is expected to cost, or that of the selected cluster, and what drives it. */
function MonthEnd({ forecast }: { forecast: Forecast | null }) {
  const route = useRoute();
  const isNarrow = useIsNarrow();
  const { cluster } = route.query;
  if (forecast === null) return null;
  const { currency, rows } = forecast;
  const end = monthEndOf(forecast, cluster);
  if (end === null) return null;
  const { expected, low, high, hours } = end;
  const show = (usd: number) => roundMoney(usd, currency, [expected, low, high]);
  const ofUnits = rows.reduce<number | null>((sum, row) => {
    const usd = expectedOf(row);
    return sum === null || usd === null ? null : sum + usd;
  }, 0);
  const drivers = rows.filter((row) => cluster === undefined && expectedOf(row) !== null).slice(0, MOST);
  return (
    <div data-testid="month-end">
      <p class="note">
        {expected === null ? (
          <>
            What this month (UTC) will cost is not known yet: {hours.complete} of {hours.complete + hours.missing} hours
            so far have figures.
          </>
        ) : (
          <>
            This month (UTC) by its end: <strong>{show(expected)}</strong>
            {low !== null && high !== null
              ? `, ${forecast.interval_percent}% between ${show(low)} and ${show(high)}`
              : ", at the mean rate so far"}{" "}
            <Help term={low === null ? "run rate" : "forecast"} />
          </>
        )}
      </p>
      {drivers.length > 0 && (
        <Folded summary="What drives it">
          <ul aria-label="What drives it">
            {!isNarrow && <li>What drives it, by its end:</li>}
            {drivers.map((row) => (
              <Row
                key={row.name}
                name={
                  <a href={linkTo(route, "unit", row.name)}>
                    <Name>{row.name}</Name>
                  </a>
                }
              >
                {roundMoney(expectedOf(row), currency)}
              </Row>
            ))}
            {forecast.budget_usd !== null && (
              <>
                {ofUnits !== null && (
                  <Row name="All business units, without idle cost">{roundMoney(ofUnits, currency)}</Row>
                )}
                <Row name="Budgets of all business units">{roundMoney(forecast.budget_usd, currency)}</Row>
              </>
            )}
          </ul>
        </Folded>
      )}
    </div>
  );
}

type Projected = Pick<Forecast, "projected_usd" | "run_rate_usd">;

/** By the pattern of past weeks; with too little history, at the mean rate so far. */
const expectedOf = ({ projected_usd: usd, run_rate_usd: rate }: Projected) => usd ?? rate;

/** The expected cost of the month and its interval; null for a cluster without costs in it. */
export function monthEndOf(forecast: Forecast, cluster: string | undefined) {
  const whole = cluster === undefined ? forecast : forecast.rows.find(({ name }) => name === cluster);
  if (whole === undefined) return null;
  return {
    expected: expectedOf(whole),
    low: whole.low_usd,
    high: whole.high_usd,
    hours: { complete: whole.hours_known, missing: whole.hours_unknown },
  };
}

/** Which business units exceed their monthly budgets, or are expected to, and all budgets. Each leads to its month. */
function Budgets({ response }: { response: BudgetsResponse | null }) {
  if (response === null || response.rows.length === 0) return null;
  const { currency, rows } = response;
  const over = rows.filter(({ status }) => status === "exceeded" || status === "projected");
  const within = rows.filter((row) => !over.includes(row));
  return (
    <div data-testid="budgets">
      <p class="note">
        {over.length === 0
          ? withinText(rows)
          : `${overText(over)}, of ${counted(rows.length, "business unit")} with a budget this month (UTC):`}
      </p>
      {over.length > 0 && <BudgetRows rows={over.slice(0, MOST)} currency={currency} />}
      {over.length > 0 && (
        <p class="note">
          Bars: solid is spent, striped is over the budget, pale follows at the run rate. The line is the budget.
        </p>
      )}
      {rows.length > Math.min(over.length, MOST) && (
        <details>
          <summary>{over.length === 0 ? "All budgets" : "The other budgets"}</summary>
          <BudgetRows rows={[...over.slice(MOST), ...within]} currency={currency} />
        </details>
      )}
    </div>
  );
}

const BUDGET_TAGS: Partial<Record<BudgetsResponse["rows"][number]["status"], string>> = {
  exceeded: "exceeded",
  projected: "will exceed",
};

function BudgetRows({ rows, currency }: { rows: BudgetsResponse["rows"]; currency: string }) {
  const route = useRoute();
  const usd = (amount: number | null) => roundMoney(amount, currency);
  return (
    <table>
      <caption class="hidden">Budgets of this month (UTC)</caption>
      <thead>
        <tr>
          <th scope="col">Business unit</th>
          <th scope="col">So far</th>
          <th scope="col" class="figure">
            Run rate
          </th>
          <th scope="col" class="figure">
            Budget
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ business_unit: unit, status, spent_usd, projected_usd, budget_usd }) => (
          <tr key={unit}>
            <td>
              <a href={linkTo(route, "unit", unit)}>
                <Name>{unit}</Name>
              </a>{" "}
              {BUDGET_TAGS[status] !== undefined && (
                <span class={status === "exceeded" ? "tag alarming" : "tag"}>{BUDGET_TAGS[status]}</span>
              )}
            </td>
            <td>
              {usd(spent_usd)}
              <BudgetBar
                spent={spent_usd}
                projected={projected_usd}
                budget={budget_usd}
                label={`${AMOUNTS.allocated_usd} so far ${usd(spent_usd)}, ${percent(ratio(spent_usd, budget_usd))} of the budget`}
              />
            </td>
            <td class="figure">{usd(projected_usd)}</td>
            <td class="figure">{usd(budget_usd)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What was spent, what is over the budget of it, and the run rate behind it, with a mark at the budget. */
function BudgetBar(props: { spent: number | null; projected: number | null; budget: number; label: string }) {
  const { projected, budget, label } = props;
  const spent = props.spent ?? 0;
  const whole = Math.max(spent, projected ?? 0, budget);
  const width = (amount: number) => `${(100 * (ratio(amount, whole) ?? 0)).toFixed(1)}%`;
  return (
    <span class="budget" role="img" aria-label={label} title={label}>
      <span style={{ width: width(projected ?? 0) }} />
      <span class={spent > budget ? "over" : "spent"} style={{ width: width(spent) }} />
      {spent > budget && <span class="spent" style={{ width: width(budget) }} />}
      <span class="limit" style={{ left: `calc(${width(budget)} - 2px)` }} />
    </span>
  );
}

function overText(over: BudgetsResponse["rows"]): string {
  const exceeded = over.filter(({ status }) => status === "exceeded").length;
  const coming = over.length - exceeded;
  return [exceeded > 0 && `${exceeded} exceeded`, coming > 0 && `${coming} will exceed`].filter(Boolean).join(", ");
}

export function withinText(rows: BudgetsResponse["rows"]): string {
  const within = rows.filter(({ status }) => status === "within").length;
  if (within === rows.length) return `All ${within} business units with a budget stay within it.`;
  return within === 0
    ? "Whether business units stay within their budgets is not known yet: too few hours of this month have figures."
    : `${within} of ${rows.length} business units with a budget stay within it. Of the others it is not known yet.`;
}

function Worked({ fleet }: AnswersData) {
  const route = useRoute();
  const { totals, currency } = fleet;
  const cost = costOf(totals);
  const effective = knownFigure(totals, "effective_usd");
  const waste = roundMoney(knownFigure(totals, "waste_usd"), currency);
  const parts = colored(partsOf([totals])).filter((part) => (totals[part.key] ?? 0) > 0);
  return (
    <Answer
      title="How much of it worked"
      figure={effective == null ? "not known" : percent(ratio(effective, cost))}
      testId="worked"
      note={
        isMeasured(totals)
          ? `${AMOUNTS.effective_usd} ${roundMoney(effective, currency)} of the ${AMOUNTS[amountOf(totals)]} ${roundMoney(cost, currency)}`
          : `unknown: ${NOT_MEASURED}`
      }
    >
      <div
        class="split"
        role="img"
        aria-label={parts.map(({ key, name }) => `${name} ${share(totals[key], cost)}`).join(", ")}
      >
        {parts.map((part) => (
          <span
            key={part.key}
            title={`${part.name} ${share(totals[part.key], cost)}`}
            style={{ width: `${100 * (ratio(totals[part.key], cost) ?? 0)}%`, color: part.color }}
          />
        ))}
      </div>
      <ul class="legend">
        {parts.map(({ key, name, meaning, color }) => (
          <li key={key} title={meaning}>
            <Swatch color={color} />
            {name} {share(totals[key], cost)}
            {JARGON.includes(key) && <Help term={key.replace("_usd", "") as Term} />}
          </li>
        ))}
      </ul>
      <ul>
        <Row
          name={
            <>
              Waste <WhyLink figure="waste_usd" amount={waste} />
            </>
          }
          testId="waste"
        >
          {waste}
        </Row>
        {(totals.unallocated_usd ?? 0) > 0 && (
          <Row name={<a href={linkToNodes(route)}>Unallocated cost: which node to remove</a>}>
            {roundMoney(totals.unallocated_usd, currency)}
          </Row>
        )}
        <Row name="Utilization of measured GPU-hours" testId="utilization">
          {utilizationText(totals)}
        </Row>
      </ul>
    </Answer>
  );
}

const share = (part: number | null, whole: number | null) => percent(ratio(part, whole));

/** Business units whose allocated cost changed, the largest change first, in either direction. */
export function movers(units: CostsResponse, before: CostsResponse): { row: CostRow; difference: number }[] {
  const comparison = comparisonOf(units.coverage, before.coverage);
  const old = new Map(before.rows.map((row) => [unitOf(row), row.allocated_usd]));
  return withVanished(units.rows, before.rows)
    .map((row) => {
      const was = old.has(unitOf(row)) ? old.get(unitOf(row)) : 0;
      return { row, difference: changeOf(row.allocated_usd, was, comparison) ?? 0 };
    })
    .filter(({ difference }) => Math.abs(difference) >= 0.005)
    .sort((left, right) => Math.abs(right.difference) - Math.abs(left.difference));
}

/** The rows of the change, which add up to it: the units that changed most, the others, and the idle cost. */
export function changeRows(total: number | null, moved: readonly { difference: number }[]) {
  const sum = (rows: readonly { difference: number }[]) => rows.reduce((all, { difference }) => all + difference, 0);
  const notable = (difference: number) => (Math.abs(difference) >= 0.005 ? difference : null);
  return {
    others: notable(sum(moved.slice(MOST))),
    idle: total === null ? null : notable(total - sum(moved)),
  };
}

function Changed({ fleet, units, before }: AnswersData) {
  const route = useRoute();
  const zone = useZone();
  const { currency } = fleet;
  const { period, body: earlier } = before;
  const comparison = comparisonOf(fleet.coverage, earlier.fleet.coverage);
  const [now, then] = [costOf(fleet.totals), costOf(earlier.fleet.totals)];
  const moved = movers(units, earlier.units);
  const difference = changeOf(now, then, comparison) ?? null;
  const differences = [difference, ...moved.map((unit) => unit.difference)];
  const show = (usd: number | null | undefined) => roundMoney(usd, currency, differences);
  const { others, idle } = changeRows(difference, moved);
  const missing = comparisonNote(fleet.coverage, earlier.fleet.coverage, period.name);
  const hasNodes = fleet.totals.node_cost_usd !== null;
  const all = linkTo(route, "explore", "", {
    compare: "1",
    ...(hasNodes ? { measure: "cost_usd", idle: "separate" } : { measure: "allocated_usd" }),
  });
  return (
    <Answer
      title={`What changed vs ${period.name}`}
      figure={changeWord(relativeChange(now, then, comparison))}
      testId="changed"
      note={
        comparison === null
          ? missing
          : `${amountTitle(amountOf(fleet.totals))} ${signed(difference, show)} vs ${earlierText(before, zone)}. ${missing ?? ""}`
      }
    >
      {comparison !== null && (
        <ul data-testid="movers">
          {moved.slice(0, MOST).map(({ row, difference }) => (
            <Row
              key={unitOf(row)}
              name={
                <a
                  href={linkTo(route, "explore", "", { by: "workload", compare: "1", "f.business_unit": unitOf(row) })}
                >
                  <Name>{unitOf(row)}</Name>
                </a>
              }
            >
              {signed(difference, show)}
            </Row>
          ))}
          {others !== null && <Row name="Other business units">{signed(others, show)}</Row>}
          {idle !== null && (
            <Row
              name={
                <>
                  <a href={all}>Idle cost</a> <Help term="idle" />
                </>
              }
            >
              {signed(idle, show)}
            </Row>
          )}
          {moved.length === 0 && <Row name="Allocated cost of every business unit">unchanged</Row>}
        </ul>
      )}
      <p class="note">
        <a href={all}>All changes</a>
        {route.query["window"] !== "7d" && (
          <>
            {" · "}
            <a href={changed(route, { window: "7d", start: "", end: "" })}>since last week</a>
          </>
        )}
      </p>
    </Answer>
  );
}

function ToDo({ recommendations, units, fleet, nodeHours }: AnswersData) {
  const route = useRoute();
  const isNarrow = useIsNarrow();
  const zone = useZone();
  const notice = useContext(NoticeContext);
  if ("error" in recommendations)
    return (
      <div class="answer">
        <h2>What to do</h2>
        <ErrorMessage error={recommendations.error} />
      </div>
    );
  const rows = recommendations.response?.rows ?? [];
  const best = onOffer(rows).sort((left, right) => right.saving.usd - left.saving.usd);
  const commitments = rows.filter(({ offer, saving }) => offer === "after-plan" && saving.usd > 0);
  const worst = units.rows[0];
  const offer = rows.length === 0 ? null : (recommendations.response?.totals.savings.usd ?? null);
  const unallocated = fleet.totals.unallocated_usd ?? 0;
  const { cash } = cashOnOffer(rows);
  return (
    <Answer
      isSmall={rows.length === 0}
      title="What to do"
      figure={offer === null ? "not yet" : roundMoney(offer, rows[0]?.currency)}
      testId="offer"
      note={
        rows.length === 0 ? (
          noneText(recommendations.response, zone, notice)
        ) : (
          <>
            savings on offer, per month, computed from up to 30 days
            {offer !== null && cash !== null && (
              <>
                ; cash savings {roundMoney(cash, rows[0]?.currency)}
                <AtListPrices rows={rows} currency={rows[0]?.currency} />
              </>
            )}
          </>
        )
      }
    >
      <ul data-testid="best" class="sentences">
        {best.slice(0, isNarrow ? MOST_TO_DO_ON_PHONES : MOST_TO_DO).map((row) => (
          <Row
            key={row.id}
            name={
              <a
                href={writeRoute({ view: "savings", name: "", query: toSavings(route.query, row) })}
                title={row.summary}
              >
                <Name>{row.title}</Name>
              </a>
            }
          >
            {saved(row.saving.usd, row.currency)} a month <span class="tag">{row.confidence} confidence</span>
          </Row>
        ))}
        {commitments.length > 0 && (
          <Row
            testId="commitments"
            name={
              <a href={linkTo(route, "savings", "", { kind: "commitment" })}>Then commitments to the rest: up to</a>
            }
          >
            {roundMoney(
              commitments.reduce((usd, { saving }) => usd + saving.usd, 0),
              commitments[0]?.currency,
            )}
          </Row>
        )}
      </ul>
      {rows.length === 0 && <ToRemove nodeHours={nodeHours} currency={fleet.currency} />}
      {rows.length === 0 && unallocated > 0 && (
        <ul data-testid="unallocated">
          <Row name={<a href={linkToNodes(route)}>Nodes to remove or scale down: unallocated cost</a>}>
            {roundMoney(unallocated, fleet.currency)}
          </Row>
        </ul>
      )}
      <p class="note">
        {worst !== undefined && best.length + commitments.length === 0 ? (
          <>
            Until then, begin with the unit that wastes most:{" "}
            <a href={linkTo(route, "unit", unitOf(worst))}>
              <Name>{unitOf(worst)}</Name>
            </a>
          </>
        ) : (
          <>
            <a href={linkTo(route, "savings")}>All recommendations</a>: {countsText(rows)}
          </>
        )}
      </p>
      {recommendations.response !== null && <WithoutEnoughHours response={recommendations.response} />}
    </Answer>
  );
}

/** The nodes without pods and the pools to scale down, with the amounts of the view of nodes. */
function ToRemove(props: { nodeHours: Promise<Settled<NodeHours | null>>; currency: string }) {
  const route = useRoute();
  const { response: nodeHours, error } = useResponse(props.nodeHours);
  if (nodeHours === undefined) return error === undefined ? <p class="bone line" aria-busy="true" /> : null;
  const { currency } = props;
  const removals = removalsOf(nodeHours?.rows ?? []);
  const { now, pools } = removalGroups(removals);
  const costs = removals.map(({ monthlyUsd }) => monthlyUsd);
  if (now.length + pools.length === 0) return null;
  return (
    <ul data-testid="to-remove" class="sentences">
      {now.slice(0, MOST).map(({ node, hours, monthlyUsd }) => (
        <Row
          key={`${node.cluster} ${node.node}`}
          name={
            <a href={linkToNodes(route, { node: node.node, cluster: node.cluster })} title={node.node}>
              Remove <Name>{shortNode(node.node)}</Name> in node pool <Name>{node.node_pool}</Name>:{" "}
              {counted(hours, "hour")} without pods
              {isReserved(node) && ", reserved until its commitment ends"}
            </a>
          }
        >
          {roundMoney(monthlyUsd, currency, costs)} a month
        </Row>
      ))}
      {pools.slice(0, MOST - Math.min(MOST, now.length)).map(({ cluster, name, emptyMonthlyUsd }) => (
        <Row
          key={`${cluster} ${name}`}
          name={
            <a href={linkToNodes(route, { pool: name, cluster })}>
              Scale down node pool <Name>{name}</Name> in hours without pods: up to
            </a>
          }
        >
          {roundMoney(emptyMonthlyUsd, currency, costs)} a month
        </Row>
      ))}
    </ul>
  );
}

function toSavings({ zone = "" }: Readonly<Record<string, string>>, row: Recommendation): Record<string, string> {
  return { zone, kind: row.kind, cluster: row.subject.cluster, unit: row.subject.business_unit ?? "" };
}

/** The part of the period that is known least, which limits all answers. */
export function leastKnown(coverage: Coverage, totals: FleetTotals): { share: number | null; of: string } {
  const { allocated_gpu_hours: allocated, unmeasured_gpu_hours: unmeasured } = totals;
  const shares: { share: number | null; of: string }[] = [
    { share: ratio(coverage.hours_complete, coverage.hours_expected), of: "of cluster-hours are complete" },
    { share: ratio((allocated ?? 0) - (unmeasured ?? 0), allocated), of: "of allocated GPU-hours are measured" },
    { share: pricedShare(totals), of: "of GPU-hours have a price" },
  ];
  const present = shares.filter(({ share }) => share !== null);
  present.sort((left, right) => (left.share ?? 0) - (right.share ?? 0));
  return present[0] ?? { share: null, of: "" };
}

function Known({ fleet, units, hours }: AnswersData) {
  const route = useRoute();
  const { totals, currency } = fleet;
  const { hours_complete: known, hours_expected: expected } = units.coverage;
  const least = leastKnown(units.coverage, totals);
  const provisional = hours?.rows.filter(({ status }) => status === "provisional").length ?? 0;
  const unpriced = Math.max(totals.unpriced_capacity_gpu_hours ?? 0, totals.unpriced_gpu_hours ?? 0);
  return (
    <Answer
      title="What is known"
      figure={percent(least.share)}
      testId="coverage"
      note={`${least.of}: the least of hours, measurements and prices`}
    >
      <ul>
        <Row
          name={
            <>
              Complete cluster-hours <Help term="cluster-hour" />
            </>
          }
        >
          {known} of {expected}
        </Row>
        <Row
          name={
            totals.unmeasured_usd === 0 ? (
              amountTitle("unmeasured_usd")
            ) : (
              <>
                {amountTitle("unmeasured_usd")}{" "}
                <WhyLink figure="unmeasured_usd" amount={roundMoney(totals.unmeasured_usd, currency)} />
              </>
            )
          }
          testId="unmeasured"
        >
          {roundMoney(totals.unmeasured_usd, currency)}
        </Row>
        <Row name="Without a price">{gpuHours(unpriced, 0)} GPU-hours</Row>
        {provisional > 0 && <Row name="Prices may still change">{provisional} hours</Row>}
      </ul>
      <p class="note">
        <a href={linkTo(route, "health")}>Data health: reasons and what to check</a>
      </p>
    </Answer>
  );
}
