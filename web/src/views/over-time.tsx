// Cost over time, stacked into what became of it; also as a table.

import type { FleetAnswer, HoursAnswer, Totals } from "../api";
import { StackedChart } from "../charts/stacked";
import { figureColumn, moneyColumn } from "../columns";
import { type Figure, instant, moment, percent, utcDay } from "../format";
import { changed, go, useRoute, useZone } from "../hooks";
import { partsOf } from "../identity";
import { Section, Table } from "../parts";
import { linkTo, type Route } from "../route";
import { align, type Buckets, bucketsOf, endOf, type Grain, isWhole, knownShare } from "../series";
import { Gaps } from "./gaps";

interface Props {
  fleet: FleetAnswer;
  grain: Grain;
  hours: HoursAnswer | null;
}

/** A bucket, also one of which nothing is known. */
interface Told extends Partial<Totals> {
  start: string;
  end: string;
  known: Figure;
}

export function CostOverTime({ fleet, grain, hours }: Props) {
  const route = useRoute();
  const zone = useZone();
  const buckets = bucketsOf(fleet.start, fleet.end, grain);
  const rows = align(buckets, fleet.rows);
  const parts = partsOf([fleet.totals]);
  const known = knownShare(buckets, hours?.rows ?? null, rows, isWhole(fleet.coverage));
  const told = buckets.starts.map((start, place): Told => {
    const period = { start: instant(start), end: instant(endOf(buckets, place)) };
    return { ...period, ...rows[place], known: known[place] };
  });
  return (
    <Section title="Cost over time">
      <StackedChart
        label="Cost over time, stacked into what became of it"
        buckets={buckets}
        rows={rows}
        known={known}
        parts={parts}
        totals={fleet.totals}
        whole={fleet.totals.node_cost_usd ?? fleet.totals.allocated_usd}
        currency={fleet.currency}
        zone={zone}
        onOpen={(start, end) => go(openAt(route, buckets, start, end))}
        onSelect={(start, end) => go(changed(route, { start: instant(start), end: instant(end), window: "" }))}
      />
      <Gaps hours={hours} />
      <details>
        <summary>As a table</summary>
        <Table
          name="cost-over-time"
          caption="Cost over time, by what became of it"
          sort="start"
          rows={told}
          rowKey={(row) => row.start}
          columns={[
            {
              key: "start",
              title: "From",
              cell: (row) => (
                <a href={openAt(route, buckets, Date.parse(row.start), Date.parse(row.end))}>
                  {grain === "day" ? utcDay(row.start) : moment(row.start, zone)}
                </a>
              ),
              by: (row) => row.start,
            },
            ...parts.map((part) => moneyColumn<keyof Totals, Told>(part.key, part.name, fleet.currency)),
            moneyColumn("node_cost_usd", "node cost", fleet.currency),
            ...(told.every((row) => row.known === 1)
              ? []
              : [figureColumn("known", "known", (row: Told) => row.known, percent)]),
          ]}
        />
      </details>
    </Section>
  );
}

/** An hour opens as it is; a day becomes the period. */
export function openAt(
  route: Route,
  buckets: Buckets,
  start: number,
  end: number,
  query: Record<string, string> = {},
): string {
  if (buckets.step <= 3_600_000) return linkTo(route, "hour", instant(start), query);
  return changed(route, { start: instant(start), end: instant(end), window: "", grain: "hour" });
}
