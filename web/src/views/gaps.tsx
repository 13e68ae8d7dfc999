// Lists missing hours with cluster and time, which the hatching does not show.

import { type HoursResponse, MAX_DETAIL_HOURS } from "../api";
import { counted, HOUR, instant, moment } from "../format";
import { useRoute, useZone } from "../hooks";
import { Name } from "../parts";
import { linkTo } from "../route";
import { type Gap, gapsOf } from "../series";

/** More gaps are folded: their list would be longer than what it is a note to. */
const MOST_SHOWN = 3;
const MAX_GAPS = 50;

export function Gaps({ hours }: { hours: HoursResponse | null }) {
  const gaps = gapsOf(hours?.rows ?? []);
  if (gaps.length === 0) return null;
  if (gaps.length <= MOST_SHOWN) return <List gaps={gaps} />;
  const count = gaps.reduce((sum, { start, end }) => sum + (end - start) / HOUR, 0);
  const clusters = new Set(gaps.map(({ cluster }) => cluster)).size;
  return (
    <details data-testid="folded-gaps">
      <summary>
        {counted(count, "cluster-hour")} without figures: {gaps.length} gaps in {counted(clusters, "cluster")}
      </summary>
      <List gaps={gaps} />
    </details>
  );
}

function List({ gaps }: { gaps: readonly Gap[] }) {
  const route = useRoute();
  const zone = useZone();
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
