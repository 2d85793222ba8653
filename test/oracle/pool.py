"""Cases in processes of their own, so that a crash or a hang is a finding and not the end."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from dataclasses import dataclass
from multiprocessing import connection
from typing import Callable, Iterable, Iterator

import attn

from .check import Failure
from .data import Case

TIME_LIMIT = 300.0  # seconds for the cases of a spec: they take one or two, but machines may be busy
SPECS_PER_PROCESS = 150  # compiled kernels stay in memory


@dataclass
class Outcome:
    case: Case
    failure: Failure | None = None


Check = Callable[[Case], Failure | None]


def _serve(pipe: connection.Connection, check: Check) -> None:
    """A worker: the cases of one spec in, the first failure out, and before each case its number. A crash closes the pipe."""
    attn.set_num_threads(2)
    while True:
        try:
            cases = pipe.recv()
        except EOFError:  # the pool has no more
            return
        for position, case in enumerate(cases):
            pipe.send(position)
            outcome = Outcome(case)
            try:
                outcome.failure = check(case)
            except Exception:  # of the oracle itself: shown like any other finding
                outcome.failure = Failure("error", f"the oracle: {traceback.format_exc()}")
            if outcome.failure:
                break
        pipe.send(outcome)


class _Worker:
    def __init__(self, check: Check):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, check), daemon=True)
        self.process.start()
        other.close()
        self.cases: list[Case] = []  #: under way; none when idle
        self.position = 0
        self.started = 0.0
        self.served = 0

    def give(self, cases: list[Case]) -> None:
        self.cases, self.position, self.started, self.served = cases, 0, time.monotonic(), self.served + 1
        self.pipe.send(cases)

    def stop(self) -> int | None:
        self.pipe.close()
        self.process.join(1 if self.cases else 5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        return self.process.exitcode


class Pool:
    def __init__(self, check: Check, processes: int = 0):
        self.check = check
        self.processes = processes or os.cpu_count() or 1
        self.workers: list[_Worker] = []

    def run(self, specs: Iterable[list[Case]]) -> Iterator[Outcome]:
        """For the cases of each spec the first that fails, or the last, in the order in which they end."""
        waiting = iter(specs)
        more = True
        while True:
            while more and sum(bool(each.cases) for each in self.workers) < self.processes:
                cases = next(waiting, None)
                more = cases is not None
                if cases:
                    self._idle().give(cases)
            busy = {each.pipe: each for each in self.workers if each.cases}
            if not busy:
                return
            for pipe in connection.wait(list(busy), timeout=1.0):
                outcome = self._received(busy[pipe])
                if outcome:
                    yield outcome
            for worker in list(self.workers):
                if worker.cases and time.monotonic() - worker.started > TIME_LIMIT:
                    yield self._lost(worker, "hang", f"no result after {TIME_LIMIT:.0f} s")

    def _idle(self) -> _Worker:
        for worker in self.workers:
            if not worker.cases:
                return worker
        self.workers.append(_Worker(self.check))
        return self.workers[-1]

    def _received(self, worker: _Worker) -> Outcome | None:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            return self._lost(worker, "crash", "the process ended")
        if isinstance(message, int):
            worker.position = message
            return None
        worker.cases = []
        if worker.served >= SPECS_PER_PROCESS:
            self.workers.remove(worker)
            worker.stop()
        return message

    def _lost(self, worker: _Worker, kind: str, text: str) -> Outcome:
        case = worker.cases[worker.position]
        self.workers.remove(worker)
        status = worker.stop()
        return Outcome(case, Failure(kind, text if kind == "hang" else f"{text} with status {status}"))

    def first(self, case: Case) -> Outcome:
        return next(self.run([[case]]))

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.workers = []
