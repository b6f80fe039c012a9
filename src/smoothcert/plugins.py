"""Code from outside the package: files named by an environment variable, and entry points of installed packages."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from smoothcert.errors import SmoothcertError

VARIABLE = "SMOOTHCERT_PLUGINS"
ENTRY_POINTS = ("smoothcert.plugins", "smoothcert.objectives")

_LOADING = threading.RLock()
_loaded = False


class PluginError(SmoothcertError):
    """A plugin that can't be loaded."""


class PluginWarning(UserWarning):
    """An installed package whose plugins can't be used."""


def load_plugins() -> None:
    """Import the files that ``SMOOTHCERT_PLUGINS`` names, separated as in PATH, and installed packages' entry points.

    Once: what they register is there from then on. A file that was asked for by name must load; a package that happens
    to be installed only warns if it can't.
    """
    global _loaded
    with _LOADING:
        if _loaded:
            return
        _loaded = True
        try:
            for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
                _import_file(Path(name).expanduser())
        except BaseException:
            _loaded = False  # the next one to ask is told as well
            raise
        from importlib.metadata import entry_points  # takes a third of the time of `--version`

        for entry in (entry for group in ENTRY_POINTS for entry in entry_points(group=group)):
            try:
                entry.load()
            except Exception as error:  # third-party code can raise anything
                warnings.warn(f"the plugin {entry.value} is unusable: {error!r}", PluginWarning, stacklevel=2)


def _import_file(path: Path) -> None:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise PluginError(f"{VARIABLE} names {path}, which is not a Python file: give the path of a .py file")
    module = module_from_spec(spec)
    # Dataclasses look their module up by name.
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise PluginError(f"{path}, named by {VARIABLE}, can't be imported: {error!r}") from error
