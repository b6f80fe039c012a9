"""Code from outside the package: optional packages, asked for before any work begins, and plugins.

Plugins are files named by an environment variable, and entry points of installed packages.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

from smoothcert.errors import MissingExtraError, SmoothcertError


class Extra(NamedTuple):
    """What pip calls the package, and the extra of ours that installs it."""

    package: str
    name: str


EXTRAS = {
    "cloudpickle": Extra("cloudpickle", "processes"),
    "fastapi": Extra("fastapi", "serve"),
    "joblib": Extra("joblib", "sklearn"),
    "matplotlib": Extra("matplotlib", "plot"),
    "onnx": Extra("onnx", "onnx"),
    "onnxruntime": Extra("onnxruntime", "onnx"),
    "openvino": Extra("openvino", "openvino"),
    "pandas": Extra("pandas", "tables"),
    "PIL": Extra("Pillow", "images"),
    "prometheus_client": Extra("prometheus-client", "serve"),
    "psycopg": Extra("psycopg", "postgres"),
    "pyarrow": Extra("pyarrow", "parquet"),
    "ray": Extra("ray", "ray"),
    "s3fs": Extra("s3fs", "storage"),
    "sklearn": Extra("scikit-learn", "quickstart"),
    "tensorboard": Extra("tensorboard", "tensorboard"),
    "uvicorn": Extra("uvicorn", "serve"),
}
"""By the name that Python imports them under."""


_TELEMETRY = "openvino_telemetry"


def require(module: str, purpose: str, extra_name: str | None = None) -> Any:
    """The module, or a module of such a package; refused with the command that installs it where it isn't there.

    ``extra_name`` is the extra to name where several install the package.
    """
    package = module.partition(".")[0]
    extra = EXTRAS[package]
    try:
        _imported(package)  # a part of it may be imported already though the package can't be
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(extra.package, extra_name or extra.name, purpose) from error


def _imported(module: str) -> Any:
    """The module; OpenVINO without its telemetry, which sends its makers an event whenever it is imported."""
    if module != "openvino" or module in sys.modules:
        return import_module(module)
    modules: dict[str, Any] = sys.modules
    known = modules.get(_TELEMETRY)
    modules[_TELEMETRY] = None  # asking for it is an ImportError, which OpenVINO is prepared for
    try:
        return import_module(module)
    finally:
        del modules[_TELEMETRY]
        if known is not None:
            modules[_TELEMETRY] = known


def installed(*modules: str) -> bool:
    """Whether all of these can be imported; one that is there and broken can't."""
    try:
        for module in modules:
            _imported(module)
    except Exception:  # packages built for other versions of their own needs fail in many ways
        return False
    return True


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
