"""Faults for plans of recommendations: contradictions, losses, and savings that count twice or differ from a replay."""

from tests.faults.planted import PACKAGE, Fault

FEATURE = f"{PACKAGE}/features/recommendations"
PLAN = f"{FEATURE}/plan.py"
CONSOLIDATION = f"{FEATURE}/rules/consolidation.py"

PLAN_TESTS = ("tests/features/recommendations/rules/test_plan.py",)
REPLAY_TESTS = (*PLAN_TESTS, "-k", "replayed")
CONSOLIDATION_TESTS = ("tests/features/recommendations/rules/test_consolidation.py",)

PLAN_FAULTS = tuple(
    Fault(f"plans: {mistake}", file, original, faulty, tests)
    for mistake, file, original, faulty, tests in (
        ("a pool gets more nodes and fewer nodes", PLAN, "        if removals and additions:\n", "        if False:\n", PLAN_TESTS),
        ("what is worth less is offered", PLAN, "is_worth_more = sum(map(_net_worth, additions), _ZERO) > sum", "is_worth_more = sum(map(_net_worth, additions), _ZERO) < sum", PLAN_TESTS),
        ("nodes are offered that cost more than they are worth", PLAN, "content.worth_usd + content.saving.usd < 0\n", "content.worth_usd < 0\n", PLAN_TESTS),
        ("replicas are added in a pool that loses nodes", PLAN, "        if removal and content.saving.usd < 0:\n", "        if False:\n", PLAN_TESTS),
        ("a slice is offered without the plan of its pool", PLAN, "        elif content.part_of in offers:", "        elif False:", PLAN_TESTS),
        ("dismissed changes displace others", PLAN, 'open_rows = [row for row in rows if row.state == "open"]', 'open_rows = [row for row in rows if row.state in {"open", "dismissed"}]', PLAN_TESTS),
        ("alternatives count in the total", f"{FEATURE}/routes.py", 'counted = [row for row in rows if row.offer in {"plan", "cost"} and not row.content.part_of]', "counted = [row for row in rows if row.offer and not row.content.part_of]", ("tests/features/recommendations/test_function.py", "-k", "saving_and_evidence")),
        ("nodes that the next hour needs are removed", CONSOLIDATION, "return [max(packed[max(0, index - 1) : index + 2]) for index", "return [packed[index] for index", CONSOLIDATION_TESTS),
        ("nodes are removed that hold pods", CONSOLIDATION, "pool.capacity_gpu_hours[index] / gpus - needed[index])", "pool.capacity_gpu_hours[index] / gpus - needed[index] / 2)", REPLAY_TESTS),
        ("nodes save what their pods already free", CONSOLIDATION, "return pool.cost_usd[index] * spare_share,", "return pool.cost_usd[index],", REPLAY_TESTS),
        ("a title has the hours in which nodes are needed", f"{FEATURE}/fewer_nodes.py", "share = hours / len(before)\n", "share = 1 - hours / len(before)\n", CONSOLIDATION_TESTS),
        ("a title has the nodes to remove", f"{FEATURE}/fewer_nodes.py", 'f"with {_count_nodes(usual_after)}{in_hours', 'f"with {_count_nodes(usual_before - usual_after)}{in_hours', CONSOLIDATION_TESTS),
    )
)  # fmt: skip
