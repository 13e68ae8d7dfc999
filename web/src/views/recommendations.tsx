// What to change, and what it saves.

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
  if (rows.length === 0) return <Empty>None: a night's review found nothing to change, or none has looked yet.</Empty>;
  return (
    <Table
      name="recommendations"
      caption="What to change, and what it saves per month"
      sort="-usd"
      rows={rows}
      rowKey={(one) => one.id}
      columns={[
        {
          key: "summary",
          title: "What",
          cell: (one) => <Advice one={one} />,
        },
        { key: "kind", title: "Kind", cell: (one) => one.kind, by: (one) => one.kind },
        {
          key: "usd",
          title: "Saves",
          isFigure: true,
          cell: (one) => saved(one.saving.usd, one.currency),
          by: (one) => one.saving.usd,
        },
        {
          key: "range",
          title: "Between",
          isFigure: true,
          cell: (one) => `${saved(one.saving.low_usd, one.currency)} and ${saved(one.saving.high_usd, one.currency)}`,
        },
        {
          key: "cash",
          title: "In cash",
          isFigure: true,
          cell: (one) => (
            <span title="What leaves the bill: nothing while a commitment binds; a dash where nobody knows">
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

/** More GPUs cost money: what is spent is no saving below nothing. */
function saved(usd: number, currency: string): string {
  return usd < 0 ? `costs ${money(-usd, currency)}` : money(usd, currency);
}

function Advice({ one }: { one: Recommendation }) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <span class="wide">
        <Name>{one.summary}</Name>
        {one.part_of !== null && <> (its saving is counted in {one.part_of})</>}
      </span>
      {one.patch !== null && (
        <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
          <summary>How</summary>
          {isOpen && <pre>{one.patch}</pre>}
        </details>
      )}
    </>
  );
}
