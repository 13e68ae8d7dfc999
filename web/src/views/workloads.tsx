// A business unit's workloads with allocated and effective costs.

import type { CostRow, CostsResponse, HoursResponse, RecommendationsResponse } from "../api";
import { figureColumn, gpuHoursColumn, linkToPods, moneyColumn, unmeasuredColumns, useColumn } from "../columns";
import { type ExploreRow, groupJobs, jobsText } from "../explore";
import { counted, isMeasured, knownFigure, money, NOT_MEASURED, roundMoney } from "../format";
import { useRoute } from "../hooks";
import { amountTitle } from "../identity";
import { Name, Table } from "../parts";
import { linkTo } from "../route";
import { KINDS } from "../recommendation-kinds";
import { commonFinding, findingFor, openFor } from "../savings";
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
  inOrder: { current: readonly ExploreRow[] };
}

/** Rows of workloads with their Jobs folded as in Explore. */
export function foldedWorkloads(rows: readonly CostRow[]): ExploreRow[] {
  return groupJobs(rows, ({ group }) => group["workload_kind"] === "Job");
}

export function Workloads({ whole, rows: workloads, hours: statuses, recommendations, inOrder }: Props) {
  const route = useRoute();
  const rows = foldedWorkloads(workloads);
  const { currency } = whole;
  const why = (group: CostRow["group"]) =>
    linkToPods(route, whole, {
      unit: route.name,
      namespace: group["namespace"] ?? "",
      workload: group["workload"] ?? "",
      cluster: group["cluster"] ?? "",
    });
  const complete = hoursByCluster(statuses?.rows ?? null);
  const several = new Set(workloads.map((row) => row.group["cluster"])).size > 1;
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
  const recommendationsOf = (row: ExploreRow) =>
    (row.jobs ?? [row]).flatMap((workload) => openFor(recommendations?.rows ?? [], subjectOf(workload)) ?? []);
  const savedBy = (row: ExploreRow) => recommendationsOf(row).reduce((sum, { saving }) => sum + saving.usd, 0);
  const findingOf = (row: CostRow) => (recommendations === null ? null : findingFor(recommendations, subjectOf(row)));
  const hasRecommendation = workloads.some((row) => recommendationsOf(row).length > 0);
  const common = hasRecommendation ? null : commonFinding(workloads.map(findingOf));
  const table = (
    <Table<ExploreRow>
      name="workloads"
      inOrder={inOrder}
      caption={["Workloads by waste", "Waste per month: at this period's rate, for 730 hours", jobsText(rows)]
        .filter(Boolean)
        .join(". ")}
      sort="-waste_usd"
      most={MOST}
      rows={rows}
      rowKey={(row) => Object.values(row.group).join("\n")}
      within={({ jobs }) => jobs ?? []}
      columns={[
        {
          key: "workload",
          title: "Workload",
          cell: ({ group, jobs }) => (
            <>
              {jobs === undefined ? (
                <a href={why(group)}>
                  <Name>{group["workload"] ?? ""}</Name>
                </a>
              ) : (
                <Name>{group["workload"] ?? ""}</Name>
              )}
              <span class="note below">
                {jobs === undefined ? group["workload_kind"] : counted(jobs.length, "Job")} in{" "}
                <Name>{group["namespace"] ?? ""}</Name>
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
          title: amountTitle("waste_usd"),
          isFigure: true,
          cell: (row) => (
            <>
              {money(row.waste_usd, currency)}{" "}
              {row.jobs === undefined && (
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
              )}
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
          title: amountTitle("allocated_usd"),
          isFigure: true,
          cell: (row) =>
            row.jobs === undefined ? (
              <a href={why(row.group)} title="How this cost was calculated">
                {money(row.allocated_usd, currency)}
              </a>
            ) : (
              money(row.allocated_usd, currency)
            ),
          by: (row) => row.allocated_usd,
        },
        moneyColumn("effective_usd", currency),
        ...unmeasuredColumns(workloads, currency),
        gpuHoursColumn(),
        useColumn(),
        {
          key: "recommendation",
          title: "Recommendation",
          cell: (row) => {
            const [first, ...others] = recommendationsOf(row);
            const finding = row.jobs === undefined ? findingOf(row) : commonFinding(row.jobs.map(findingOf));
            return first === undefined ? (
              <span class="wrapped unknown">{(common === null && finding) || "–"}</span>
            ) : others.length > 0 ? (
              <a class="wrapped" href={linkTo(route, "savings", "", { unit: route.name })}>
                {counted(1 + others.length, "recommendation")}, {saved(savedBy(row), first.currency)}
              </a>
            ) : (
              <a class="wrapped" href={linkTo(route, "savings", "", { unit: route.name, kind: first.kind })}>
                {KINDS[first.kind]}, {saved(first.saving.usd, first.currency)}
              </a>
            );
          },
          by: (row) => (recommendationsOf(row).length === 0 ? null : savedBy(row)),
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
