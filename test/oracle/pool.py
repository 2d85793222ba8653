"""Cases in processes of their own, so that a crash or a hang is a finding and not the end."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from multiprocessing import connection
from typing import Iterable, Iterator

from .data import Case

TIME_LIMIT = 120.0  # seconds for a case: compiling takes one or two
CASES_PER_PROCESS = 150  # compiled kernels stay in memory


@dataclass
class Outcome:
    case: Case
    failure: object = None  #: check.Failure, or None
    unsupported: str = ""  #: what the compiler cannot do yet


def _serve(pipe: connection.Connection) -> None:
    """A worker: a case in, an outcome out. A crash closes the pipe, and its message went to the standard error."""
    import traceback

    import attn

    from .check import Failure, check

    attn.set_num_threads(2)
    while True:
        case, with_numpy = pipe.recv()
        outcome = Outcome(case)
        try:
            outcome.failure = check(case, with_numpy)
        except NotImplementedError as error:
            outcome.unsupported = str(error)
        except Exception:  # of the oracle itself: shown like any other finding
            outcome.failure = Failure("error", f"the oracle: {traceback.format_exc()}")
        pipe.send(outcome)


class _Worker:
    def __init__(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.case: Case | None = None
        self.started = 0.0
        self.served = 0

    def give(self, case: Case, with_numpy: bool) -> None:
        self.case, self.started, self.served = case, time.monotonic(), self.served + 1
        self.pipe.send((case, with_numpy))

    def stop(self) -> int | None:
        self.pipe.close()
        self.process.join(5 if self.case is None else 1)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return self.process.exitcode


class Pool:
    def __init__(self, processes: int = 0):
        self.processes = processes or os.cpu_count() or 1
        self.workers: list[_Worker] = []

    def run(self, cases: Iterable[Case], with_numpy_every: int = 1) -> Iterator[Outcome]:
        """The outcome of each case, in the order in which they end."""
        from .check import Failure

        waiting = iter(cases)
        number = 0
        more = True
        while True:
            while more and sum(each.case is not None for each in self.workers) < self.processes:
                case = next(waiting, None)
                if case is None:
                    more = False
                    break
                worker = next((each for each in self.workers if each.case is None), None)
                if worker is None:
                    worker = _Worker()
                    self.workers.append(worker)
                worker.give(case, number % with_numpy_every == 0)
                number += 1
            busy = {each.pipe: each for each in self.workers if each.case is not None}
            if not busy:
                return
            for pipe in connection.wait(list(busy), timeout=1.0):
                worker = busy.pop(pipe)
                case = worker.case
                try:
                    outcome = pipe.recv()
                    worker.case = None
                except (EOFError, OSError):
                    self.workers.remove(worker)
                    outcome = Outcome(case, Failure("crash", f"the process ended with status {worker.stop()}"))
                if worker.served >= CASES_PER_PROCESS and worker in self.workers:
                    self.workers.remove(worker)
                    worker.stop()
                yield outcome
            for worker in busy.values():
                if worker.case is not None and time.monotonic() - worker.started > TIME_LIMIT:
                    self.workers.remove(worker)
                    case = worker.case
                    worker.stop()
                    yield Outcome(case, Failure("hang", f"no result after {TIME_LIMIT:.0f} s"))

    def first(self, case: Case) -> Outcome:
        return next(iter(self.run([case])))

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers = []
