// Lists missing hours with cluster and time, which the hatching does not show.

import { type HoursResponse, MAX_DETAIL_HOURS } from "../api";
import { HOUR, instant, moment } from "../format";
import { useRoute, useZone } from "../hooks";
import { Name } from "../parts";
import { linkTo } from "../route";
import { gapsOf } from "../series";

const MAX_GAPS = 10;

export function Gaps({ hours }: { hours: HoursResponse | null }) {
  const route = useRoute();
  const zone = useZone();
  const gaps = gapsOf(hours?.rows ?? []);
  if (gaps.length === 0) return null;
  return (
    <ul class="notes" data-testid="gaps">
      {gaps.slice(0, MAX_GAPS).map(({ cluster, status, start, end }) => {
        const count = (end - start) / HOUR;
        const open = { cluster, hours: String(Math.min(MAX_DETAIL_HOURS, count)) };
        return (
          <li key={`${cluster} ${start}`}>
            <Name>{cluster}</Name>:{" "}
            <a href={linkTo(route, "hour", instant(start), open)}>
              {moment(start, zone)}
              {count > 1 && ` to ${moment(end, zone)}`}
            </a>
            , {count === 1 ? "1 hour" : `${count} hours`} {status}
          </li>
        );
      })}
      {gaps.length > MAX_GAPS && <li>and {gaps.length - MAX_GAPS} more gaps</li>}
    </ul>
  );
}
