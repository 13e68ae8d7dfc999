// Cost over time, stacked by part of the node cost, as chart and table.

import type { FleetResponse, FleetTotals, HoursResponse, Mark } from "../api";
import { StackedChart } from "../charts/stacked";
import { colored } from "../charts/colors";
import { figureColumn, moneyColumn } from "../columns";
import {
  axisMoney,
  counted,
  dayOf,
  type Figure,
  instant,
  knownParts,
  money,
  moment,
  percent,
  stepName,
} from "../format";
import { changed, go, useFetch, useRoute, useZone } from "../hooks";
import { AMOUNTS, amountTitle, partsOf } from "../identity";
import { Section, Table } from "../parts";
import { linkTo, linkToNodes, type Route } from "../route";
import { align, type Buckets, bucketsOf, endOf, type Grain, isWhole, completeShare } from "../series";
import { Gaps } from "./gaps";

interface Props {
  fleet: FleetResponse;
  grain: Grain;
  hours: HoursResponse | null;
}

/** A table row: a bucket, with or without data. */
interface TableRow extends Partial<FleetTotals> {
  start: string;
  end: string;
  coverage: Figure;
}

export function CostOverTime({ fleet, grain, hours }: Props) {
  const route = useRoute();
  const zone = useZone();
  const { cluster } = route.query;
  const { start, end } = fleet;
  const { response: marks, isLoading } = useFetch(JSON.stringify([start, end, cluster]), async () =>
    (await import("../marks")).fetchMarks(route, { start, end, cluster }, fleet.totals.node_cost_usd !== null),
  );
  const buckets = bucketsOf(fleet.start, fleet.end, grain);
  const rows = align(buckets, fleet.rows.map(knownParts));
  const parts = colored(partsOf([fleet.totals])).map((part) =>
    part.key === "stranded_usd" || part.key === "unallocated_usd" ? { ...part, href: linkToNodes(route) } : part,
  );
  const coverage = completeShare(buckets, hours?.rows ?? null, rows, isWhole(fleet.coverage));
  const tableRows = buckets.starts.map((start, index): TableRow => {
    const period = { start: instant(start), end: instant(endOf(buckets, index)) };
    return { ...period, ...rows[index], coverage: coverage[index] };
  });
  const whole = fleet.totals.node_cost_usd === null ? "allocated_usd" : "node_cost_usd";
  const title = `${amountTitle(whole)} over time`;
  return (
    <Section title={`${title}, by ${stepName(grain)}`}>
      <StackedChart
        label={`${title}, by part`}
        buckets={buckets}
        rows={rows}
        coverage={coverage}
        parts={parts}
        totals={knownParts(fleet.totals)}
        whole={fleet.totals[whole]}
        wholeName={AMOUNTS[whole]}
        show={(figure) => money(figure, fleet.currency)}
        axis={(figure) => axisMoney(figure, fleet.currency)}
        hours={hours?.rows}
        {...(marks === undefined ? {} : { marks })}
        zone={zone}
        onOpen={(start, end) => go(openAt(route, buckets, start, end))}
        onSelect={(start, end) => go(changed(route, { start: instant(start), end: instant(end), window: "" }))}
      />
      <div aria-busy={isLoading}>{marks !== undefined && marks.length > 0 && <Marks marks={marks} />}</div>
      <Gaps hours={hours} />
      <details>
        <summary>Show as table</summary>
        <Table
          name="cost-over-time"
          caption={`${title}, by part`}
          sort="start"
          rows={tableRows}
          rowKey={(row) => row.start}
          columns={[
            {
              key: "start",
              title: grain === "day" ? "UTC day" : "Hour",
              cell: (row) => (
                <a href={openAt(route, buckets, Date.parse(row.start), Date.parse(row.end))}>
                  {grain === "day" ? dayOf(row.start) : moment(row.start, zone)}
                </a>
              ),
              by: (row) => row.start,
            },
            moneyColumn(whole, fleet.currency),
            ...parts.map((part) => moneyColumn<typeof part.key, TableRow>(part.key, fleet.currency)),
            ...(tableRows.every((row) => row.coverage === 1)
              ? []
              : [figureColumn("coverage", "Coverage", (row: TableRow) => row.coverage, percent)]),
          ]}
        />
      </details>
    </Section>
  );
}

/** What happened in the period, in words. */
function Marks({ marks }: { marks: readonly Mark[] }) {
  const zone = useZone();
  return (
    <details data-testid="marks">
      <summary>{counted(marks.length, "event")} on the chart: unusual spending, and prices that began</summary>
      <ul class="notes">
        {marks.map(({ at, text, href }) => (
          <li key={`${at} ${text}`}>
            {moment(at, zone)}: {href === undefined ? text : <a href={href}>{text}</a>}
          </li>
        ))}
      </ul>
    </details>
  );
}

/** An hour opens the hour view; a day becomes the selected period. */
export function openAt(
  route: Route,
  buckets: Buckets,
  start: number,
  end: number,
  query: Record<string, string> = {},
): string {
  if (buckets.step === "hour") return linkTo(route, "hour", instant(start), query);
  return changed(route, { start: instant(start), end: instant(end), window: "", grain: "hour" });
}
