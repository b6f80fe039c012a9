"""Optional packages, asked for here before any work begins."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from smoothcert.errors import MissingExtraError


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


def require(module: str, purpose: str, extra_name: str | None = None) -> Any:
    """The module, or a module of such a package; refused with the command that installs it where it isn't there.

    ``extra_name`` is the extra to name where several install the package.
    """
    package = module.partition(".")[0]
    extra = EXTRAS[package]
    try:
        import_module(package)  # a part of it may be imported already though the package can't be
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(extra.package, extra_name or extra.name, purpose) from error


def installed(*modules: str) -> bool:
    """Whether all of these can be imported; one that is there and broken can't."""
    try:
        for module in modules:
            import_module(module)
    except Exception:  # packages built for other versions of their own needs fail in many ways
        return False
    return True
