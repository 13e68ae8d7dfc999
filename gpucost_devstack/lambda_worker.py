"""Runs one function in its own process, like Lambda: loads a handler and answers one event per line.

It only uses the standard library, so that built artifacts run with nothing else on the path:
`python -I gpucost_devstack/lambda_worker.py app.handler DIR [DIR ...]`, events as JSON lines on stdin, answers on
stdout.
The function's own output goes to stderr.
"""

import importlib
import json
import os
import sys
import time
import traceback
import uuid


class LambdaContext:
    """The parts of Lambda's context object that Powertools reads."""

    def __init__(self, function_name: str, seconds: float = 300) -> None:
        self.function_name = function_name
        self.function_version = "$LATEST"
        self.memory_limit_in_mb = 512
        self.invoked_function_arn = f"arn:aws:lambda:local:000000000000:function:{function_name}"
        self.aws_request_id = str(uuid.uuid4())
        self._deadline = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Time left, in milliseconds."""
        return max(0, int((self._deadline - time.monotonic()) * 1000))


def main() -> None:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    target, *folders = sys.argv[1:]
    sys.path[:0] = folders
    module, name = target.rsplit(".", 1)
    handler = getattr(importlib.import_module(module), name)
    answers.write(json.dumps({"ready": True, "processor_seconds": time.process_time()}) + "\n")
    for line in sys.stdin:
        try:
            answer = {
                "result": handler(json.loads(line), LambdaContext(os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "local")))
            }
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps({**answer, "processor_seconds": time.process_time()}) + "\n")


if __name__ == "__main__":
    main()
