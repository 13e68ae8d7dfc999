// Pending and firing alerts.

import type { Alert } from "../api";
import { moment } from "../format";
import { useRoute, useZone } from "../hooks";
import { Empty, Name } from "../parts";
import { linkTo } from "../route";

export function Alerts({ alerts }: { alerts: readonly Alert[] }) {
  const route = useRoute();
  const zone = useZone();
  if (alerts.length === 0) return <Empty>No pending or firing alerts.</Empty>;
  return (
    <ul class="alerts" data-testid="alerts">
      {alerts.map((alert) => {
        const subject = Object.entries(alert.subject).filter((entry): entry is [string, string] => entry[1] !== null);
        const to: Record<string, (value: string) => string> = {
          business_unit: (unit) => linkTo(route, "unit", unit),
          node_pool: (pool) => linkTo(route, "nodes", "", { pool, cluster: alert.subject["cluster"] ?? "" }),
        };
        return (
          <li key={alert.id}>
            <span class={`phase ${alert.phase}`}>{alert.phase}</span> <strong>{alert.rule}</strong>{" "}
            {subject.map(([key, value], index) => (
              <span key={key}>
                {index > 0 && ", "}
                {key.replaceAll("_", " ")}{" "}
                {to[key] === undefined ? (
                  <Name>{value}</Name>
                ) : (
                  <a href={to[key](value)}>
                    <Name>{value}</Name>
                  </a>
                )}
              </span>
            ))}
            , since {moment(alert.since, zone)}
            {alert.acknowledged_by !== null && (
              <>
                {" "}
                · acknowledged by <Name>{alert.acknowledged_by}</Name>
              </>
            )}
            {alert.silenced_by.length > 0 && <> · silenced</>}
          </li>
        );
      })}
    </ul>
  );
}
