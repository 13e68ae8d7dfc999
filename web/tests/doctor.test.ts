import { expect, test } from "vitest";
import { checkTitle, type ClusterReport, type DoctorCheck, isAlarming, reportsOf, setupText } from "../src/doctor";

const report = (fields: Partial<ClusterReport>) => ({ cluster: "demo", setup: null, ...fields }) as ClusterReport;

test("a selected cluster's report is shown alone", () => {
  const response = { examined_at: "", command: "", clusters: [report({}), report({ cluster: "west" })] };
  expect(reportsOf(response).map(({ cluster }) => cluster)).toEqual(["demo", "west"]);
  expect(reportsOf(response, "west").map(({ cluster }) => cluster)).toEqual(["west"]);
});

test("the collection is described as the command does", () => {
  const pages = ["docs/how-to/clusters/kube-prometheus-stack.md"];
  expect(setupText(report({ setup: { server: "Prometheus", collectors: ["kube-prometheus-stack"], pages } }))).toBe(
    "collector: kube-prometheus-stack; server: Prometheus (docs/how-to/clusters/kube-prometheus-stack.md)",
  );
  expect(setupText(report({ setup: { server: null, collectors: [], pages: ["a", "b"] } }))).toBe(
    "collector: unknown; server: unknown (a, b)",
  );
  expect(setupText(report({ setup: null }))).toBeNull();
});

test("only what figures need is alarming", () => {
  const finding = { finding: "x", same_change: [], consequences: [], change: null };
  const alarming = ["required", "recommended", "optional", "note"].map((severity) =>
    isAlarming({ ...finding, severity }),
  );
  expect(alarming).toEqual([true, false, false, false]);
});

test("a check has its metric in brackets if that has another name", () => {
  const check = (name: string, metric: string) => checkTitle({ name, metric } as DoctorCheck);
  expect(check("uid of pods", "kube_pod_info")).toBe("uid of pods (kube_pod_info)");
  expect(check("kube_node_info", "kube_node_info")).toBe("kube_node_info");
  expect(check("Prometheus", "")).toBe("Prometheus");
});
