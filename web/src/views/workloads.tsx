// A business unit's workloads with allocated and effective costs.

import type { CostRow, CostsResponse, HoursResponse, RecommendationsResponse } from "../api";
import { figureColumn, gpuHoursColumn, linkToPods, moneyColumn, unmeasuredColumns, useColumn } from "../columns";
import { isMeasured, knownFigure, money, NOT_MEASURED, roundMoney } from "../format";
import { useRoute } from "../hooks";
import { Name, Table } from "../parts";
import { linkTo } from "../route";
import { commonFinding, findingFor, KINDS, openFor } from "../savings";
import { pricedShare } from "../series";
import { hoursByCluster, monthlyWaste } from "../waste";
import { saved } from "./recommendations";
import { WhyLink } from "./figure";

const MOST = 10;

interface Props {
  whole: CostsResponse;
  rows: readonly CostRow[];
  hours: HoursResponse | null;
  recommendations: RecommendationsResponse | null;
}

export function Workloads({ whole, rows, hours: statuses, recommendations }: Props) {
  const route = useRoute();
  const { currency } = whole;
  const why = (group: CostRow["group"]) =>
    linkToPods(route, whole, {
      unit: route.name,
      namespace: group["namespace"] ?? "",
      workload: group["workload"] ?? "",
      cluster: group["cluster"] ?? "",
    });
  const complete = hoursByCluster(statuses?.rows ?? null);
  const several = new Set(rows.map((row) => row.group["cluster"])).size > 1;
  const perMonth = (row: CostRow) => {
    const single = several ? 0 : whole.coverage.hours_complete;
    const hours = complete?.get(row.group["cluster"] ?? "") ?? single;
    return monthlyWaste(knownFigure(row, "waste_usd"), hours * pricedShare(row));
  };
  const unmeasured = (row: CostRow) => (isMeasured(row) ? undefined : NOT_MEASURED);
  const subjectOf = ({ group }: CostRow) => ({
    cluster: group["cluster"] ?? "",
    namespace: group["namespace"] ?? "",
    workload: group["workload"] ?? "",
  });
  const recommendationOf = (row: CostRow) => openFor(recommendations?.rows ?? [], subjectOf(row));
  const findings = new Map(rows.map((row) => [row, findingFor(recommendations?.findings ?? [], subjectOf(row))]));
  const common = rows.some(recommendationOf) ? null : commonFinding([...findings.values()]);
  const table = (
    <Table
      name="workloads"
      caption="Workloads by waste. Waste per month: at this period's rate, for 730 hours"
      sort="-waste_usd"
      most={MOST}
      rows={rows}
      rowKey={(row) => Object.values(row.group).join("\n")}
      columns={[
        {
          key: "workload",
          title: "Workload",
          cell: ({ group }) => (
            <>
              <a href={why(group)}>
                <Name>{group["workload"] ?? ""}</Name>
              </a>
              <span class="note below">
                {group["workload_kind"]} in <Name>{group["namespace"] ?? ""}</Name>
                {several && (
                  <>
                    , <Name>{group["cluster"] ?? ""}</Name>
                  </>
                )}
              </span>
            </>
          ),
          by: ({ group }) => group["workload"] ?? "",
        },
        {
          key: "waste_usd",
          title: "Waste",
          isFigure: true,
          cell: (row) => (
            <>
              {money(row.waste_usd, currency)}{" "}
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
            </>
          ),
          by: (row) => knownFigure(row, "waste_usd"),
          unknown: unmeasured,
        },
        {
          ...figureColumn("monthly", "Waste per month", perMonth, (usd) => roundMoney(usd, currency)),
          unknown: unmeasured,
        },
        {
          key: "allocated_usd",
          title: "Allocated",
          isFigure: true,
          cell: (row) => (
            <a href={why(row.group)} title="How this cost was calculated">
              {money(row.allocated_usd, currency)}
            </a>
          ),
          by: (row) => row.allocated_usd,
        },
        moneyColumn("effective_usd", "Effective", currency),
        ...unmeasuredColumns(rows, currency),
        gpuHoursColumn(),
        useColumn(),
        {
          key: "recommendation",
          title: "Recommendation",
          cell: (row) => {
            const top = recommendationOf(row);
            return top === undefined ? (
              <span class="wrapped unknown">{(common === null && findings.get(row)) || "–"}</span>
            ) : (
              <a class="wrapped" href={linkTo(route, "savings", "", { unit: route.name, kind: top.kind })}>
                {KINDS[top.kind]}, {saved(top.saving.usd, top.currency)}
              </a>
            );
          },
          by: (row) => recommendationOf(row)?.saving.usd ?? null,
        },
      ]}
    />
  );
  return (
    <>
      {common !== null && (
        <p class="note" data-testid="common-finding">
          No workload has a recommendation. {common}.
        </p>
      )}
      {table}
    </>
  );
}
