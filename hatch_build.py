"""Compiles the modules that every record goes through, with mypyc, into the wheels of core, kafka and worker.

The source is the same, so what is compiled and what is not do the same; the wheel has both, and without a C compiler, its
headers for Python, mypy or setuptools it is a pure one. An editable install stays pure: there an edited file must count.
A member lists its modules in its pyproject.toml, under tool.hatch.build.targets.wheel.hooks.custom.
"""

import os
import shutil
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NEEDED_SOURCES = ("core", "kafka", "worker")


def missing_tool() -> str | None:
    """What keeps this machine from compiling."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"the C compiler {compiler}"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's C headers"
    return next((f"the Python package {name}" for name in ("mypyc", "setuptools") if find_spec(name) is None), None)


class CompiledModules(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling for a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if missing := missing_tool():
            self.app.display_warning(f"{self.metadata.name} is built without compiled modules: {missing} is missing")
            return
        self._made = tempfile.TemporaryDirectory()
        built = compiled(Path(self.root), self.config["modules"], Path(self._made.name))
        build_data["force_include"] |= {str(file): str(place) for place, file in built.items()}
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_made"):
            self._made.cleanup()


def compiled(member: Path, modules: list[str], folder: Path) -> dict[Path, Path]:
    """The extensions of a member's modules, made in `folder`, by their places in the wheel."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    os.environ["MYPYPATH"] = os.pathsep.join(str(member.parent / name / "src") for name in NEEDED_SOURCES)
    sources = [f"{module.replace('.', '/')}.py" for module in modules]
    before = Path.cwd()
    os.chdir(member / "src")
    try:
        extensions = mypycify(
            [
                "--config-file=",
                f"--cache-dir={folder / 'mypy'}",
                "--explicit-package-bases",
                "--follow-imports=silent",
                "--ignore-missing-imports",
                *sources,
            ],
            opt_level="3",
            debug_level="0",
            target_dir=str(folder / "c"),
            group_name=modules[0].partition(".")[0],
        )
        command = build_ext(Distribution({"name": "compiled", "ext_modules": extensions}))
        command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "temp")
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    built = {file.relative_to(folder / "lib"): file for file in (folder / "lib").rglob("*") if file.is_file()}
    if not built:
        sys.exit(f"{member.name}: nothing was compiled of {', '.join(modules)}")
    return built
