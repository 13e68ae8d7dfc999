// Cost over time, stacked into what became of it; also as a table.

import type { FleetAnswer, HoursAnswer, Totals } from "../api";
import { StackedChart } from "../charts/stacked";
import { moneyColumn } from "../columns";
import { instant, moment, utcDay } from "../format";
import { changed, go, useRoute, useZone } from "../hooks";
import { partsOf } from "../identity";
import { Section, Table } from "../parts";
import { linkTo, type Route } from "../route";
import { align, type Buckets, bucketsOf, type Grain, isWhole, knownShare } from "../series";

interface Props {
  fleet: FleetAnswer;
  grain: Grain;
  hours: HoursAnswer | null;
}

export function CostOverTime({ fleet, grain, hours }: Props) {
  const route = useRoute();
  const zone = useZone();
  const buckets = bucketsOf(fleet.start, fleet.end, grain);
  const rows = align(buckets, fleet.rows);
  const parts = partsOf([fleet.totals]);
  return (
    <Section title="Cost over time">
      <StackedChart
        label="Cost over time, stacked into what became of it"
        buckets={buckets}
        rows={rows}
        known={knownShare(buckets, hours?.rows ?? null, rows, isWhole(fleet.coverage))}
        parts={parts}
        currency={fleet.currency}
        zone={zone}
        onOpen={(start, end) => go(openAt(route, buckets, start, end))}
        onSelect={(start, end) => go(changed(route, { start: instant(start), end: instant(end), window: "" }))}
      />
      <details>
        <summary>As a table</summary>
        <Table
          name="cost-over-time"
          caption="Cost over time, by what became of it"
          sort="start"
          rows={fleet.rows}
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
            ...parts.map((part) =>
              moneyColumn<keyof Totals, Totals & { start: string; end: string }>(part.key, part.name, fleet.currency),
            ),
            moneyColumn("node_cost_usd", "node cost", fleet.currency),
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
