"""Runs a scenario's steps against the product's handlers and command line, and returns the answers."""

import csv
import gzip
import io
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import duckdb

from tests.golden import adapter
from tests.golden.compare import normalized
from tests.golden.fixtures import dumps, loads
from tests.golden.metrics import Metrics
from tests.golden.outside import body_of, event, running_outside
from tests.golden.processes import Answer, Worker

Step = dict[str, Any]
VARIES = "(varies)"
MISSING = "missing"
"""The value of a reference that an earlier answer does not have."""


class Played(NamedTuple):
    """Answers by step name, with separate texts."""

    answers: dict[str, Any]
    texts: dict[str, Any]


class Player:
    """A deployment and its external systems.

    Args:
        scenario: `parameters` of the template, `secrets`, `callers` of the API, `steps`.
        metrics: what Prometheus answers.
        dynamodb: address of DynamoDB Local.
        root: the repository, or a copy, whose code is run.
    """

    def __init__(
        self, scenario: Mapping[str, Any], metrics: Metrics, dynamodb: str, root: Path = adapter.REPOSITORY
    ) -> None:
        self._scenario = scenario
        self._steps: list[Step] = scenario["steps"]
        self._metrics = metrics
        self._dynamodb = dynamodb
        self._root = root
        self._now = datetime.fromisoformat(self._steps[0]["at"])
        self._answers: dict[str, Any] = {}
        self._texts: dict[str, Any] = {}
        self._workers: dict[str, Worker] = {}
        self._printed: list[tuple[str, str]] = []

    def play(self, log: Callable[[str], None] = lambda _: None) -> Played:
        """Run all steps."""
        with ExitStack() as running:
            self._running = running
            self._folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="gpucost-golden-")))
            self._outside = running.enter_context(running_outside(self._metrics))
            self._environment = {"USER": "golden", "LOGNAME": "golden"}
            if "parameters" in self._scenario:
                self._deploy()
            for step in self._steps:
                log(step["name"])
                self._now = datetime.fromisoformat(step["at"])
                if "aws" in self._workers:
                    self._workers["aws"].ask(self._now)
                answer = self._do(step)
                if answer is not None:
                    self._answers[step["name"]] = answer
        return Played(self._answers, self._texts)

    def _deploy(self) -> None:
        environment = self._environment
        aws = self._worker("aws").ask(self._now).result
        environment |= adapter.client_environment(aws, self._dynamodb)
        for service in ("ec2", "pricing", "athena"):
            environment[f"AWS_ENDPOINT_URL_{service.upper()}"] = f"{self._outside.url}/aws/{service}"
        self._deployed = adapter.deploy(aws, self._dynamodb, f"{self._outside.url}/api", self._scenario["parameters"])
        for name, value in self._scenario.get("secrets", {}).items():
            adapter.client("secretsmanager", aws).create_secret(Name=name, SecretString=self._filled(value))
        self._sqs, self._s3 = adapter.client("sqs", aws), adapter.client("s3", aws)
        self._sns = adapter.client("sns", aws)
        outputs = self._deployed.outputs
        self._queues = {
            "hours": outputs["HoursQueueUrl"],
            "backfill": outputs["BackfillQueueUrl"],
            "events": self._listen("events", outputs["EventsTopicArn"], outputs["InternalEventsTopicArn"]),
            "email": self._listen("email", outputs["EmailTopicArn"]),
            "dead": outputs["DeadLetterQueueUrl"],
        }
        self._outside.api = lambda event: self._function("api", event).result

    def _listen(self, name: str, *topics: str) -> str:
        url = str(self._sqs.create_queue(QueueName=f"heard-{name}")["QueueUrl"])
        arn = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        for topic in topics:
            self._sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        return url

    def _worker(self, *kind: str) -> Worker:
        name = " ".join(kind)
        if name not in self._workers:
            variables = self._deployed.environments[kind[1]] if kind[0] == "function" else {}
            worker = Worker(*kind, root=self._root, now=self._now, environment={**variables, **self._environment})
            self._workers[name] = self._running.enter_context(worker)
        return self._workers[name]

    def _function(self, folder: str, sent: Mapping[str, Any]) -> Answer:
        answer = self._worker("function", folder).ask(self._now, event=sent)
        self._printed.append((folder, answer.log))
        return answer

    # Steps

    def _do(self, step: Step) -> Any:
        kinds: dict[str, Callable[[Step], Any]] = {
            "settings": self._settings,
            "command": self._command,
            "invoke": self._invoke,
            "deliver": self._deliver,
            "publish": self._publish,
            "send": self._send,
            "request": self._request,
            "pages": self._pages,
            "export": self._export,
            "prices": self._prices,
            "down": self._down,
            "dead letters": self._dead_letters,
        }
        return kinds[step["do"]](step)

    def _prices(self, step: Step) -> None:
        self._outside.prices.tables |= step["tables"]

    def _down(self, step: Step) -> None:
        self._outside.down = set(step["clusters"])

    def _settings(self, step: Step) -> dict[str, Any]:
        path = self._file("settings.json", self._document(step["document"]))
        return self._run(step["name"], ["settings", "push", str(path), "--stack", adapter.STACK])

    def _document(self, document: Any) -> str:
        return self._filled(dumps(document))

    def _command(self, step: Step) -> dict[str, Any]:
        arguments = [self._filled(self._referred(word)) for word in step["arguments"]]
        for name, document in step.get("files", {}).items():
            path = self._file(name, self._document(document))
            arguments = [str(path) if word == f"{{file:{name}}}" else word for word in arguments]
        return self._run(step["name"], arguments, step.get("format", "text"))

    def _run(self, name: str, arguments: list[str], form: str = "text") -> dict[str, Any]:
        worker = self._worker("command")
        answer = worker.ask(self._now, arguments=arguments)
        if answer.error:
            raise RuntimeError(f"{name}: {answer.error}: {answer.message}")
        done = answer.result
        out = self._neutral(done["stdout"])
        self._texts[name] = {"stderr": self._neutral(done["stderr"])} | ({"stdout": out} if form == "text" else {})
        if form == "text" or not out.strip():
            return {"status": done["status"]}
        return {"status": done["status"], "body": self._decoded(form, out)}

    def _invoke(self, step: Step) -> dict[str, Any]:
        answer = self._function(step["function"], step["event"])
        if answer.error:
            self._texts.setdefault(step["name"], {})["error"] = f"{answer.error}: {self._neutral(answer.message)}"
        result = {"raised": True} if answer.error else {"result": answer.result}
        return result | self._effects(step["name"])

    def _publish(self, step: Step) -> None:
        message = json.dumps(step["message"])
        self._sns.publish(TopicArn=self._deployed.outputs["EventsTopicArn"], Message=message)

    def _send(self, step: Step) -> None:
        message = step["message"]
        body = message if isinstance(message, str) else json.dumps(message)
        self._sqs.send_message(QueueUrl=self._queues[step["queue"]], MessageBody=body)

    def _deliver(self, step: Step) -> dict[str, Any]:
        """Deliver waiting messages one at a time, until none is left."""
        handled: list[dict[str, Any]] = []
        moved = True
        while moved:
            moved = False
            for queue, folder in (("hours", "attribute"), ("backfill", "attribute"), ("events", "alert")):
                for message in self._take(queue):
                    moved = True
                    record = _sqs_record(message) if queue != "events" else _sns_record(message)
                    answer = self._function(folder, {"Records": [record]})
                    body = record["body"] if queue != "events" else record["Sns"]["Message"]
                    failed = bool(answer.error or (answer.result or {}).get("batchItemFailures"))
                    handled.append(
                        {"to": folder, "message": self._message(body), **({"failed": True} if failed else {})}
                    )
        return {"handled": handled} | self._effects(step["name"])

    def _message(self, body: str) -> Any:
        try:
            return loads(body)
        except ValueError:
            return body

    def _take(self, queue: str) -> Iterator[dict[str, Any]]:
        """Take each waiting message off a queue."""
        url = self._queues[queue]
        while messages := self._sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        ).get("Messages"):
            entries = [
                {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                for number, message in enumerate(messages)
            ]
            self._sqs.delete_message_batch(QueueUrl=url, Entries=entries)
            yield from messages

    def _effects(self, name: str) -> dict[str, Any]:
        """The functions' effects besides responses: metrics, posts, emails, dead letters."""
        effects: dict[str, Any] = {"metrics": list(self._metrics_printed())}
        texts: dict[str, list[Any]] = {}
        posts, self._outside.posts = self._outside.posts, []
        for post in posts:
            body = loads(self._neutral(json.dumps(post["body"])))
            if post["to"].startswith("alertmanager"):
                for alert in body:
                    texts.setdefault(post["to"], []).append(alert.pop("annotations", None))
                    alert.pop("generatorURL", None)
                effects.setdefault("posts", []).append({"to": post["to"], "alerts": body})
            else:
                texts.setdefault(post["to"], []).append(body)
                effects.setdefault("posts", []).append({"to": post["to"]})
        for message in self._take("email"):
            envelope = json.loads(message["Body"])
            texts.setdefault("email", []).append([envelope.get("Subject"), self._neutral(envelope["Message"])])
            effects["emails"] = effects.get("emails", 0) + 1
        if texts:
            self._texts.setdefault(name, {}).update(texts)
        return effects

    def _dead_letters(self, _: Step) -> list[Any]:
        """Take the dead letters."""
        return [self._message(message["Body"]) for message in self._take("dead")]

    def _metrics_printed(self) -> Iterator[dict[str, Any]]:
        """Embedded metrics of each invocation."""
        for folder, log in self._printed:
            for line in log.splitlines():
                if '"_aws"' not in line:
                    continue
                document = loads(line)
                printed = {
                    metric["Name"] for part in document["_aws"]["CloudWatchMetrics"] for metric in part["Metrics"]
                }
                values = {name: document[name] for name in printed}
                for name in values.keys() & set(normalized()["metrics"]):
                    values[name] = VARIES
                yield {"of": folder, **values}
        self._printed.clear()

    def _request(self, step: Step) -> dict[str, Any]:
        return self._ask(step, step.get("query", {}))[0]

    def _pages(self, step: Step) -> list[dict[str, Any]]:
        """Follow the cursor to the end."""
        pages, query = [], dict(step["query"])
        while True:
            answer, cursor = self._ask(step, query)
            pages.append(answer)
            if not cursor:
                return pages
            query["cursor"] = cursor

    def _ask(self, step: Step, query: Mapping[str, str] | str) -> tuple[dict[str, Any], str | None]:
        caller = self._scenario["callers"][step.get("as", "admin")]
        path = self._referred(step["path"])
        if isinstance(query, str):
            raw = query
        else:
            raw = urlencode({name: self._referred(value) for name, value in query.items()})
        sent = event(
            step.get("method", "GET"), path, raw, caller.get("authorizer", {}), caller.get("authorization", "")
        )
        answer = self._function("api", sent)
        self._printed.clear()
        if answer.error:
            return {"raised": True}, None
        headers = {name.lower(): value for name, value in answer.result["headers"].items()}
        kind = headers.get("content-type", "").partition(";")[0]
        forms = {"text/csv": "csv", "application/jsonl": "jsonl", "application/x-ndjson": "jsonl"}
        form = "json" if kind.endswith("json") and kind not in forms else forms.get(kind, "text")
        body = self._decoded(form, self._neutral(body_of(answer.result)))
        cursor = headers.get("x-next-cursor") or (body.get("cursor") if isinstance(body, dict) else None)
        return {"status": answer.result["statusCode"], "type": kind, "body": body}, cursor

    def _export(self, step: Step) -> dict[str, Any]:
        """Every file of the bucket below a prefix, decoded."""
        files: dict[str, Any] = {}
        bucket = self._deployed.outputs["ExportBucketName"]
        for entry in self._s3.list_objects_v2(Bucket=bucket, Prefix=step.get("prefix", "")).get("Contents", []):
            data = self._s3.get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
            if entry["Key"].endswith(".parquet"):
                files[entry["Key"]] = self._parquet(data)
            else:
                header, *rows = csv.reader(io.StringIO(gzip.decompress(data).decode()))
                files[entry["Key"]] = self._table(header, rows)
        return files

    def _parquet(self, data: bytes) -> dict[str, Any]:
        path = self._folder / "rows.parquet"
        path.write_bytes(data)
        with duckdb.connect() as connection:
            answer = connection.execute(f"SELECT * FROM read_parquet('{path}')")
            header = [column[0] for column in answer.description]
            kinds = [str(column[1]) for column in answer.description]
            rows = [[_cell(cell) for cell in row] for row in answer.fetchall()]
        return self._table(header, rows) | {"kinds": kinds}

    def _table(self, header: list[str], rows: list[list[Any]]) -> dict[str, Any]:
        """Columns, and rows in a stable order, because files do not define one."""
        table = self._rows(header, rows)
        return {**table, "rows": sorted(table["rows"], key=lambda row: json.dumps(row, default=str, sort_keys=True))}

    def _rows(self, header: list[str], rows: list[list[Any]]) -> dict[str, Any]:
        return {"columns": header, "rows": [dict(zip(header, row, strict=True)) for row in rows]}

    # Texts

    def _decoded(self, form: str, text: str) -> Any:
        if form == "json":
            return loads(text)
        if form == "jsonl":
            return [loads(line) for line in text.splitlines()]
        if form == "csv":
            header, *rows = csv.reader(io.StringIO(text))
            return self._rows(header, rows)
        return text

    def _file(self, name: str, text: str) -> Path:
        path = self._folder / name
        path.write_text(text)
        return path

    def _filled(self, text: str) -> str:
        return text.replace("{outside}", self._outside.url)

    def _neutral(self, text: str) -> str:
        return text.replace(self._outside.url, "{outside}").replace(str(self._folder), "{folder}")

    def _referred(self, text: str) -> str:
        """`${step|rows.[kind=idle].id}` is replaced by a value of an earlier step's answer."""
        return re.sub(r"\$\{([^|}]+)\|([^}]+)\}", lambda match: str(self._answer_at(match[1], match[2])), text)

    def _answer_at(self, step: str, path: str) -> Any:
        value = self._answers[step].get("body", {})
        for part in path.split("."):
            if part.startswith("["):
                wanted = [condition.split("=") for condition in part[1:-1].split("&")]
                matching = (row for row in value if all(str(_inside(row, name)) == text for name, text in wanted))
                value = next(matching, {})
            elif isinstance(value, list):
                value = value[int(part)] if int(part) < len(value) else {}
            else:
                value = value.get(part, MISSING)
        return value


def _inside(document: Any, path: str) -> Any:
    for part in path.split("/"):
        document = document[part]
    return document


def _cell(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, (str, int)) or type(value).__name__ == "Decimal" else str(value)


def _sqs_record(message: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": message.get("MessageAttributes", {}),
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:local:000000000000:golden",
        "awsRegion": "local",
    }


def _sns_record(message: Mapping[str, Any]) -> dict[str, Any]:
    envelope = json.loads(message["Body"])
    return {
        "EventSource": "aws:sns",
        "EventVersion": "1.0",
        "EventSubscriptionArn": f"{envelope['TopicArn']}:golden",
        "Sns": {**envelope, "MessageAttributes": envelope.get("MessageAttributes", {})},
    }
