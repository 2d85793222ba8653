"""The Python package: pip builds it from this build's libraries, installs it, and takes it away again.

Nothing comes from the network: the environments are fresh, and what the package depends on is linked there from the one
that runs the tests.
"""

import importlib.metadata
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["ATTN_BUILD"])
DEPENDENCIES = ("halide", "imageio", "numpy", "pillow")
SPEC = "attention twice(x: f32[N]) {\n  y[n] = 2 * x[n]\n  return y\n}\n"
SYSTEM = {
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
    "linux-vdso.so.1",
}


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(*arguments):
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)


class Environment:
    """A Python environment with nothing but the package's dependencies."""

    def __init__(self, folder):
        venv.create(folder, symlinks=True)
        self.python = folder / "bin" / "python"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        self.folder = folder
        for name in DEPENDENCIES:
            distribution = importlib.metadata.distribution(name)
            for part in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
                (self.packages / part).symlink_to(distribution.locate_file(part))

    def files(self):
        """Its files, those of the dependencies left out: they are behind links, which are not followed."""
        return sorted(os.path.join(place, file) for place, _, files in os.walk(self.folder) for file in files)

    def install(self, wheel):
        pip("--python", self.python, "install", "--no-index", wheel)

    def uninstall(self):
        pip("--python", self.python, "uninstall", "--yes", "attn")

    def run(self, code):
        """What Python code prints here; it finds nothing by PYTHONPATH, and compiles rather than read the cache on disk."""
        return run(self.python, "-I", "-c", code, env={**os.environ, "ATTN_CACHE_DIR": ""})


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    prebuilt = f"cmake.define.ATTN_PREBUILT={BUILD}"
    pip("wheel", ROOT, "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, "--config-settings", prebuilt)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory):
    environment = Environment(tmp_path_factory.mktemp("installed"))
    environment.install(wheel)
    return environment


def test_the_wheel_has_the_files_of_the_package(wheel):
    folder = ROOT / "python" / "attn"
    sources = {
        f"attn/{file.relative_to(folder)}"
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {"attn/py.typed", "attn/_attn.pyi", "attn/nn/specs/additive.attn"} <= sources
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    (extension,) = names - sources
    assert re.fullmatch(r"attn/_attn\.cpython-\d+-\w+-linux-gnu\.so", extension)
    assert sources <= names


def test_the_wheel_has_the_licenses_of_what_is_inside(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    licenses = {name.split("/licenses/")[1] for name in names if "/licenses/" in name}
    assert licenses == {f"{name}.txt" for name in ("halide", "libfmt", "libzstd", "llvm", "nanobind", "zlib1g")}


def test_the_version_is_the_compilers(wheel):
    assert run(BUILD / "bin" / "attnc", "--version").split() == ["attnc", wheel.name.split("-")[1]]


def test_install_run_the_readmes_example_uninstall(wheel, tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    environment = Environment(tmp_path)
    before = environment.files()
    environment.install(wheel)
    printed = environment.run(code + "print(out.shape, weight.shape)\n")
    assert printed.startswith("<attn.Kernel scaled_dot(") and printed.endswith("(2, 1, 4) (2, 1, 10)\n")
    environment.uninstall()
    assert environment.files() == before


def test_attnc_writes_the_same_object(installed, tmp_path):
    spec = ROOT / "examples" / "scaled_dot.attn"
    for program, name in ((installed.folder / "bin" / "attnc", "installed"), (BUILD / "bin" / "attnc", "built")):
        (tmp_path / name).mkdir()
        run(program, spec, "-o", tmp_path / name / "kernel.o")
    for file in ("kernel.o", "kernel.h"):
        assert (tmp_path / "installed" / file).read_bytes() == (tmp_path / "built" / file).read_bytes()


def test_attncs_errors_are_its_status(installed):
    done = subprocess.run([installed.folder / "bin" / "attnc", "none.attn"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "attnc: error: cannot read none.attn: No such file or directory\n"


def test_it_needs_the_system_and_halides_wheel_only(installed):
    (extension,) = (installed.packages / "attn").glob("_attn.*.so")
    libraries = dict(re.findall(r"^\s*(\S+)(?: => (\S+))?", run("ldd", extension), re.M))
    # Links are not followed: the file is that of the environment of the tests, wherever it was found.
    halide = os.path.normpath(libraries.pop("libHalide.so"))
    assert halide == str(installed.packages / "halide" / "lib64" / "libHalide.so")
    assert {Path(name).name for name in libraries} <= SYSTEM


def test_nothing_of_llvm_is_loaded(installed):
    """Not later on, either: kernels are compiled and run."""
    printed = installed.run(f"""
import attn, numpy
print(attn.compile({SPEC!r})(numpy.arange(3, dtype="f4")))
print(sorted({{line.split("/")[-1].strip() for line in open("/proc/self/maps") if ".so" in line}}))
""")
    result, loaded = printed.splitlines()
    assert result == "[0. 2. 4.]"
    assert "libHalide.so" in loaded and "_attn." in loaded
    assert "LLVM" not in loaded and "MLIR" not in loaded


def test_it_shows_one_symbol(installed):
    """So that no other LLVM in the process, of which Halide has one, can meet the one inside."""
    (extension,) = (installed.packages / "attn").glob("_attn.*.so")
    assert run("nm", "--dynamic", "--defined-only", extension).split()[1:] == ["T", "PyInit__attn"]


def test_errors_arrive(installed):
    """With their types and texts, from all the libraries that are one here."""
    printed = installed.run(f"""
import attn, numpy
try:
    attn.compile({SPEC.replace("* x", "* z")!r})
except attn.CompileError as error:
    print(error)
try:
    attn.compile({SPEC!r})(numpy.zeros((2, 3), "f4"))
except ValueError as error:
    print(error)
""")
    assert printed == """\
<source>:2:14: error: unknown name `z`
    y[n] = 2 * z[n]
               ^
x: rank is 2, but must be 1
"""
