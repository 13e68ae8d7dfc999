"""Faults for clients, calendars and receivers: signatures, OpenCost's parameters, running days, replaced clusters."""

from tests.faults.planted import PACKAGE, Fault

OPENCOST = f"{PACKAGE}/features/opencost"
ALERTING = f"{PACKAGE}/features/alerting"
SIGNATURES = "gpucost_devstack/signatures.py"

SIGNATURE_TESTS = ("tests/gpucost_devstack/test_signatures.py",)
GATEWAY_TESTS = ("tests/iam/test_gateway.py", "-k", "workspace")
OPENCOST_TESTS = ("tests/features/opencost/test_routes.py", "tests/features/opencost/test_clients.py")
IDLE_TESTS = ("tests/features/opencost/test_routes.py", "-k", "idle")
REMEDY_TESTS = ("tests/gpucost_cli/test_remedies.py",)
SIZE_TESTS = ("tests/functions/test_size_remedies.py",)
REPLACED_TESTS = ("tests/features/alerting/test_replaced_clusters.py",)

CLIENT_FAULTS = tuple(
    Fault(f"clients: {mistake}", file, original, faulty, tests)
    for mistake, file, original, faulty, tests in (
        ("queries of AMP are answered whatever their signature", "gpucost_devstack/iam/gateway.py", "            verify(HttpRequest(self.command, self.path, headers, body), authorizer.signing_key, datetime.now(UTC))\n", "            if service != \"aps\":\n                verify(HttpRequest(self.command, self.path, headers, body), authorizer.signing_key, datetime.now(UTC))\n", GATEWAY_TESTS),
        ("queries of AMP are signed for another service", f"{PACKAGE}/sources/prometheus/auth.py", 'SIGV4_SERVICE = "aps"', 'SIGV4_SERVICE = "execute-api"', ("tests/sources/test_sigv4.py",)),
        ("a signature is verified without its body", SIGNATURES, "    return hashlib.sha256(request.body).hexdigest()\n", '    return request.headers.get(_CHECKSUM_HEADER, hashlib.sha256(b"").hexdigest())\n', SIGNATURE_TESTS),
        ("a query is verified as it was sent", SIGNATURES, '            _canonical_query([pair for pair in parameters if pair[0] != "X-Amz-Signature"]),\n', "            query,\n", SIGNATURE_TESTS),
        ("paths are encoded once for all services", SIGNATURES, "unquote_to_bytes(path) if decodes else path", "unquote_to_bytes(path)", SIGNATURE_TESTS),
        ("session tokens are not verified", SIGNATURES, "if key is None or key.token != token:", "if key is None:", SIGNATURE_TESTS),
        ("the dashboard signs a query as the browser sent it", "gpucost_cli/signing_proxy.py", "self.server.upstream + encoded_target(self.path)", "self.server.upstream + self.path", ("tests/system/test_dashboard_proxy.py", "tests/gpucost_devstack/test_signatures.py")),
        ("the older name of includeIdle is ignored", f"{OPENCOST}/queries.py", 'parse_flag(parameters, "idle" if "idle" in parameters else "includeIdle")', 'parse_flag(parameters, "includeIdle")', IDLE_TESTS),
        ("only true and false are booleans", f"{OPENCOST}/queries.py", '_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False", "")', '_TRUE, _FALSE = ("true",), ("false", "")', OPENCOST_TESTS),
        ("accumulateBy is ignored", f"{OPENCOST}/queries.py", 'name = "accumulateBy" if parameters.get("accumulateBy", "").strip() else "accumulate"', 'name = "accumulate"', OPENCOST_TESTS),
        ("older filters are ignored", f"{OPENCOST}/queries.py", "        all_of([*filters, *parse_list_filters(parameters, labels)]),\n", "        all_of(filters),\n", OPENCOST_TESTS),
        ("steps have no names", f"{OPENCOST}/windows.py", "return _NAMED_STEPS.get(text.strip().lower()) or parse_duration(text)", "return parse_duration(text)", OPENCOST_TESTS),
        ("days of OpenCost's UI end a second early", f"{OPENCOST}/windows.py", "    if end - floor_hour(end) == HOUR - _SECOND:\n", "    if False:\n", OPENCOST_TESTS),
        ("weeks begin on Monday", f"{OPENCOST}/windows.py", "return day - DAY * ((day.weekday() + 1) % 7)", "return day - DAY * day.weekday()", OPENCOST_TESTS),
        ("a running day has all its hours", f"{OPENCOST}/windows.py", "        end = max(start, min(end, published_until()))\n", "        pass\n", OPENCOST_TESTS),
        ("24h ends with the running hour", f"{OPENCOST}/windows.py", '    if match and match[2] in "mh":\n        end = published_until()\n', '    if match and match[2] in "mh":\n        end = floor_hour(now) + HOUR\n', OPENCOST_TESTS),
        ("7d ends with yesterday", f"{OPENCOST}/windows.py", "    end = floor_day(now) + DAY\n    return _begin", "    end = floor_day(now)\n    return _begin", OPENCOST_TESTS),
        ("minutes are those of whole days", f"{OPENCOST}/responses.py", '"minutes": quantize(hours * 60),', '"minutes": quantize(-(-hours // 24) * 1440),', OPENCOST_TESTS),
        ("gpuUsageAverage is divided by whole days", f"{OPENCOST}/responses.py", "usage = quantize(Fraction(costs.effective_gpu_hours, SCALE) / hours)", "usage = quantize(Fraction(costs.effective_gpu_hours, SCALE) / (-(-hours // 24) * 24))", OPENCOST_TESTS),
        ("gpuCount is divided by whole days", f"{OPENCOST}/responses.py", "request = None if held is None else quantize(Fraction(held, SCALE) / hours)", "request = None if held is None else quantize(Fraction(held, SCALE) / (-(-hours // 24) * 24))", OPENCOST_TESTS),
        ("--replace does not copy over other figures", "gpucost_cli/ledger_copy.py", "    if not replace:\n        _refuse_other_items", "    if True:\n        _refuse_other_items", REMEDY_TESTS),
        ("--selector does not choose one of several clusters", "gpucost_cli/init_command.py", "        if not cluster.selector:\n", "        if True:\n", REMEDY_TESTS),
        ("--force does not close a month without hours", f"{PACKAGE}/pipeline/months.py", "        if not coverage.is_full and not force:\n", "        if not coverage.is_full:\n", REMEDY_TESTS),
        ("--cluster does not avoid several currencies", "gpucost_cli/hours_commands.py", "    return [cluster] if cluster else names\n", "    return names\n", REMEDY_TESTS),
        ("a user's password is not read from the environment", "gpucost_cli/metrics_options.py", 'if password := os.environ.get(PASSWORD_VARIABLE, ""):', 'if password := "":', REMEDY_TESTS),
        ("a misspelled region needs the profile of the environment", "gpucost_cli/aws_session.py", 'botocore.session.Session({"profile": (None, None, None, None)})', "botocore.session.Session()", REMEDY_TESTS),
        ("an example in a message is refused", "gpucost_cli/what_if_command.py", "write it like '10 A100 to 3g.20gb'", "pass it as '10 A100'", REMEDY_TESTS),
        ("one business unit of many days is not read alone", f"{PACKAGE}/reports/cost_reader.py", "max_work = self._max_part_work if read_plan.units is None else None", "max_work = self._max_part_work", SIZE_TESTS),
        ("budgets forget clusters that left", f"{ALERTING}/month_budgets.py", "            for cluster in stored.clusters(start)\n", "            for cluster in [in_force.name for in_force in settings.clusters]\n", REPLACED_TESTS),
        ("clusters that left go on to spend", f"{PACKAGE}/core/run_rate.py", "        if cluster.has_left:\n", "        if False:\n", REPLACED_TESTS),
        ("a cluster that joined spent from the start of the month", f"{PACKAGE}/core/run_rate.py", "    return first_hour\n", "    return start\n", REPLACED_TESTS),
        ("a month is not known to cost what its first data show", f"{ALERTING}/cluster_months.py", "lambda month: month.spend.first_hour or month.start", "lambda month: month.start", ("tests/features/alerting/test_month_budgets.py",)),
        ("one unknown cluster makes all units unknown", f"{ALERTING}/cluster_months.py", "[month for month in self.values() if unit in month.units]", "[*self.values()]", REPLACED_TESTS),
        ("units of a silent cluster spend nothing there", f"{ALERTING}/cluster_months.py", "    if spend.hours_with_data >= MIN_RUN_RATE_HOURS:\n", "    if True:\n", REPLACED_TESTS),
        ("a cluster that left misses its further hours", f"{ALERTING}/tick_figures.py", "        if self.settings.cluster(day.cluster) is None:\n            until = min(until, recorded[-1] + HOUR)\n", "", REPLACED_TESTS),
    )
)  # fmt: skip
