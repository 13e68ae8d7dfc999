// What each business unit would be charged under each split policy, for the same hours.

import { useRef } from "preact/hooks";
import { fetchAll, fetchJson, ifAllowed, type SplitPoliciesResponse } from "../api";
import { figureColumn, nameColumn } from "../columns";
import { counted, DAY, type Figure, moment, money, percent, ratio, roundMoney, signed } from "../format";
import { useFetch, useRoute, useZone } from "../hooks";
import { amountTitle } from "../identity";
import {
  type Column,
  Empty,
  ExcelButton,
  Help,
  Name,
  Section,
  SPLIT_POLICIES,
  SplitPolicy,
  Table,
  UnpricedNote,
  View,
} from "../parts";
import { lengthOf, MOST_DAYS } from "../periods";
import { linkTo, periodOf, type Route, windowOf } from "../route";
import {
  comparedPeriod,
  IDLE_PARTS,
  largestChange,
  type PolicySums,
  policySums,
  type UnitCharges,
  unitCharges,
  weeksOf,
} from "../split-policies";
import { type Cell, periodCells } from "../spreadsheet";

const MOST_PAGES = 60;

interface ViewData {
  response: SplitPoliciesResponse;
  /** Whether only the last days of the period are compared. */
  isCut: boolean;
}

async function fetchSplits(route: Route): Promise<ViewData | null> {
  const { cluster } = route.query;
  const { start, end } = await fetchJson("v1/fleet", { ...periodOf(route), cluster });
  const compared = comparedPeriod({ start, end });
  const weeks = await ifAllowed(
    Promise.all(weeksOf(compared).map((week) => fetchAll("v1/split-policies", { ...week, cluster }, MOST_PAGES))),
  );
  const [first] = weeks ?? [];
  if (weeks === null || first === undefined) return null;
  const rows = weeks.flatMap((week) => week.rows);
  const cursor = weeks.find((week) => week.cursor !== null)?.cursor ?? null;
  return { response: { ...first, ...compared, rows, cursor }, isCut: compared.start !== start };
}

export function SplitPolicies() {
  const route = useRoute();
  const request = useFetch(JSON.stringify([periodOf(route), route.query["cluster"]]), () => fetchSplits(route));
  const isLong = lengthOf(windowOf(route), Date.now()) > 7 * DAY;
  const controls = request.isLoading && isLong && (
    <p class="note">Each hour is rated with every policy: a month takes up to a minute.</p>
  );
  return (
    <View title="Split policies" controls={controls} request={request}>
      {(viewData) =>
        viewData === null ? <Empty>Your role may not compare split policies.</Empty> : <Shown {...viewData} />
      }
    </View>
  );
}

function Shown({ response, isCut }: ViewData) {
  const route = useRoute();
  const zone = useZone();
  const inOrder = useRef<readonly UnitCharges[]>([]);
  const policies = policySums(response.rows);
  const units = unitCharges(response.rows);
  const inForce = policies[0];
  const currency = response.rows[0]?.currency ?? "USD";
  if (inForce === undefined || policies.every(({ hours }) => hours === 0)) {
    return (
      <Empty>
        No hour of this period has stored usage, from which a policy could be rated. See{" "}
        <a href={linkTo(route, "health")}>Data health</a>, or select another period.
      </Empty>
    );
  }
  const change = largestChange(units, inForce.policy);
  // Notes on prices that all policies have say nothing about a policy.
  const isOfAll = (note: string) => policies.every((policy) => policy.notes.includes(note));
  const notes = [...new Set(policies.flatMap((policy) => policy.notes))].filter((note) => !isOfAll(note));
  return (
    <>
      <p data-testid="in-force">
        In force: <SplitPolicy name={inForce.policy} />. The same usage and the same node prices, of{" "}
        {moment(response.start, zone)} to {moment(response.end, zone)}
        {isCut && `, the last ${MOST_DAYS.splits} days of the period`}
        {", "}
        {counted(inForce.hours, "cluster-hour")}.
      </p>
      {response.cursor !== null && (
        <p class="note unpriced" role="status">
          The period is too large to compare here: later hours are missing. Select a cluster or a shorter period.
        </p>
      )}
      {change !== undefined && (
        <p data-testid="largest-change">
          The largest change: <Name>{change.unit}</Name> would pay {roundMoney(change.to, currency)} under{" "}
          {change.policy} and pays {roundMoney(change.from, currency)} now.
        </p>
      )}
      <UnpricedNote totals={inForce} />
      <Section
        title="Cost of business units"
        aside={
          <ExcelButton
            save={({ saveWorkbook }) =>
              saveWorkbook("split-policies", response, cellsOf(response, policies, currency), inOrder.current)
            }
          />
        }
      >
        <Units units={units} policies={policies} currency={currency} inOrder={inOrder} />
        <ul class="notes" data-testid="split-meanings">
          {policies.map(({ policy }) => (
            <li key={policy}>
              <strong>{policy}</strong>: {SPLIT_POLICIES[policy] ?? "as the settings define it"}
            </li>
          ))}
        </ul>
      </Section>
      <Section title="Parts of the node cost">
        <Parts policies={policies} currency={currency} />
      </Section>
      {notes.length > 0 && (
        <ul class="notes" data-testid="split-notes">
          {notes.map((note) => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
      <details>
        <summary>How to change the policy</summary>
        <ol>
          <li>
            Set <code>pricing.split</code> in the settings, such as <code>{"pricing: {split: scad}"}</code>, and run{" "}
            <code class="command">gpucost settings push</code>. Hours from then on are rated with it.
          </li>
          <li>
            For past hours, run <code class="command">gpucost hours restate</code> with <code>--settings current</code>.
            Closed months keep their figures.
          </li>
        </ol>
      </details>
    </>
  );
}

const titleOf = ({ policy, isInForce }: PolicySums) => (isInForce ? `${policy} (in force)` : policy);

function Units(props: {
  units: readonly UnitCharges[];
  policies: readonly PolicySums[];
  currency: string;
  inOrder: { current: readonly UnitCharges[] };
}) {
  const { units, policies, currency, inOrder } = props;
  const route = useRoute();
  const inForce = policies[0]?.policy ?? "";
  const columns: Column<UnitCharges>[] = [
    nameColumn(
      "unit",
      "Business unit",
      ({ unit }) => unit,
      ({ unit }) => linkTo(route, "unit", unit),
    ),
    ...policies.map((policy): Column<UnitCharges> => {
      const chargeOf = ({ charges }: UnitCharges) => charges[policy.policy] ?? null;
      return {
        ...figureColumn<UnitCharges>(policy.policy, titleOf(policy), chargeOf, (usd) => money(usd, currency)),
        cell: (row) => (
          <>
            {money(chargeOf(row), currency)}
            {!policy.isInForce && <Difference from={row.charges[inForce]} to={chargeOf(row)} currency={currency} />}
          </>
        ),
        unknown: (row) => (chargeOf(row) === null ? "the policy needs a price or a shape that is unknown" : undefined),
      };
    }),
  ];
  return (
    <Table
      name="split-units"
      inOrder={inOrder}
      caption="Allocated cost under each split policy, and the difference from the one in force"
      sort={`-${inForce}`}
      rows={units}
      rowKey={({ unit }) => unit}
      columns={columns}
    />
  );
}

function Difference({ from, to, currency }: { from: Figure; to: Figure; currency: string }) {
  if (from == null || to == null || from === to) return null;
  return <small class="unknown"> {signed(to - from, (usd) => money(usd, currency))}</small>;
}

function Parts({ policies, currency }: { policies: readonly PolicySums[]; currency: string }) {
  const part = (key: string, title: string, of: (row: PolicySums) => Figure): Column<PolicySums> => ({
    ...figureColumn<PolicySums>(key, title, of, (usd) => money(usd, currency)),
    cell: (row) => (
      <>
        {money(of(row), currency)}
        {key !== "node" && <small class="unknown"> {percent(ratio(of(row), row.nodeCost))}</small>}
      </>
    ),
  });
  return (
    <>
      <Table
        name="split-parts"
        caption="The node cost is the same under every policy; what changes is who bears it"
        sort="-allocated"
        rows={policies}
        rowKey={({ policy }) => policy}
        columns={[
          nameColumn("policy", "Split policy", titleOf),
          part("node", amountTitle("node_cost_usd"), (row) => row.nodeCost),
          part("allocated", amountTitle("allocated_usd"), (row) => row.allocatedCost),
          ...IDLE_PARTS.filter((key) => policies.some(({ idle }) => (idle[key] ?? 1) > 0.005)).map((key) =>
            part(key, amountTitle(key), ({ idle }) => idle[key]),
          ),
        ]}
      />
      <p class="note">
        No business unit bears the idle cost, which is all but the allocated cost <Help term="idle" />. The host cost is
        that of CPU and memory, for what else runs on the nodes <Help term="host" />.
      </p>
    </>
  );
}

/** The columns of the file. */
function cellsOf(
  { start, end }: SplitPoliciesResponse,
  policies: readonly PolicySums[],
  currency: string,
): Cell<UnitCharges>[] {
  return [
    { title: "Business unit", kind: "text", of: ({ unit }) => unit },
    ...periodCells<UnitCharges>(start, end),
    ...policies.map((policy): Cell<UnitCharges> => ({
      title: `${titleOf(policy)} (${currency})`,
      kind: "number",
      of: ({ charges }) => charges[policy.policy] ?? null,
    })),
  ];
}
