// Pending and firing alerts.

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

function conditionOf({ notification, phase }: Alert): string {
  if (notification !== null) return notification.threshold;
  return phase === "firing" ? "no notification was sent" : "its condition holds, but not for long enough to notify";
}

/** The phase of an alert without a notification. */
const severityOf = ({ notification, phase }: Alert): string => notification?.severity ?? phase;

export function Alerts({ alerts }: { alerts: readonly Alert[] }) {
  const route = useRoute();
  const zone = useZone();
  if (alerts.length === 0) return <Empty>No pending or firing alerts.</Empty>;
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
            {alert.rule}: {conditionOf(alert)}
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
      cell: (alert) => <span class={`phase ${alert.phase} ${severityOf(alert)}`}>{severityOf(alert)}</span>,
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
      name="alerts"
      caption="Pending and firing alerts, newest first"
      sort="-since"
      rows={alerts}
      rowKey={(alert) => alert.id}
      columns={columns}
    />
  );
}
