// Recommendations and their savings.

import { useState } from "preact/hooks";
import { money } from "../format";
import { Empty, Name, Table } from "../parts";

export interface Recommendation {
  id: string;
  kind: string;
  summary: string;
  saving: { usd: number; low_usd: number; high_usd: number; cash_usd: number | null };
  currency: string;
  confidence: string;
  risk: string;
  risk_note: string;
  effort: string;
  patch: string | null;
  part_of: string | null;
}

export function Recommendations({ rows }: { rows: readonly Recommendation[] }) {
  if (rows.length === 0) return <Empty>No recommendations yet. The next review runs at 04:10 UTC.</Empty>;
  return (
    <Table
      name="recommendations"
      caption="Recommendations by monthly savings"
      sort="-usd"
      rows={rows}
      rowKey={(one) => one.id}
      columns={[
        {
          key: "summary",
          title: "Recommendation",
          cell: (one) => <Summary one={one} />,
        },
        { key: "kind", title: "Kind", cell: (one) => one.kind, by: (one) => one.kind },
        {
          key: "usd",
          title: "Monthly savings",
          isFigure: true,
          cell: (one) => saved(one.saving.usd, one.currency),
          by: (one) => one.saving.usd,
        },
        {
          key: "range",
          title: "Range",
          isFigure: true,
          cell: (one) => `${saved(one.saving.low_usd, one.currency)} to ${saved(one.saving.high_usd, one.currency)}`,
        },
        {
          key: "cash",
          title: "Cash savings",
          isFigure: true,
          cell: (one) => (
            <span title="Reduction of the AWS bill. Zero while a commitment applies; a dash if not known">
              {one.saving.cash_usd === null ? "–" : saved(one.saving.cash_usd, one.currency)}
            </span>
          ),
          by: (one) => one.saving.cash_usd,
        },
        { key: "confidence", title: "Confidence", cell: (one) => one.confidence, by: (one) => one.confidence },
        {
          key: "risk",
          title: "Risk",
          cell: (one) => <span title={one.risk_note}>{one.risk}</span>,
          by: (one) => one.risk,
        },
        { key: "effort", title: "Effort", cell: (one) => one.effort, by: (one) => one.effort },
      ]}
    />
  );
}

/** Formats savings. Negative savings are costs, for example of more GPUs. */
function saved(usd: number, currency: string): string {
  return usd < 0 ? `costs ${money(-usd, currency)}` : money(usd, currency);
}

function Summary({ one }: { one: Recommendation }) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <span class="wide">
        <Name>{one.summary}</Name>
        {one.part_of !== null && <> (savings included in {one.part_of})</>}
      </span>
      {one.patch !== null && (
        <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
          <summary>Show patch</summary>
          {isOpen && <pre>{one.patch}</pre>}
        </details>
      )}
    </>
  );
}
