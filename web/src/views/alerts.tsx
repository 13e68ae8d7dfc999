// Firing alerts by cost, with the pending ones and the latest events below.

import type { Alert } from "../api";
import { type Column, Empty, Name, Table } from "../parts";
import { money, moment } from "../format";
import { useRoute, useZone } from "../hooks";
import { linkTo, type Route } from "../route";

/** The money that an alert is about, per hour. Other kinds of alerts have none. */
export function costPerHour({ notification }: Pick<Alert, "notification">): number | null {
  const { waste_usd_per_hour: waste, unallocated_usd_per_hour: unallocated } = notification?.figures ?? {};
  return waste ?? unallocated ?? null;
}

/** Where to look: the node pool, the business unit, or the data of the cluster. */
function linkOf(route: Route, { subject }: Alert): string {
  const cluster = subject.cluster ?? "";
  if (subject.business_unit !== null) return linkTo(route, "unit", subject.business_unit);
  if (subject.node_pool !== null) return linkTo(route, "nodes", "", { pool: subject.node_pool, cluster });
  return linkTo(route, "health", "", { cluster });
}

/** What an alert without a notification is about. */
function subjectOf({ subject }: Alert): string {
  const { workload, namespace, business_unit, node_pool, cluster, detail } = subject;
  const about = workload === null ? (business_unit ?? node_pool ?? "") : `${namespace ?? ""}/${workload}`;
  return [about, cluster, detail].filter(Boolean).join(", ");
}

function conditionOf({ notification }: Alert): string {
  return notification?.threshold ?? "no notification was sent";
}

/** Empty if no notification was sent. */
const severityOf = ({ notification }: Alert): string => notification?.severity ?? "";

function Severity({ phase, severity }: { phase: string; severity: string }) {
  return severity === "" ? <>–</> : <span class={`phase ${phase} ${severity}`}>{severity}</span>;
}

export function Alerts({ alerts }: { alerts: readonly Alert[] }) {
  const firing = alerts.filter(({ phase }) => phase === "firing");
  const pending = alerts.filter(({ phase }) => phase === "pending");
  return (
    <>
      {firing.length === 0 ? <Empty>No alert fires.</Empty> : <AlertTable alerts={firing} isPending={false} />}
      {pending.length > 0 && (
        <details>
          <summary>{pending.length} pending: the condition holds, but not for long enough to notify</summary>
          <AlertTable alerts={pending} isPending />
        </details>
      )}
    </>
  );
}

function AlertTable({ alerts, isPending }: { alerts: readonly Alert[]; isPending: boolean }) {
  const route = useRoute();
  const zone = useZone();
  const columns: Column<Alert>[] = [
    {
      key: "alert",
      title: "Alert",
      cell: (alert) => (
        <span class="wide">
          <a href={linkOf(route, alert)}>
            <Name>{alert.summary ?? subjectOf(alert)}</Name>
          </a>
          <span class="note below">
            {isPending ? alert.rule : `${alert.rule}: ${conditionOf(alert)}`}
            {alert.acknowledged_by !== null && (
              <>
                {" "}
                · acknowledged by <Name>{alert.acknowledged_by}</Name>
              </>
            )}
            {alert.silenced_by.length > 0 && " · silenced"}
          </span>
        </span>
      ),
    },
    {
      key: "severity",
      title: "Severity",
      cell: (alert) => <Severity phase={alert.phase} severity={severityOf(alert)} />,
      by: severityOf,
    },
    {
      key: "cost",
      title: "Cost per hour",
      isFigure: true,
      cell: (alert) => money(costPerHour(alert), alert.notification?.currency),
      by: costPerHour,
    },
    { key: "since", title: "Since", cell: (alert) => moment(alert.since, zone), by: (alert) => alert.since },
  ];
  return (
    <Table
      name={isPending ? "pending" : "alerts"}
      caption={isPending ? "Pending alerts, newest first" : "Firing alerts by cost per hour"}
      sort={isPending ? "-since" : "-cost"}
      rows={alerts}
      rowKey={(alert) => alert.id}
      columns={columns.filter(({ key }) => !isPending || key === "alert" || key === "since")}
    />
  );
}
