"""Faults for what happens to metered hours later: prices, months, shares, roles, exports, alerts and projections."""

from tests.faults.planted import PACKAGE, Fault

FEATURES = f"{PACKAGE}/features"

ANSWER_FAULTS = tuple(
    Fault(f"answers: {mistake}", file, original, faulty, tests)
    for mistake, file, original, faulty, tests in (
        ("money of a line is rounded to cents", f"{PACKAGE}/core/pricing/rating.py", "        (effective_hours, _, unmeasured_hours), (", "        totals = totals[0], round(totals[1], -10)\n        (effective_hours, _, unmeasured_hours), (", ("tests/core/test_rating.py", "tests/core/test_conservation.py")),
        ("a price that changed in the past is forgotten", f"{PACKAGE}/pipeline/reprice.py", "        for change in changes:\n", "        for change in changes[1:]:\n", ("tests/pipeline/test_repricing.py",)),
        ("a closed month begins an hour early", f"{PACKAGE}/core/hours.py", "start = datetime(int(month[:4]), int(month[5:]), 1, tzinfo=UTC)\n    return start, ", "start = datetime(int(month[:4]), int(month[5:]), 1, tzinfo=UTC)\n    return start - HOUR, -HOUR + ", ("tests/pipeline/test_months.py",)),
        ("a business unit moves an hour late", f"{PACKAGE}/core/attribution.py", "if unit.since is None or unit.since <= hour]", "if unit.since is None or unit.since < hour]", ("tests/core/test_attribution.py",)),
        ("a spot price counts from its end", f"{PACKAGE}/sources/aws_prices/spot.py", "for (start, amount), (end, _) in pairwise(", "for (start, _), (end, amount) in pairwise(", ("tests/sources/test_price_fetchers.py",)),
        ("idle cost that is shared evenly is shared by allocation", f"{PACKAGE}/core/query/idle.py", "if group_by_holder is not None:", "if group_by_holder == {}:", ("tests/functions/test_api_reports.py",)),
        ("a viewer is an admin", f"{PACKAGE}/core/access.py", 'return Scope(None, is_admin="admin" in distinct_roles)', "return Scope(None, is_admin=True)", ("tests/functions/test_access.py", "tests/functions/test_scope.py")),
        ("an alert ends an hour late", f"{FEATURES}/alerting/state_machine.py", "elif clear_run >= max(1, policy.keep_firing_hours):", "elif clear_run > max(1, policy.keep_firing_hours):", ("tests/features/alerting/test_state_machine.py",)),
        ("an exported remainder has no cost", f"{FEATURES}/exports/focus.py", "cost = amount if node.price_source else None", "cost = None", ("tests/features/exports/test_focus.py",)),
        ("recommendations leave the busiest hour at 60%", f"{FEATURES}/recommendations/rules/rightsizing.py", "LOW, TARGET, HIGH = 0.30, 0.70, 0.90", "LOW, TARGET, HIGH = 0.30, 0.60, 0.90", ("tests/features/recommendations/rules/test_rightsizing.py",)),
        ("a budget is projected on the hours that passed", f"{PACKAGE}/core/run_rate.py", "cluster.spent * period_hours, Decimal(cluster.hours_with_data)", "cluster.spent * period_hours, Decimal(hours_so_far)", ("tests/features/alerting/test_month_budgets.py",)),
        ("a week's row begins on Sunday", f"{PACKAGE}/core/query/periods.py", "return day - day.weekday() * DAY\n    return day.replace", "return day - (day.weekday() + 1) % 7 * DAY\n    return day.replace", ("tests/reports/test_reports_conservation.py",)),
    )
)  # fmt: skip
