"""Every command with the core dependencies alone: it does its work, or says before it begins what to install."""

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.cli.commands import COMMANDS, path_of
from smoothcert.cli.plot import KNOBS
from smoothcert.extras import EXTRAS

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

DONE = ""
DATA = "--dataset npz:toy.npz"
TRAIN = "train npz:toy.npz --sigma 0.5 --epochs 1 --batch-size 16"
FEW = f"{DATA} --n 100 --max 3"
LABELS = "--model-returns labels --classes 3"
LINES = f"attack-lines model {DATA} --max 1 --steps 1 --copies 1 --points 2 --votes 10"

# What each command is asked, in this order, and the extra that it needs for that (DONE: none).
ASKED = {
    "quickstart --out quick": "plot",
    "data list": DONE,
    "recipes": DONE,
    f"{TRAIN} --out model": DONE,
    "train digits --sigma 0.5 --epochs 1 --out digits": "quickstart",
    "train folder:pictures --sigma 0.5 --epochs 1 --out pictures-model": "images",
    f"{TRAIN} --tensorboard --out board": "tensorboard",
    "sweep npz:toy.npz --methods gaussian --sigmas 0.5 --epochs 1 --out sweep": "plot",
    f"fit noise model {DATA} --init 0.5 --validation 4 --out fit": "plot",
    f"experimental levels model {DATA} --sigma-levels 0.5 1 --validation 4 --votes 8 --epochs 1 --out chooser": DONE,
    f"fit int8 model {DATA} --validation 4 --out int8": "onnx",
    "fit masks toy:votes --dataset csv:toy.csv --target y --out masked": "plot",
    f"certify model {FEW} --dry-run": DONE,
    f"certify model {FEW} --n0 10 --out run": DONE,
    f"certify model {FEW} --route onnxruntime --out onnx-run": "onnx",
    f"certify model {FEW} --route openvino --out by-openvino": "openvino",
    f"certify graph.onnx --sigma 0.5 {FEW} --out graph-run": "onnx",
    f"certify some.joblib --trust-pickle --sigma 0.5 {FEW} --out pickled-run": "sklearn",
    f"certify toy:votes {LABELS} --sigma 0.5 {FEW} --backend processes --out sent": "processes",
    f"certify model {FEW} --backend ray --out by-ray": "ray",
    f"certify model {FEW} --shard 1/1 --out shard": DONE,
    "run merge shard --out merged": DONE,
    f"run remember run {DATA} --memory toy.memory --out remembered": DONE,
    f"run remember run {DATA} --memory postgresql:///toy --out in-postgres": "postgres",
    f"predict model {FEW}": DONE,
    "serve model": "serve",
    "serve key alice --api-keys keys": DONE,
    f"attack run --model model {DATA} --steps 1 --copies 1 --n 20": DONE,
    LINES: DONE,
    f"{LINES} --out lines.png": "plot",
    "fit features fit --out sensitivity.png": "plot",
    "show run": DONE,
    "table run": DONE,
    "compare run run": DONE,
    "run recertify run --alpha 0.01 --out again": DONE,
    "verify run": DONE,
    f"report run {DATA} --out page": DONE,
    "run publish run s3://bucket/run": "storage",
    "show s3://bucket/run": "storage",
    "run export run --out run.tsv": DONE,
    "run export run --out run.parquet": "parquet",
    "run import run.tsv --sigma 0.5 --out imported": DONE,
    "run import some.parquet --out from-parquet": "parquet",
    "doctor --quick": DONE,
} | {f"plot run --kind {kind} --out a.png{' --over n' * (kind == 'ablation')}": "plot" for kind in KNOBS}


def required_by(names: set[str]) -> set[str]:
    """These distributions and all that they need, as far as they are installed."""
    found: set[str] = set()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name not in found:
            found.add(name)
            try:
                needs = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue
            names |= {re.split(r"[<>=!~;\[ (]", one)[0] for one in needs if "extra ==" not in one}
    return found


def extra_modules() -> set[str]:
    """What can be imported only because somebody installed an extra."""
    asked = {
        re.split(r"[<>=\[ ]", one)[0]
        for name, group in PROJECT["optional-dependencies"].items()
        if name not in ("dev", "bench")
        for one in group
    }
    core = required_by({re.split(r"[<>=\[ ]", one)[0] for one in PROJECT["dependencies"]})
    only = required_by(asked) - core
    modules = {
        module
        for module, owners in metadata.packages_distributions().items()
        if {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} <= only
    }
    return modules | set(EXTRAS)


def answers(folder: Path) -> dict[str, dict[str, Any]]:
    random = np.random.default_rng(0)
    arrays = {
        f"{letter}_{split}": random.random((24, 1, 8, 8)).astype(np.float32)
        if letter == "x"
        else np.arange(24) % 3
        for split in ("train", "test")
        for letter in "xy"
    }
    np.savez(folder / "toy.npz", **arrays)
    (folder / "toy.py").write_text("votes = lambda rows: [0] * len(rows)\n")
    (folder / "graph.onnx").write_bytes(b"whatever")
    (folder / "some.parquet").write_bytes(b"PAR1 and so on")
    for place in (folder / "pictures" / split / "a" for split in ("train", "test")):
        place.mkdir(parents=True)
        (place / "1.png").write_bytes(b"\x89PNG")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("core_only.py"))],
        input=json.dumps({"blocked": sorted(extra_modules()), "commands": [each.split() for each in ASKED]}),
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return dict(zip(ASKED, json.loads(done.stdout)))


def test_every_command_is_asked():
    assert {path_of(asked.split()) for asked in ASKED} == {*COMMANDS} - {"data fetch"}


def test_every_extra_that_commands_use_is_asked_for():
    used = {extra.name for extra in EXTRAS.values()}
    # Tables: models that were fitted to named columns, which need pandas to be opened.
    assert used == {"tables"} | set(ASKED.values()) - {DONE}
    assert used <= set(PROJECT["optional-dependencies"])


@pytest.mark.system
def test_with_the_core_dependencies_alone(tmp_path):
    for asked, end in answers(tmp_path).items():
        extra = ASKED[asked]
        where = f"{asked}: {end['err']}"
        assert "Traceback" not in end["err"], where
        assert end["code"] == (0 if extra == DONE else 2), where
        if extra != DONE:
            assert f"pip install 'smoothcert[{extra}]'" in end["err"], where
            # Other processes are asked for when there are votes to cast, for a run that can be gone on with.
            assert not end["wrote"] or extra == "processes", where


REPORTS = """
import sys
from smoothcert.extras import installed
from smoothcert.models.onnx_file import has_bfloat16
assert installed("openvino")
has_bfloat16()
assert not [name for name in sys.modules if name.startswith("openvino_telemetry")]
import openvino_telemetry  # users can import it all the same
"""


@pytest.mark.system
def test_openvino_reports_nothing_to_its_makers():
    pytest.importorskip("openvino_telemetry")
    subprocess.run([sys.executable, "-c", REPORTS], check=True, timeout=120)
