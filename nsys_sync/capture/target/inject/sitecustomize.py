"""Loaded by every Python below the launcher, because its folder stands first in PYTHONPATH; starts the target package.

The interpreter is the program's own, of any version and without nsys-sync: standard library only, and nothing here
may fail. A sitecustomize of the environment itself runs first, as it would have without this one.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_the_next_sitecustomize() -> None:
    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found] # noqa: F401
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
    finally:
        # The import system looks its module up once more when this file has run.
        if own is not None:
            sys.modules.setdefault("sitecustomize", own)


def _start_the_target_package() -> None:
    if sys.version_info < (3, 8):  # noqa: UP036 - the program's Python, not ours
        sys.stderr.write("nsys-sync: this Python is older than 3.8; steps are neither counted nor marked in it\n")
        return
    import importlib.util

    name = "_nsys_sync_target"
    folder = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        return
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        package = importlib.util.module_from_spec(spec)
        sys.modules[name] = package
        spec.loader.exec_module(package)
        package.start_modules()
    finally:
        sys.dont_write_bytecode = written


# The program finds its own modules exactly where it would without us.
sys.path[:] = [entry for entry in sys.path if entry != _HERE]
try:
    _run_the_next_sitecustomize()
finally:
    try:
        _start_the_target_package()
    except Exception as error:  # noqa: BLE001 - whatever it is, the program must run
        sys.stderr.write(f"nsys-sync: the target module did not start: {error!r}\n")
