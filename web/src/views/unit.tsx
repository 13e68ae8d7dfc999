// A business unit: its cost over time, its workloads, what they run on, its month against its budget, its alerts.

import {
  type Alert,
  ask,
  askAlerts,
  askAll,
  askHours,
  askIfAllowed,
  type CostRow,
  type CostsAnswer,
  type HoursAnswer,
} from "../api";
import { StackedChart } from "../charts/stacked";
import { gpuHoursColumn, moneyColumn } from "../columns";
import { change, gpuHours, instant, money, percent, ratio, utilization } from "../format";
import { changed, go, useAnswer, useRoute, useZone } from "../hooks";
import { PARTS, partsOf } from "../identity";
import { DownloadButton, Empty, Name, Section, Stat, Table, Waiting } from "../parts";
import { exactly, linkTo, periodOf, type Route } from "../route";
import { align, bucketsOf, type Grain, grainOf, isWhole, knownShare } from "../series";
import { Alerts } from "./alerts";
import { askMonth, Budget, type Month } from "./budget";
import { type Recommendation, Recommendations } from "./recommendations";
import { openAt } from "./overview";

interface Answers {
  grain: Grain;
  total: CostRow | undefined;
  whole: CostsAnswer;
  before: CostsAnswer;
  byTime: CostsAnswer;
  workloads: CostsAnswer;
  hardware: CostsAnswer;
  hours: HoursAnswer | null;
  month: Month;
  alerts: Alert[];
  recommendations: { rows: Recommendation[] } | null;
}

async function askUnit(route: Route): Promise<Answers> {
  const cluster = route.query["cluster"];
  const own = { cluster, business_unit: exactly(route.name) };
  const whole = await ask<CostsAnswer>("v1/costs", {
    ...periodOf(route),
    ...own,
    granularity: "total",
    group_by: "business_unit",
  });
  const { start, end } = whole;
  const period = { start, end };
  const length = Date.parse(end) - Date.parse(start);
  const grain = grainOf(length / 3_600_000, route.query["grain"]);
  const [before, byTime, workloads, hardware, hours, month, alerts, recommendations] = await Promise.all([
    ask<CostsAnswer>("v1/costs", {
      ...own,
      start: instant(Date.parse(start) - length),
      end: start,
      granularity: "total",
    }),
    ask<CostsAnswer>("v1/costs", { ...own, ...period, granularity: grain }),
    askAll<CostRow, CostsAnswer>(
      "v1/costs",
      {
        ...own,
        ...period,
        granularity: "total",
        group_by: "cluster,namespace,workload_kind,workload",
        sort: "-allocated_usd",
        limit: "1000",
      },
      1,
    ),
    ask<CostsAnswer>("v1/costs", {
      ...own,
      ...period,
      granularity: "total",
      group_by: "gpu_model,node_pool,capacity_type",
      sort: "-allocated_usd",
    }),
    askHours({ ...period, cluster }, whole.coverage),
    askMonth(route.name),
    askAlerts(end),
    askIfAllowed<{ rows: Recommendation[] }>("v1/recommendations", { business_unit: exactly(route.name), cluster }),
  ]);
  return {
    grain,
    whole,
    total: whole.rows[0],
    before,
    byTime,
    workloads,
    hardware,
    hours,
    month,
    recommendations,
    alerts: alerts.filter((alert) => alert.about["business_unit"] === route.name),
  };
}

export function Unit() {
  const route = useRoute();
  const { query } = route;
  const question = JSON.stringify([route.name, periodOf(route), query["cluster"], query["grain"]]);
  const asked = useAnswer(question, () => askUnit(route));
  return (
    <>
      <h1>
        Business unit <Name>{route.name}</Name>
      </h1>
      <Waiting asked={asked}>{(answers) => <Shown {...answers} />}</Waiting>
    </>
  );
}

function Shown(props: Answers) {
  const route = useRoute();
  const { total, before, whole, month } = props;
  const { currency } = whole;
  const old = before.rows[0]?.allocated_usd;
  const areWhole = isWhole(whole.coverage) && isWhole(before.coverage);
  const since = areWhole && total?.allocated_usd != null && old != null ? ratio(total.allocated_usd - old, old) : null;
  if (whole.coverage.hours_complete === 0) return <Empty>Nothing is known of this period yet.</Empty>;
  if (total === undefined) {
    return (
      <>
        <Empty>It held no GPU in this period.</Empty>
        <Budget month={month} />
      </>
    );
  }
  return (
    <>
      <dl class="stats">
        <Stat
          name="Allocated"
          value={money(total.allocated_usd, currency)}
          note={`${change(since)} since the period before`}
          testId="allocated"
        />
        <Stat name="Effective" value={money(total.effective_usd, currency)} testId="effective" />
        <Stat
          name="Waste"
          value={money(total.waste_usd, currency)}
          note={`${percent(ratio(total.waste_usd, total.allocated_usd))} of what was held`}
          testId="waste"
        />
        <Stat name="Unmeasured" value={money(total.unmeasured_usd, currency)} />
        <Stat name="GPU-hours" value={gpuHours(total.allocated_gpu_hours)} testId="gpu-hours" />
        <Stat name="Utilization" value={percent(utilization(total))} note="of what was held and observed" />
      </dl>
      <OverTime {...props} />
      <Section
        title="Workloads"
        aside={
          <DownloadButton
            path="v1/costs"
            parameters={{
              start: whole.start,
              end: whole.end,
              cluster: route.query["cluster"],
              business_unit: exactly(route.name),
              granularity: "total",
              group_by: "cluster,namespace,workload_kind,workload",
              sort: "-allocated_usd",
            }}
            file={`${route.name.replace(/[^A-Za-z0-9-]+/g, "-")}.csv`}
          />
        }
      >
        <Workloads {...props} />
      </Section>
      <Section title="GPU models and node pools">
        <Hardware {...props} />
      </Section>
      <Budget month={month} />
      <Section title="Recommendations">
        <Recommendations rows={props.recommendations?.rows ?? []} />
      </Section>
      <Section title="Active alerts">
        <Alerts alerts={props.alerts} />
      </Section>
    </>
  );
}

function OverTime({ whole, byTime, grain, hours }: Answers) {
  const route = useRoute();
  const zone = useZone();
  const buckets = bucketsOf(whole.start, whole.end, grain);
  const found = align(buckets, byTime.rows);
  const known = knownShare(buckets, hours?.rows ?? null, found);
  // Of an hour that is known, no row says that the unit held nothing: that is a zero, and no gap.
  const nothing = { effective_usd: 0, waste_usd: 0, unmeasured_usd: 0 };
  const rows = found.map((row, place) => row ?? (hours !== null && (known[place] ?? 0) > 0 ? nothing : undefined));
  return (
    <Section title="Cost over time">
      <StackedChart
        label="Cost of this business unit over time: effective, waste, unmeasured"
        buckets={buckets}
        rows={rows}
        known={known}
        parts={partsOf(byTime.rows, PARTS.slice(0, 3))}
        currency={whole.currency}
        zone={zone}
        onOpen={(start, end) => go(openAt(route, buckets, start, end, { unit: route.name }))}
        onSelect={(start, end) => go(changed(route, { start: instant(start), end: instant(end), window: "" }))}
      />
    </Section>
  );
}

const MOST_HOURS_OF_LINES = 48;

function Workloads({ whole, workloads }: Answers) {
  const route = useRoute();
  const { currency } = whole;
  const hours = (Date.parse(whole.end) - Date.parse(whole.start)) / 3_600_000;
  // Lines are answered for two days at most: of longer periods, the last day's are shown.
  const shown = hours <= MOST_HOURS_OF_LINES ? hours : 24;
  const first = instant(Date.parse(whole.end) - shown * 3_600_000);
  const why = (row: CostRow) =>
    linkTo(route, "hour", first, {
      hours: String(shown),
      unit: route.name,
      namespace: row.group["namespace"] ?? "",
      workload: row.group["workload"] ?? "",
      cluster: row.group["cluster"] ?? "",
    });
  const name = (key: string) => (row: CostRow) => row.group[key] ?? "";
  return (
    <Table
      name="workloads"
      caption="Workloads: what they held beside what they used"
      sort="-allocated_usd"
      rows={workloads.rows}
      rowKey={(row) => Object.values(row.group).join("\n")}
      columns={[
        {
          key: "workload",
          title: "Workload",
          cell: (row) => (
            <a href={why(row)}>
              <Name>{name("workload")(row)}</Name>
            </a>
          ),
          by: name("workload"),
        },
        {
          key: "workload_kind",
          title: "Kind",
          cell: (row) => <Name>{name("workload_kind")(row)}</Name>,
          by: name("workload_kind"),
        },
        {
          key: "namespace",
          title: "Namespace",
          cell: (row) => <Name>{name("namespace")(row)}</Name>,
          by: name("namespace"),
        },
        {
          key: "allocated_usd",
          title: "Allocated",
          isFigure: true,
          cell: (row) => (
            <a href={why(row)} title="Why?">
              {money(row.allocated_usd, currency)}
            </a>
          ),
          by: (row) => row.allocated_usd,
        },
        moneyColumn("effective_usd", "Effective", currency),
        { key: "use", title: "Used", cell: (row) => <Bar row={row} />, by: utilization },
        moneyColumn("waste_usd", "Waste", currency),
        gpuHoursColumn(),
      ]}
    />
  );
}

/** Allocated as the whole bar, effective as the filled part of it; what nobody observed is hatched. */
function Bar({ row }: { row: CostRow }) {
  const used = ratio(row.effective_gpu_hours, row.allocated_gpu_hours) ?? 0;
  const unmeasured = ratio(row.unmeasured_gpu_hours, row.allocated_gpu_hours) ?? 0;
  return (
    <span class="bar">
      <span class="used" style={{ width: `${100 * used}%` }} />
      <span class="missing" style={{ width: `${100 * unmeasured}%` }} />
      <span class="number">{percent(utilization(row))}</span>
    </span>
  );
}

function Hardware({ whole, hardware }: Answers) {
  const route = useRoute();
  const name = (key: string) => (row: CostRow) => row.group[key] ?? "";
  return (
    <Table
      name="hardware"
      caption="GPU models and node pools that it held"
      sort="-allocated_usd"
      rows={hardware.rows}
      rowKey={(row) => Object.values(row.group).join("\n")}
      columns={[
        {
          key: "gpu_model",
          title: "GPU model",
          cell: (row) => <Name>{name("gpu_model")(row)}</Name>,
          by: name("gpu_model"),
        },
        {
          key: "node_pool",
          title: "Node pool",
          cell: (row) => (
            <a href={linkTo(route, "nodes", "", { pool: name("node_pool")(row) })}>
              <Name>{name("node_pool")(row)}</Name>
            </a>
          ),
          by: name("node_pool"),
        },
        {
          key: "capacity_type",
          title: "Capacity",
          cell: (row) => <Name>{name("capacity_type")(row)}</Name>,
          by: name("capacity_type"),
        },
        {
          key: "allocated_usd",
          title: "Allocated",
          isFigure: true,
          cell: (row) => money(row.allocated_usd, whole.currency),
          by: (row) => row.allocated_usd,
        },
        {
          key: "waste_usd",
          title: "Waste",
          isFigure: true,
          cell: (row) => money(row.waste_usd, whole.currency),
          by: (row) => row.waste_usd,
        },
        { key: "use", title: "Used", cell: (row) => <Bar row={row} />, by: utilization },
      ]}
    />
  );
}
