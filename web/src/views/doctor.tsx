// The report of `gpucost doctor`: what can be attributed now, and what to change, the most important first.

import { useContext, useState } from "preact/hooks";
import { fetchServed } from "../api";
import { figureColumn, nameColumn } from "../columns";
import {
  checkTitle,
  type ClusterReport,
  type DoctorCheck,
  type DoctorFinding,
  type DoctorResponse,
  isAlarming,
  reportsOf,
  setupText,
} from "../doctor";
import { type Figure, gpuHours, moment, UNKNOWN } from "../format";
import { ServeContext, useFetch, useRoute, useZone } from "../hooks";
import { Empty, Name, Table, View } from "../parts";

export function Doctor() {
  return useContext(ServeContext) ? <Served /> : <Command />;
}

/** A deployment does not read metrics for its pages. */
function Command() {
  return (
    <>
      <h1>Doctor</h1>
      <p>
        This deployment has no page of the doctor. Run the command where Prometheus can be reached. It says what can be
        attributed now, and what to change: <code class="command">gpucost doctor --settings FILE</code>
      </p>
    </>
  );
}

function Served() {
  const route = useRoute();
  const zone = useZone();
  const request = useFetch("doctor", () => fetchServed<DoctorResponse>("doctor"));
  return (
    <View title="Doctor" request={request}>
      {(response) => (
        <>
          <p class="note">
            The metrics at {moment(response.examined_at, zone)}. In a terminal:{" "}
            <code class="command">{response.command}</code>{" "}
            <button type="button" class="download" onClick={request.again}>
              Check again
            </button>
          </p>
          {reportsOf(response, route.query["cluster"]).map((report, index) => (
            <Report key={report.cluster} report={report} id={`doctor-${index}`} />
          ))}
        </>
      )}
    </View>
  );
}

function Report({ report, id }: { report: ClusterReport; id: string }) {
  const { cluster, attribution, conclusion, summary, findings, utilization, checks } = report;
  const setup = setupText(report);
  return (
    <section aria-labelledby={id} data-testid="report">
      <header>
        <h2 id={id}>
          <Name>{cluster}</Name>:{" "}
          <span class={attribution === "possible" ? undefined : "lacking"} data-testid="conclusion">
            {conclusion}
          </span>
        </h2>
      </header>
      {summary !== null && (
        <dl class="facts" data-testid="summary">
          {(
            [
              ["GPUs held", summary.holding],
              ["Use", summary.use],
              ["Price", summary.price],
            ] as const
          ).map(([name, sentence]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{sentence}</dd>
            </div>
          ))}
        </dl>
      )}
      {setup !== null && <p class="note">{setup}</p>}
      {findings.every(({ change }) => change === null) && <Empty>Nothing to change.</Empty>}
      <ul class="cards" data-testid="findings">
        {findings.map((finding) => (
          <Finding key={`${finding.finding} ${finding.change ?? ""}`} {...finding} />
        ))}
      </ul>
      {utilization.length > 0 && <Utilization report={report} />}
      {checks.length > 1 && (
        <details data-testid="checks">
          <summary>Verbose: all {checks.length} checks</summary>
          <Checks report={report} />
        </details>
      )}
    </section>
  );
}

function Finding(finding: DoctorFinding) {
  const { severity, finding: sentence, same_change: others, consequences, change } = finding;
  return (
    <li class="item">
      <div>
        <span class={isAlarming(finding) ? "tag alarming" : "tag"}>{severity}</span>
      </div>
      <div>
        <p>{sentence}</p>
        <Further title="The same change fixes" sentences={others} />
        <Further title="What follows" sentences={consequences} />
        {change !== null && (
          <p>
            → <code class="command">{change}</code> <CopyButton text={change} />
          </p>
        )}
      </div>
    </li>
  );
}

function Further({ title, sentences }: { title: string; sentences: readonly string[] }) {
  if (sentences.length === 0) return null;
  return (
    <>
      <p class="note">{title}:</p>
      <ul class="notes">
        {sentences.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </>
  );
}

/** Copies a text. Browsers allow it only on this machine's addresses and over HTTPS; elsewhere, the text is selected. */
function CopyButton({ text }: { text: string }) {
  const [isCopied, setCopied] = useState(false);
  const clipboard = navigator.clipboard as Clipboard | undefined;
  if (clipboard === undefined) return null;
  const copy = () =>
    void clipboard.writeText(text).then(
      () => setCopied(true),
      () => setCopied(false),
    );
  return (
    <>
      <button type="button" class="download" aria-label={isCopied ? undefined : `Copy ${text}`} onClick={copy}>
        {isCopied ? "Copied" : "Copy"}
      </button>
      <span class="hidden" role="status">
        {isCopied && "Copied"}
      </span>
    </>
  );
}

type Held = ClusterReport["utilization"][number];

function Utilization({ report: { cluster, utilization } }: { report: ClusterReport }) {
  return (
    <Table
      name="utilization"
      caption={`Utilization of held GPUs of ${cluster}`}
      sort="-gpus"
      rows={utilization}
      rowKey={(row) => `${row.signal ?? ""} ${row.source}`}
      columns={[
        nameColumn("signal", "Signal", (row: Held) => row.signal ?? UNKNOWN),
        nameColumn("source", "Utilization source", (row: Held) => row.source),
        figureColumn("gpus", "GPUs held", (row: Held) => row.gpus, gpuHours),
      ]}
    />
  );
}

function Checks({ report: { cluster, checks } }: { report: ClusterReport }) {
  return (
    <Table
      name="checks"
      caption={`Checks of ${cluster}`}
      sort="order"
      most={checks.length}
      rows={checks}
      rowKey={(row) => `${row.name}\n${row.metric}`}
      columns={[
        nameColumn("check", "Check", checkTitle),
        nameColumn("status", "Status", (row: DoctorCheck) => row.status),
        nameColumn("severity", "Severity", (row: DoctorCheck) => row.severity),
        figureColumn("series", "Series", (row: DoctorCheck) => row.series, plain),
        figureColumn("interval", "Scraped every, s", (row: DoctorCheck) => row.scrape_interval_seconds, plain),
      ]}
    />
  );
}

/** A number of the report; blank where the check has none. */
const plain = (figure: Figure) => (figure === null || figure === undefined ? "" : `${figure}`);
