// Evaluates IAM requests: one simulation per line on stdin, one result per line on stdout, in the same order.
import { createInterface } from 'node:readline'
import { runSimulation } from '@cloud-copilot/iam-simulate'

for await (const line of createInterface({ input: process.stdin })) {
  const outcome = await runSimulation(JSON.parse(line), {})
  const answer =
    outcome.resultType === 'error'
      ? { error: JSON.stringify(outcome.errors) }
      : { result: outcome.overallResult, ignored: outcome.result?.ignoredContextKeys ?? [] }
  process.stdout.write(JSON.stringify(answer) + '\n')
}
