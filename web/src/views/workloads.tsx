// A business unit's workloads with allocated and effective costs.

import {
  type CostRow,
  type CostsResponse,
  type HoursResponse,
  MAX_DETAIL_HOURS,
  type RecommendationsResponse,
} from "../api";
import { clusterColumns, figureColumn, gpuHoursColumn, groupColumn, measuredColumn, useColumn } from "../columns";
import { HOUR, instant, money } from "../format";
import { useRoute } from "../hooks";
import { Table } from "../parts";
import { linkTo } from "../route";
import { findingFor, KINDS, openFor } from "../savings";
import { pricedShare } from "../series";
import { hoursByCluster, monthlyWaste } from "../waste";
import { saved } from "./recommendations";
import { WhyLink } from "./figure";

interface Props {
  whole: CostsResponse;
  rows: readonly CostRow[];
  hours: HoursResponse | null;
  recommendations: RecommendationsResponse | null;
}

export function Workloads({ whole, rows, hours: statuses, recommendations }: Props) {
  const route = useRoute();
  const { currency } = whole;
  const hours = (Date.parse(whole.end) - Date.parse(whole.start)) / HOUR;
  const shown = hours <= MAX_DETAIL_HOURS ? hours : 24; // the last day of a longer period
  const first = instant(Date.parse(whole.end) - shown * HOUR);
  const why = (row: CostRow) =>
    linkTo(route, "hour", first, {
      hours: String(shown),
      unit: route.name,
      namespace: row.group["namespace"] ?? "",
      workload: row.group["workload"] ?? "",
      cluster: row.group["cluster"] ?? "",
    });
  const complete = hoursByCluster(statuses?.rows ?? null);
  const clusters = new Set(rows.map((row) => row.group["cluster"])).size;
  const ignored = (row: CostRow) => {
    const single = clusters === 1 ? whole.coverage.hours_complete : 0;
    const hours = complete?.get(row.group["cluster"] ?? "") ?? single;
    return monthlyWaste(row.waste_usd, hours * pricedShare(row));
  };
  const subjectOf = ({ group }: CostRow) => ({
    cluster: group["cluster"] ?? "",
    namespace: group["namespace"] ?? "",
    workload: group["workload"] ?? "",
  });
  const recommendationOf = (row: CostRow) => openFor(recommendations?.rows ?? [], subjectOf(row));
  return (
    <Table
      name="workloads"
      caption="Workloads by waste. Waste per month: what it costs to ignore it, at this period's rate"
      sort="-waste_usd"
      rows={rows}
      rowKey={(row) => Object.values(row.group).join("\n")}
      columns={[
        groupColumn("workload", "Workload", why),
        groupColumn("workload_kind", "Kind"),
        groupColumn("namespace", "Namespace"),
        ...clusterColumns(rows, (row) => row.group["cluster"] ?? ""),
        {
          key: "allocated_usd",
          title: "Allocated",
          isFigure: true,
          cell: (row) => (
            <a href={why(row)} title="How this cost was calculated">
              {money(row.allocated_usd, currency)}
            </a>
          ),
          by: (row) => row.allocated_usd,
        },
        measuredColumn("effective_usd", "Effective", currency),
        useColumn(),
        measuredColumn("waste_usd", "Waste", currency),
        figureColumn("ignored", "Waste per month", ignored, (usd) => money(usd, currency)),
        {
          key: "recommendation",
          title: "Recommendation",
          cell: (row) => {
            const top = recommendationOf(row);
            return top === undefined ? (
              <span class="wrapped unknown">{findingFor(recommendations?.findings ?? [], subjectOf(row)) ?? "–"}</span>
            ) : (
              <a class="wrapped" href={linkTo(route, "savings", "", { unit: route.name, kind: top.kind })}>
                {KINDS[top.kind]}, {saved(top.saving.usd, top.currency)}
              </a>
            );
          },
          by: (row) => recommendationOf(row)?.saving.usd ?? null,
        },
        gpuHoursColumn(),
        {
          key: "why",
          title: "Why",
          cell: (row) => (
            <WhyLink
              figure="waste_usd"
              amount={`${row.group["workload"] ?? ""}: ${money(row.waste_usd, currency)}`}
              scope={{
                unit: route.name,
                cluster: row.group["cluster"],
                namespace: row.group["namespace"],
                workload: row.group["workload"],
              }}
            />
          ),
        },
      ]}
    />
  );
}
