// A month's spending as it adds up, its projection as a dashed line, and the budget as a line across.

import { useEffect } from "preact/hooks";
import uPlot from "uplot";
import { axisTime, money, utcDay } from "../format";
import { useLook, useWidth } from "../hooks";
import { hatch, styleColour } from "./colours";

interface Props {
  start: number;
  end: number;
  /** What each known stretch added up to, from its start to its end. */
  points: readonly { from: number; at: number; spent: number }[];
  /** Until when figures are expected. */
  now: number;
  projected: number | null;
  budget: number | null;
  currency: string;
}

export function BurnChart(props: Props) {
  const [box, width] = useWidth();
  const look = useLook();
  useEffect(() => {
    const element = box.current;
    if (element === null || width === 0) return;
    const { start, end, points, projected, budget } = props;
    const last = points.at(-1) ?? { at: start, spent: 0 };
    const gaps = gapsOf(props);
    const times: number[] = [];
    const spent: (number | null)[] = [];
    const put = (at: number, amount: number | null) => {
      times.push(at);
      spent.push(amount);
    };
    points.forEach((point, place) => {
      const before = points[place - 1];
      if (before === undefined || before.at < point.from) {
        if (before !== undefined) put(before.at + 1, null); // a gap is no slope
        put(point.from, before?.spent ?? 0);
      }
      put(point.at, point.spent);
    });
    if ((times[0] ?? end) > start) {
      times.unshift(start);
      spent.unshift(null);
    }
    if (last.at < end) put(end, null);
    const ahead = times.map((time) => (time === last.at ? last.spent : time === end ? projected : null));
    const limit = times.map(() => budget);
    const ink = styleColour(element, "--ink");
    const grid = styleColour(element, "--grid");
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    const highest = Math.max(last.spent, projected ?? 0, budget ?? 0, 1e-6) * 1.05;
    const made = new uPlot(
      {
        width,
        height: 200,
        legend: { show: false },
        cursor: { show: false },
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        scales: { x: { time: true, range: () => [start / 1000, end / 1000] }, y: { range: () => [0, highest] } },
        axes: [
          { ...axis, values: (_plot, splits) => splits.map((at) => axisTime(at, "utc")) },
          { ...axis, size: 88, values: (_plot, splits) => splits.map((one) => money(one, props.currency)) },
        ],
        hooks: {
          drawClear: [
            (drawn) => {
              drawn.ctx.fillStyle = hatch(drawn.ctx, styleColour(element, "--missing"));
              for (const [from, to] of gaps) {
                const [left, right] = [from, to].map((at) => drawn.valToPos(at / 1000, "x", true));
                drawn.ctx.fillRect(left ?? 0, drawn.bbox.top, (right ?? 0) - (left ?? 0), drawn.bbox.height);
              }
            },
          ],
        },
        series: [
          {},
          { stroke: "#0072b2", fill: "#0072b233", width: 2, points: { show: false } },
          { stroke: "#0072b2", dash: [6, 4], width: 2, spanGaps: true, points: { show: false } },
          { stroke: "#d55e00", width: 2, points: { show: false } },
        ],
      },
      [times.map((time) => time / 1000), spent, ahead, limit],
      element,
    );
    return () => made.destroy();
  }, [width, look, props.points.length, props.projected, props.budget, props.currency]);
  const { points, currency, projected, budget } = props;
  const last = points.at(-1);
  const said = [
    last && `${money(last.spent, currency)} spent by ${utcDay(last.at - 1)}`,
    projected !== null && `${money(projected, currency)} projected for the month`,
    budget !== null && `a budget of ${money(budget, currency)}`,
  ].filter(Boolean);
  return <div class="plot still" ref={box} role="img" aria-label={`Spending as it adds up: ${said.join(", ")}`} />;
}

/** Stretches until now of which nothing is known. */
function gapsOf({ start, now, points }: Props): [number, number][] {
  const edges = [start, ...points.flatMap((point) => [point.from, point.at]), now];
  const gaps: [number, number][] = [];
  for (let place = 0; place + 1 < edges.length; place += 2) {
    const [from, to] = [edges[place] ?? 0, edges[place + 1] ?? 0];
    if (to > from) gaps.push([from, to]);
  }
  return gaps;
}
