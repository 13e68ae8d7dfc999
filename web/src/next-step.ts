// What to do about a node's hours without pods, in words and commands.

import type { NodeRow } from "./api";
import { LEAST_HOURS, type Removal } from "./removal";

export interface Step {
  text: string;
  command?: string;
}

/** The steps that remove a node without pods, or that let an autoscaler remove it when it has none. */
export function stepsFor({ node, hours, emptyHours }: Removal): Step[] {
  if (emptyHours === 0 || (emptyHours === hours && hours < LEAST_HOURS)) return [];
  if (emptyHours < hours)
    return [
      {
        text: "With Karpenter: let it remove the nodes of this pool when they are empty. In the NodePool, set disruption.consolidationPolicy to WhenEmpty or WhenEmptyOrUnderutilized, and a short consolidateAfter.",
        command: `kubectl get nodepool ${quoted(node.node_pool)} -o jsonpath='{.spec.disruption}'`,
      },
      {
        text: "With an Auto Scaling group: lower its minimum size, so that Cluster Autoscaler or a schedule can remove nodes without pods.",
      },
    ];
  const instance = instanceOf(node);
  const name = quoted(node.node);
  return [
    { text: "Keep new pods away from the node.", command: `kubectl cordon ${name}` },
    {
      text: "Move what still runs on it. DaemonSets stay.",
      command: `kubectl drain ${name} --ignore-daemonsets --delete-emptydir-data`,
    },
    {
      text: "With Karpenter: delete the node, and Karpenter ends its instance.",
      command: `kubectl delete node ${name}`,
    },
    {
      text: "With an Auto Scaling group: lower its minimum size first if it would start a new node, then end the instance.",
      ...(instance === null
        ? {}
        : {
            command: `aws autoscaling terminate-instance-in-auto-scaling-group --instance-id ${instance} --should-decrement-desired-capacity`,
          }),
    },
  ];
}

/** The EC2 instance of a provider ID such as aws:///us-east-1a/i-0123. */
function instanceOf({ provider_id }: Pick<NodeRow, "provider_id">): string | null {
  return /\bi-[0-9a-f]+$/.exec(provider_id)?.[0] ?? null;
}

/** A name for a shell. Names of Kubernetes need no quotes; others get them. */
function quoted(name: string): string {
  if (name.startsWith("-")) return "NAME"; // kubectl would take it for an option, such as --all
  return /^[\w.:-]+$/.test(name) ? name : `'${name.replace(/'/g, "'\\''")}'`;
}
