// Recommendations and their savings.

import { useState } from "preact/hooks";
import type { Recommendation } from "../api";
import { money } from "../format";
import { Empty, Name, Table } from "../parts";

const MOST = 5;

export function Recommendations({ rows }: { rows: readonly Recommendation[] }) {
  if (rows.length === 0) return <Empty>No recommendations yet. The next review runs at 04:10 UTC.</Empty>;
  return (
    <Table
      name="recommendations"
      caption="Recommendations by monthly savings"
      sort="-usd"
      most={MOST}
      rows={rows}
      rowKey={(recommendation) => recommendation.id}
      columns={[
        {
          key: "summary",
          title: "Recommendation",
          cell: (recommendation) => <Summary recommendation={recommendation} />,
        },
        {
          key: "usd",
          title: "Monthly savings",
          isFigure: true,
          cell: (recommendation) => saved(recommendation.saving.usd, recommendation.currency),
          by: (recommendation) => recommendation.saving.usd,
        },
        {
          key: "confidence",
          title: "Confidence",
          cell: (recommendation) => recommendation.confidence,
          by: (recommendation) => recommendation.confidence,
        },
        {
          key: "risk",
          title: "Risk",
          cell: (recommendation) => <span title={recommendation.risk_note}>{recommendation.risk}</span>,
          by: (recommendation) => recommendation.risk,
        },
        {
          key: "effort",
          title: "Effort",
          cell: (recommendation) => recommendation.effort,
          by: (recommendation) => recommendation.effort,
        },
        {
          key: "kind",
          title: "Kind",
          cell: (recommendation) => recommendation.kind,
          by: (recommendation) => recommendation.kind,
        },
        {
          key: "range",
          title: "Range",
          isFigure: true,
          cell: (recommendation) =>
            `${saved(recommendation.saving.low_usd, recommendation.currency)} to ${saved(recommendation.saving.high_usd, recommendation.currency)}`,
        },
        {
          key: "cash",
          title: "Cash savings",
          isFigure: true,
          cell: (recommendation) => (
            <span title="Reduction of the AWS bill. Zero while a commitment applies; a dash if not known">
              {recommendation.saving.cash_usd === null
                ? "–"
                : saved(recommendation.saving.cash_usd, recommendation.currency)}
            </span>
          ),
          by: (recommendation) => recommendation.saving.cash_usd,
        },
      ]}
    />
  );
}

/** Formats savings. Negative savings are costs, for example of more GPUs. */
export function saved(usd: number, currency: string): string {
  return usd < 0 ? `costs ${money(-usd, currency)}` : money(usd, currency);
}

function Summary({ recommendation }: { recommendation: Recommendation }) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <span class="wide">
        <Name>{recommendation.summary}</Name>
        {recommendation.part_of !== null && <> (savings included in {recommendation.part_of})</>}
      </span>
      {recommendation.patch !== null && (
        <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
          <summary>Show patch</summary>
          {isOpen && <pre>{recommendation.patch}</pre>}
        </details>
      )}
    </>
  );
}
