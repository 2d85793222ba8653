"""Malformed specs: each is rejected with exit status 1 and an error that names its place, and nothing crashes.

Two sources: specs by hand, each with the message it must give, and mutations of the examples from a fixed seed
(tokens left out, doubled, swapped, renamed or replaced). A mutant that is a valid spec is skipped, not counted.

    malformed.py ATTNC EXAMPLES
"""

import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

MUTANTS_MOST = 160
MUTANTS_WANTED = 150
FAILURES_SHOWN = 5
SECONDS_ALLOWED = 20  # for one spec: a hang is a failure

HEAD = "attention a(q: f32[M, D], k: f32[N, D], i: i32[M], c: bool[M]) {\n"
TAIL = "\n  return x\n}\n"


def kernel(statement):
    return HEAD + "  " + statement + TAIL


# (spec, a message that must be printed)
BY_HAND = [
    ("", "the file has no attention"),
    ("\n\n# nothing but a comment", "the file has no attention"),
    ("def f(x) = x\n", "the file has no attention"),
    (b"\x00", "invalid byte 0x00: the file is not UTF-8 text"),
    (b"\xff\xfe\x00a", "invalid byte 0xFF: the file is not UTF-8 text"),
    (kernel("x[m] = q[m, 0]").encode().replace(b"q[m", b"\x00q[m"), "invalid byte 0x00"),
    (kernel("x[m] = q[m, 0] + \u00e9"), "unexpected character `\u00e9`"),
    (kernel("x[m] = q[m, 0] +").replace("\n", "\r\n"), "expected an expression, but the line ends here"),
    (HEAD, "expected `}`, but the file ends here"),
    (HEAD + "  x[m] = exp(q[m, 0]", "expected `,` or `)`, but the file ends here"),
    (HEAD + "  x[m] = 'text", "unterminated string"),
    ("attention", "expected the name of an attention, but the file ends here"),
    ("attention a", "expected `(`, but the file ends here"),
    ("attention a(", "expected the name of a parameter, but the file ends here"),
    ("attention a(q", "expected `:` and a type, but the file ends here"),
    ("attention a(q:", "expected a dtype, but the file ends here"),
    ("attention a(q: f32[", "expected an expression, but the file ends here"),
    ("attention a(q: f32[M]) x", "expected `{`, but found `x`"),
    ("attention a[", "expected the name of a size, but the file ends here"),
    ("attention a[H =", "expected an integer, but the file ends here"),
    ("def", "expected the name of a function, but the file ends here"),
    ("def f(x = 1) = x", "expected `,` or `)`, but found `=`"),
    ("import numpy", "expected `attention` or `def`, but found `import`"),
    ("{}", "expected `attention` or `def`, but found `{`"),
    (kernel("x[m] = " + "(" * 100000), "nested more than 200 levels deep"),
    (kernel("x[m] = " + "-" * 100000 + "1.0"), "nested more than 200 levels deep"),
    (kernel("x[m] = " + "not " * 100000 + "c[m]"), "nested more than 200 levels deep"),
    (kernel("x[m] = " + "2 ** " * 100000 + "2"), "nested more than 200 levels deep"),
    (kernel("x[m] = " + "exp(" * 100000 + "1"), "nested more than 200 levels deep"),
    (kernel("x[m] = " + "q[" * 100000 + "m"), "nested more than 200 levels deep"),
    (kernel("x[m] = " + "sum[d](" * 100000), "nested more than 200 levels deep"),
    (kernel("x[m] = q[m, 0]" + " + 1" * 100000), "more than 1000 levels"),
    (HEAD.replace("i32[M]", "i32[M" + " + 1" * 100000 + "]") + "  x[m] = q[m, 0]" + TAIL, "more than 1000 levels"),
    ("def f0(x) = x\n" + "".join(f"def f{n}(x) = f{n - 1}(x)\n" for n in range(1, 500)) + kernel("x[m] = f499(q[m, 0])"),
     "functions are nested more than 100 calls deep"),
    ("def f0(x) = x\n" + "".join(f"def f{n}(x) = f{n - 1}(x) + f{n - 1}(x)\n" for n in range(1, 60))
     + kernel("x[m] = f59(q[m, 0])"), "functions expand to more than 10000 calls in one statement"),
    ("attention a(q: f32[M, 99999999999999999999]) {\n  x[m] = q[m, 0]" + TAIL, "larger than 9223372036854775807"),
    ("attention a[H = 99999999999999999999](q: f32[M, H]) {\n  x[m] = q[m, 0]" + TAIL, "larger than 9223372036854775807"),
    (kernel("x[m] = m + " + "9" * 100000), "larger than 9223372036854775807"),
    (kernel("x[m] = q[m, 0] * 1e" + "9" * 1000), "is too large for a float"),
    (kernel("x[m] = " + "a" * 100000), "unknown name `aaaa"),
    (kernel("x[m] = q[m, 0] ? 1 : 0"), "unexpected character `?`"),
    (kernel("x[m] = q[m, 0]$"), "unexpected character `$`"),
    (kernel("x[m] = q.m"), "unexpected character `.`"),
    (kernel("x[m] += q[m, 0]"), "expected `=`, but found `+`"),
    (kernel("x[m] : = q[m, 0]"), "expected a dtype, but found `=`"),
    (kernel("x[m,] = q[m, 0]"), "expected an index variable, but found `]`"),
    (kernel("x[m + 1] = q[m, 0]"), "expected `,` or `]`, but found `+`"),
    (kernel("x[m] = q[m, ]"), "`q` has 2 dimensions, but 1 subscript is given"),
    (kernel("x[m] = sum[d](q[m, d] where)"), "expected an expression, but found `)`"),
    (kernel("x[m] = sum[d](q[m, d], sink)"), "expected `sink = \u2026`, but found `sink`"),
    (kernel("x[m] = sum[d](q[m, d], sink = 1.0)"), "`sum` cannot have a sink"),
    (kernel("x[m] = sum[](q[m, 0])"), "empty brackets"),
    (kernel("x[m] = sum[1](q[m, 0])"), "expected an index variable, but found `1`"),
    (kernel("x[m] = sum[d, d](q[m, d])"), "index variable `d` is introduced twice"),
    (kernel("x[m] = sum[d: f32](q[m, d])"), "a size must begin with an upper-case letter, but found `f32`"),
    (kernel("x[m] = sum[d: 1.5](q[m, d])"), "`1.5` is not a size"),
    (kernel("x[m] = sum[d: D % 2](q[m, d])"), "`%` cannot stand in a size"),
    (kernel("x[m] = sum[d: 0 - 1](q[m, d])"), "the size `0 - 1` is negative: -1"),
    (kernel("x[m] = sum[j: 4](1.0 * j) + q[m, 4] and c[m]"), "an operand of `and` must be a bool, but this is a float"),
    (kernel("x[m] = logsumexp[m](q[m, 0])"), "index variable `m` is introduced twice"),
    (kernel("x[m] = max[d: D](c[m])"), "`max` needs a number, but this is a bool"),
    (kernel("x[m] = softmax(q[m, 0])"), "`softmax` needs the index it runs over"),
    (kernel("x[m] = dropout(q[m, 0], 0.1)"), "`dropout` takes 3 arguments, but 2 are given"),
    (kernel("x[m] = dropout(q[m, 0], c[m], 1)"), "the probability of `dropout` needs a number, but this is a bool"),
    (kernel("x[m] = pow(q[m, 0])"), "`pow` takes 2 arguments, but 1 is given"),
    (kernel("x[m] = select(c[m], 1)"), "`select` takes 3 arguments, but 2 are given"),
    (kernel("x[m] = q[m, 0] + i[c[m]]"), "subscript 0 of `i` needs a number, but this is a bool"),
    (kernel("x[m] = q[m, 0] + i[1.0]"), "subscript 0 of `i` must be an integer, but this is a float"),
    (kernel("x[m]: f99 = q[m, 0]"), "expected a dtype, but found `f99`"),
    (kernel("x[m]: i8 = q[m, 0]"), "`x` is annotated i8, but its value is a float"),
    (kernel("x[m]: bool = q[m, 0]"), "`x` is annotated bool, but its value is a float"),
    (kernel("x[m] = select(m = 1, 1, 0)"), "`=` defines; to compare write `==`"),
    (kernel("inf[m] = q[m, 0]"), "`inf` is reserved and cannot be the name of a tensor"),
    (kernel("x[where] = q[m, 0]"), "`where` is a keyword and cannot be a name"),
    (HEAD + "  x[m] = q[m, 0]\n  return\n}\n", "expected the name of a tensor, but the line ends here"),
    (HEAD + "  return x, x\n}\n", "unknown name `x`"),
    (kernel("x[m] = q[m, 0]\n         + q[m, 1]"), "a line that ends with `+`, or within brackets, goes on in the next one"),
    (kernel("x[m] = q[m, 0]\n    ** 2"), "a line that ends with `**`, or within brackets, goes on in the next one"),
    (kernel("x[m] = softmax(q[m, 0] where m > 1)"), "a condition stands inside of a reduction, which names its index: sum[n](x where condition)"),
    (HEAD + "  x[m] = q[m, 0]\n  return x x\n}\n", "expected an operator or the end of the return, but found `x`"),
    (HEAD + "  x[m] = q[m, 0]\n  return x\n} }\n", "expected the end of the line after `}`, but found `}`"),
    (HEAD + "  x[m] = q[m, 0]\n  return x\n  return x\n}\n", "nothing may follow `return`"),
]


def tokens_of(text):
    return re.findall(r"#[^\n]*|\n|[ \t]+|[A-Za-z_]\w*|\d+(?:\.\d+)?|\*\*|//|<=|>=|==|!=|.", text)


def mutate(text, generator):
    """One to three changes of tokens that are neither space nor comment."""
    tokens = tokens_of(text)
    places = [n for n, token in enumerate(tokens) if token.strip() and not token.startswith("#")]
    for _ in range(generator.randint(1, 3)):
        place = generator.choice(places)
        change = generator.randrange(7)
        if change == 0:
            tokens[place] = ""
        elif change == 1:
            tokens[place] += " " + tokens[place]
        elif change == 2:
            other = generator.choice(places)
            tokens[place], tokens[other] = tokens[other], tokens[place]
        elif change == 3:
            tokens[place] = tokens[place].swapcase() if tokens[place].isalpha() else "@"
        elif change == 4:
            tokens[place] = generator.choice(["(", ")", "[", "]", "{", "}", ",", ":", "=", "where", "and", "\n"])
        elif change == 5:
            tokens[place] = generator.choice(["bool", "f32", "17", "1.5", "unknown", "Unknown", "true", "inf", "softmax"])
        else:
            tokens[place] += generator.choice(["[m]", "(1)", " + true", ", m", "x", " 1"])
    return "".join(tokens)


def verdict(attnc, folder, name, spec, message):
    """What is wrong with attnc's answer to a spec: nothing (""), or a text; None if the spec is valid and may be."""
    path = pathlib.Path(folder, name + ".attn")
    path.write_bytes(spec if isinstance(spec, bytes) else spec.encode())
    try:
        run = subprocess.run([attnc, "--emit=attn", path], capture_output=True, timeout=SECONDS_ALLOWED)
    except subprocess.TimeoutExpired:
        return f"{name}: no answer in {SECONDS_ALLOWED} s\n{spec!r:.2000}"
    errors = run.stderr.decode(errors="replace")
    if run.returncode == 0 and message is None:
        return None
    place = re.compile(rf"^{re.escape(str(path))}:\d+:\d+: error: ", re.MULTILINE)
    if run.returncode != 1 or not place.search(errors) or (message or "") not in errors:
        expected = message or "an error"
        return f"{name}: status {run.returncode}, expected {expected}\n{spec!r:.2000}\n{errors[:2000]}"
    return ""


def main(attnc, examples):
    generator = random.Random(20240611)
    sources = [source.read_text() for source in sorted(pathlib.Path(examples).glob("*.attn"))]
    mutants = (mutate(generator.choice(sources), generator) for _ in range(MUTANTS_MOST))

    # Each spec is a process of attnc; threads here only wait for them.
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:

        def verdicts(kind, specs):
            tasks = [pool.submit(verdict, attnc, folder, f"{kind}{n}", *spec) for n, spec in enumerate(specs)]
            return [task.result() for task in tasks]

        by_hand = verdicts("by-hand-", BY_HAND)
        of_mutants = verdicts("mutant-", ((mutant, None) for mutant in mutants))
    failures = [text for text in by_hand + of_mutants if text]
    rejected, valid = of_mutants.count(""), of_mutants.count(None)
    if rejected < MUTANTS_WANTED and not failures:
        failures.append(f"only {rejected} of {MUTANTS_MOST} mutants were rejected, {MUTANTS_WANTED} are wanted")
    print(f"{len(BY_HAND)} specs by hand and {rejected} mutants rejected, {valid} mutants valid")
    print("\n".join(failures[:FAILURES_SHOWN]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
