"""The client's wheel and sdist: their version and contents, and which packages they need."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "cerebro_db"
VERSION = re.search(r"default_version = '(.+)'", (ROOT / "cerebro.control").read_text())
CORE = {"cerebro_db", "psycopg2", "sqlalchemy"}
# Packages that only the command, or only the live page, may import at the top of a module.
ROOMS = {"cli": {"click", "jsonschema", "tomlkit"}, "dashboard": {"starlette", "uvicorn"}}
OTHERS = {
    "IPython", "keras", "matplotlib", "ml_dtypes", "mlflow", "numpy", "pandas", "pyarrow", "rich", "sklearn",
    "tensorboard",
}  # fmt: skip


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build a wheel and an sdist as for a release, and return their paths."""
    folder = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def _run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_they_have_the_version_of_the_extension(shipped: tuple[Path, Path]) -> None:
    assert VERSION
    assert [path.name for path in shipped] == [
        f"cerebro_db-{VERSION[1]}-py3-none-any.whl",
        f"cerebro_db-{VERSION[1]}.tar.gz",
    ]


def test_they_hold_the_client_with_the_source_of_the_extension_and_nothing_else(
    shipped: tuple[Path, Path],
) -> None:
    wheel, sdist = shipped
    names = zipfile.ZipFile(wheel).namelist()
    assert "cerebro_db/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"cerebro_db"}
    with tarfile.open(sdist) as file:
        inside = {name.split("/")[1] for name in file.getnames()}
    client = {"cerebro_db", "cerebro.control", "LICENSE", "pyproject.toml"}
    # The files from which `cerebro init` builds the extension.
    extension = {"plpy", "sql", "migrations", "tools", "Makefile", "requirements", "requirements.lock"}
    assert client | extension <= inside
    assert not inside & {".local", "bench", "build", "docs", "tests"}


def test_twine_has_nothing_to_say(shipped: tuple[Path, Path]) -> None:
    said = _run(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *shipped, COLUMNS="500")
    assert said.count("PASSED") == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["wheel", "sdist"])
def test_each_installs_where_there_is_nothing(
    shipped: tuple[Path, Path], tmp_path: Path, number: int, database: str
) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    _run(python, "-m", "pip", "install", "-q", shipped[number])
    program = "import cerebro_db; print(cerebro_db.connect().rows('SELECT extversion FROM pg_extension'))"
    assert VERSION
    assert f"'{VERSION[1]}'" in _run(python, "-c", program, PGDATABASE=database)
    extras = "import cerebro_db; cerebro_db.connect().runs()"
    with pytest.raises(AssertionError, match=r"pip install '\./\[pandas\]'"):
        _run(python, "-c", extras, PGDATABASE=database)


INSTALLS = sorted(
    {
        found
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "docs" / "tutorial.ipynb"]
        for found in re.findall(r"pip install (?:-q )?['\"]?(\S*?[./]\S*?)['\"]?(?=[`\s])", page.read_text())
        if not found.startswith("-")
    }
)


@pytest.mark.parametrize("named", INSTALLS)
def test_what_the_docs_install_is_installed_from_a_clone(named: str, tmp_path: Path) -> None:
    """The new environment sees the packages of this one, and pip uses no network.

    If an extra needs a package that is not installed here, pip fails.
    """
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    (here,) = {path for path in sys.path if path.endswith("site-packages")}
    (site,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    (site / "here.pth").write_text(f"{here}\n")
    command = [python, "-m", "pip", "install", "--no-index", "--no-build-isolation", named]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "does not provide the extra" not in done.stdout + done.stderr
    assert "Successfully installed cerebro-db" in done.stdout


def test_every_command_of_the_docs_is_found() -> None:
    assert len(INSTALLS) >= 5


modules = sorted(CLIENT.rglob("*.py"))


@pytest.mark.parametrize("file", modules, ids=lambda file: str(file.relative_to(CLIENT)))
def test_a_module_is_python_3_10(file: Path) -> None:
    ast.parse(file.read_text(), feature_version=(3, 10))


@pytest.mark.parametrize("file", modules, ids=lambda file: str(file.relative_to(CLIENT)))
def test_a_module_imports_what_it_may(file: Path) -> None:
    """At its top, a module may import only packages that are always installed; elsewhere, optional ones."""
    tree = ast.parse(file.read_text())
    known = sys.stdlib_module_names
    top = _imported(tree.body) - known
    own = ROOMS.get(file.parent.name, set())
    assert top <= CORE | own | ({"numpy"} if file.name == "estimators.py" else set())
    assert _imported(list(ast.walk(tree))) - known <= CORE | own | OTHERS


def _imported(nodes: list[ast.stmt] | list[ast.AST]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("file", modules, ids=lambda file: str(file.relative_to(CLIENT)))
def test_a_module_knows_the_public_side_of_the_database_alone(file: Path) -> None:
    """Only shared.py may name cerebro_plpy: it imports the code that predicts without a database."""
    hidden = r"cerebro\._|__internal" if file.name == "shared.py" else r"cerebro\._|cerebro_plpy|__internal"
    assert not re.findall(hidden, file.read_text())
