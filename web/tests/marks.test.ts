import { expect, test } from "vitest";
import type { AlertEvent, PriceRow } from "../src/api";
import { marksOfAlerts, marksOfPrices } from "../src/marks";
import { readRoute } from "../src/route";

const START = "2026-11-18T00:00:00Z";

test("unusual spending is a mark, and other alerts are none", () => {
  const event = (kind: string, name: string) =>
    ({
      ...{ id: "f00", event: name, kind, hour: "2026-11-19T08:00:00Z", currency: "USD" },
      subject: { business_unit: "research", cluster: null },
      figures: { today_usd: 900, usual_usd: 300, change_percent: 200 },
    }) as unknown as AlertEvent;
  const history = [event("waste", "firing"), event("spend-change", "resolved"), event("spend-change", "firing")];
  expect(marksOfAlerts(readRoute("#/overview?window=7d"), history)).toEqual([
    {
      at: Date.parse("2026-11-19T08:00:00Z"),
      kind: "alert",
      text: "research spent $900.00 that day instead of the usual $300.00 (+200%)",
      href: "#/unit/research?window=7d&alert=f00",
    },
  ]);
});

test("a price is a mark where it begins within the period, in its cluster", () => {
  const price = (from: string | null, to: string | null, node: Record<string, string>, unit = "node-hour") =>
    ({ from, to, applies_to: node, amount: 0.9, currency: "USD", unit, reason: "credit" }) as unknown as PriceRow;
  const texts = (prices: PriceRow[], cluster?: string) => marksOfPrices(prices, START, cluster).map(({ text }) => text);
  const west = { cluster: "west", instance_type: "g5" };
  const prices = [
    price("2026-11-19T00:00:00Z", "2026-11-20T00:00:00Z", west),
    price("2026-11-19T00:00:00Z", null, {}, "of-on-demand"),
    price(START, null, west),
    price(null, null, west),
  ];
  const [ofWest, ofAll] = [
    "price of west, g5: $0.90 a node-hour, credit, until 2026-11-20 00:00 UTC",
    "price of all nodes: 0.9 × on-demand, credit",
  ];
  expect(texts(prices)).toEqual([ofWest, ofAll]);
  expect([texts(prices, "west"), texts(prices, "east")]).toEqual([[ofWest, ofAll], [ofAll]]);
});
