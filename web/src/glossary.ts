// The terms of the page by group: sentences of docs/reference/glossary.md (compared in tests/glossary.test.ts).

export const GLOSSARY_GROUPS = {
  "Parts of the node cost": {
    "node cost": "What a node cost in an hour: its price, or its part of the bill. All parts add up to it.",
    allocated:
      "GPU-hours, and their cost, that a pod held because it requested them, whether or not it used them: effective + waste + unmeasured.",
    effective:
      "The part of the allocated cost that was used: mean utilization × allocated GPU-hours of the time in which utilization was measured.",
    waste: "The part of the allocated cost that was measured and not used.",
    unmeasured: "The part of the allocated cost for which no utilization was measured.",
    unallocated: "The cost of GPUs that a node offered and no pod held.",
    stranded: "The cost of GPUs that no pod could hold.",
    unobserved: "The cost of time for which no metrics say who held the GPUs.",
    host: "The part of a node's price that the price split policy gives to CPU and memory.",
    residual: "What remains when all other parts are subtracted from the node's cost.",
    idle: "Unallocated, stranded, unobserved, host and residual together: the part of a node's cost that is not allocated.",
    "idle workload": "A workload that holds GPUs and hardly uses them: its cost is allocated, and it is waste.",
    "cost with idle":
      "The allocated cost and the idle cost, which is shared by allocated cost or a row of its own. All rows add up to the node cost.",
    "waste per month": "A workload's waste per hour with figures, for a month of 730 hours.",
    "cost without pods": "What a node's hours without pods cost in the period.",
  },
  Allocation: {
    "GPU-hour": "One physical GPU, or one device of another vendor, for one hour.",
    "GPU share":
      "The part of a physical GPU that one requested unit stands for: 1, a partition's share, 1 ÷ replicas of a time-sliced GPU, or a fraction.",
    "business unit":
      "The team or department that pays for a set of namespaces or pods, as the settings document defines it.",
    "cluster-hour": "One cluster and one UTC hour: the unit in which costs are computed, stored and corrected.",
  },
  Measurement: {
    coverage: "Scrapes seen in an hour ÷ scrapes expected in it, between 0 and 1, for allocation and for utilization.",
    "utilization source":
      "Where a line's utilization comes from: pod (the pod's own GPUs), process (a shared GPU's utilization, split by what its pods' processes use), shared (the same, split by the replicas that its pods hold), node, cluster (averages), or none.",
    doctor: "gpucost doctor: checks which metrics and labels a Prometheus has, and says what to change.",
  },
  "State of an hour": {
    complete: "Every metrics source reached its coverage threshold, and every node has a final price.",
    provisional: "Usage is final; a price is missing or not final.",
    incomplete: "A metrics source is below its coverage threshold or could not be reached.",
    pending: "The newest ended hour, which is still computed.",
    missing: "An hour without a result, although a later hour has ended.",
    restatement: "A new version of an hour that was published before, for example after a price change.",
  },
  Prices: {
    "price source":
      "Where a node's price comes from: cur (the bill), capacity-block, spot, on-demand (AWS's current list), list-price (the list that gpucost carries, of one day), rates and constant (from the settings), or override (set by hand).",
    "split policy":
      "The rule for which part of a node's price its GPUs bear; the host, its CPU and memory, bears the rest. gpu-bears-all: the whole price. datadog: 95%, as Datadog's cost allocation does. scad and opencost: by the weights of GPUs, CPUs and memory that AWS Split Cost Allocation Data and OpenCost use. own: by weights of the settings.",
  },
  Models: {
    consumer:
      "The business unit whose requests an inference server processed, as its counters or those of a gateway name it.",
    "weighted tokens":
      "Tokens × what a token of their kind costs relative to others. A pod's cost is split between its models by them.",
    "cost of serving, cost of waiting": "The effective cost and the waste of an inference server's pods.",
    "at full use": "A unit cost without the cost of waiting.",
    "cost with unknown tokens": "The allocated cost of pods whose tokens are unknown. Unit costs leave it out.",
  },
  Budgets: {
    budget: "What a business unit may spend.",
    "run rate":
      "What a period will cost at the mean hourly cost so far: hours without figures are unknown, and counted as if they cost as much as the others.",
    forecast:
      "What a period will cost by the pattern of past weeks, at the level of the newest ones: an interval in which 80% of periods should end. Alerts use the run rate.",
  },
  Recommendations: {
    review: "The nightly run of all recommendation rules on one cluster's look-back.",
    evidence: "The hours, coverage and utilization from which a recommendation was computed.",
    "savings on offer":
      "What the open recommendations save together per month. It counts each saving once, and leaves out alternatives and commitments.",
    "cash savings":
      "The part of a saving by which the AWS bill falls: 0 on committed capacity. It is not known if prices come from a bill, which may contain commitments, or if a change frees or adds fewer GPUs than a node has: those save or cost cash when a node is removed or added.",
    "at list prices":
      "Valued at price lists, AWS's or those of the settings, and not at a bill: your discounts are not in it, so the bill may fall by less.",
    "verified savings": "What applied recommendations saved per month, measured a week after the change.",
    "risk, confidence":
      "How much a recommendation could break or cost in vain, and how sure its saving is. Each is low, medium or high.",
  },
  "Energy and emissions": {
    energy:
      "What GPUs drew, in kWh at the board, as dcgm-exporter measures it: without CPUs, memory, fans and cooling.",
    "location-based": "Emissions of the electricity grid where it is used.",
  },
} as const;

type Groups = typeof GLOSSARY_GROUPS;
export type Term = { [Group in keyof Groups]: keyof Groups[Group] }[keyof Groups];

/** The terms that views explain. */
export const GLOSSARY = Object.assign({}, ...Object.values(GLOSSARY_GROUPS)) as Record<Term, string>;
