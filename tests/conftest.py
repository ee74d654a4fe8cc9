"""What every test may use: the recorded traces, unpacked, and the numbers that are known about them."""

from __future__ import annotations

import json
import lzma
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# A machine that is busy with something else is no reason to fail. Where everything must run, it is the same every time.
hypothesis.settings.register_profile(
    "any-machine",
    deadline=None,
    derandomize="NSYS_SYNC_TEST_ALL" in os.environ,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any-machine")

SAMPLES = Path(__file__).parent.parent / "sample_traces"

#: What a marked test needs, the programs that give it, and how to get them.
TOOLS = {
    "needs_nsys": (("nsys",), "Nsight Systems is not on PATH (scripts/install_nsys.sh)"),
    "needs_browser": (("chromium", "chromedriver"), "Chromium is not here (apt-get install chromium chromium-driver)"),
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot run here, with the reason; where everything must run (NSYS_SYNC_TEST_ALL), fail instead."""
    for marker, (programs, reason) in TOOLS.items():
        if item.get_closest_marker(marker) and not all(map(shutil.which, programs)):
            (pytest.fail if os.environ.get("NSYS_SYNC_TEST_ALL") else pytest.skip)(reason)


@pytest.fixture(scope="session", autouse=True)
def _plain_environment() -> Iterator[None]:
    """What a person's shell or a CI sets for the programs that it runs is not meant for the tests."""
    of_terminals = ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    ours = [name for name in os.environ if name.startswith("NSYS_SYNC_") and name != "NSYS_SYNC_TEST_ALL"]
    with pytest.MonkeyPatch.context() as environment:
        for name in (*of_terminals, "PYTHONWARNINGS", "VIRTUAL_ENV", "CONDA_PREFIX", *ours):
            environment.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``sample("probe-sync")`` is the path of that trace as a read-only .sqlite, unpacked once a session."""
    folder = tmp_path_factory.mktemp("samples")

    def unpack(name: str) -> Path:
        path = folder / f"{name.replace('/', '-')}.sqlite"
        if not path.exists():
            with lzma.open(SAMPLES / f"{name}.sqlite.xz") as packed, path.open("wb") as plain:
                shutil.copyfileobj(packed, plain)
            path.chmod(0o444)
        return path

    return unpack


@pytest.fixture(scope="session")
def sample_names() -> list[str]:
    """Names of all recorded traces, sorted."""
    return sorted(path.name.removesuffix(".sqlite.xz") for path in SAMPLES.glob("*.sqlite.xz"))


@pytest.fixture(scope="session")
def expected() -> dict[str, Any]:
    """What two independent implementations of the definitions found in the recorded traces (ns)."""
    values: dict[str, Any] = json.loads((SAMPLES / "expected.json").read_text())
    return values
