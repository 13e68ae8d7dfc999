// Which hours are missing, in words: hatching alone names neither the hour nor the cluster.

import type { HoursAnswer } from "../api";
import { HOUR, instant, moment } from "../format";
import { useRoute, useZone } from "../hooks";
import { Name } from "../parts";
import { linkTo } from "../route";
import { gapsOf } from "../series";

const MOST = 10;
/** Hours that one view of them shows. */
const MOST_HOURS = 48;

export function Gaps({ hours }: { hours: HoursAnswer | null }) {
  const route = useRoute();
  const zone = useZone();
  const gaps = gapsOf(hours?.rows ?? []);
  if (gaps.length === 0) return null;
  return (
    <ul class="notes" data-testid="gaps">
      {gaps.slice(0, MOST).map(({ cluster, status, start, end }) => {
        const count = (end - start) / HOUR;
        const open = { cluster, hours: String(Math.min(MOST_HOURS, count)) };
        return (
          <li key={`${cluster} ${start}`}>
            <Name>{cluster}</Name>:{" "}
            <a href={linkTo(route, "hour", instant(start), open)}>
              {moment(start, zone)}
              {count > 1 && ` to ${moment(end, zone)}`}
            </a>
            , {count === 1 ? "an hour" : `${count} hours`} {status}
          </li>
        );
      })}
      {gaps.length > MOST && <li>and {gaps.length - MOST} times more</li>}
    </ul>
  );
}
