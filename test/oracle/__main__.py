"""Draws specs for a time, and prints every failure as a small spec with its sizes and seed."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

from tqdm import tqdm

from .check import check
from .data import Case, draw_case
from .generate import generate
from .gradient import check_gradient
from .pool import Outcome, Pool
from .shrink import shrink


DRAWS = 4  # of sizes and values for each spec: compiling takes longer than all of them
SHIFT = 10_000_000  # between their seeds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m oracle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="when to stop drawing (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each spec has the next one (default: 0)")
    parser.add_argument("--count", type=int, help="how many specs at most")
    parser.add_argument("--gradients", action="store_true", help="compare gradients, not outputs")
    parser.add_argument("--processes", type=int, default=0, help="how many at once (default: one for each core)")
    parser.add_argument("--shrink-seconds", type=float, default=60, help="for each failure (default: 60); 0 prints it as it was drawn")
    parser.add_argument("--save", type=Path, help="a folder for the failures")
    options = parser.parse_args()

    end = time.monotonic() + options.seconds
    last = options.seed - 1

    def cases():
        nonlocal last
        seeds = itertools.count(options.seed)
        for seed in seeds if options.count is None else itertools.islice(seeds, options.count):
            if time.monotonic() > end:
                return
            last = seed
            spec = generate(seed)
            yield [draw_case(spec, seed + SHIFT * number) for number in range(DRAWS)]

    pool = Pool(check_gradient if options.gradients else check, options.processes)
    count, failures = 0, []
    try:
        with tqdm(unit=" specs", disable=None) as bar:
            for outcome in pool.run(cases()):
                count += 1
                bar.update()
                if outcome.failure:
                    failures.append(outcome)
                    bar.write(f"seed {outcome.case.seed % SHIFT}: {outcome.failure.kind}: {outcome.failure.text.splitlines()[0]}", file=sys.stdout)
                    sys.stdout.flush()
                    save(options.save, outcome, outcome.case.seed)
        for outcome in {each.failure.signature: each for each in reversed(failures)}.values():  # the first of each sort
            found = smallest(pool, outcome, options.shrink_seconds)
            print("\n" + report(found, outcome.case.seed), flush=True)
            save(options.save, found, outcome.case.seed)
    finally:
        pool.close()
    print(f"{count} specs, {len(failures)} failed (seeds {options.seed} to {last})")
    return 1 if failures else 0


def save(folder: Path | None, outcome: Outcome, seed: int) -> None:
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed-{seed % SHIFT}.md").write_text(report(outcome, seed))


def smallest(pool: Pool, outcome: Outcome, seconds: float) -> Outcome:
    """The outcome of the smallest case that fails like this one."""
    found = [outcome]

    def fails(case: Case) -> bool:
        now = pool.first(case)
        same = now.failure is not None and now.failure.signature == outcome.failure.signature
        if same:
            found.append(now)
        return same

    shrink(outcome.case, fails, seconds)
    return found[-1]


def report(outcome: Outcome, seed: int) -> str:
    """What to paste into a test."""
    case = outcome.case
    sizes = ", ".join(f"{name}={value}" for name, value in case.sizes)
    shapes = "\n".join(
        f"  {each.name}: {each.dtype}[{', '.join(each.shape)}], values {each.values.name} {each.values.limit}".rstrip()
        for each in case.spec.parameters
    )
    return (
        f"# seed {seed % SHIFT}: {outcome.failure.kind}\n\n{outcome.failure.text}\n\nsizes {sizes}; values of seed {case.seed}; "
        f"{'plain' if case.plain else 'odd strides and values'}\n"
        f"{shapes}\n\n```\n{case.spec.text()}```\n"
    )


if __name__ == "__main__":
    sys.exit(main())
