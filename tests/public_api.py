"""The public API as text, which a test holds; the site's Python reference is made from the same names.

``python -m tests.public_api`` writes ``tests/public_api.txt`` anew. Do that when a change of a public name, signature
or field is a decision, and say so in CHANGELOG.md: other programs depend on them.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import smoothcert

ROOT = Path(__file__).parent.parent
SNAPSHOT = ROOT / "tests" / "public_api.txt"
ESTIMATOR = "smoothcert.estimator.SmoothedEstimator"
CLIENT = tuple(
    f"smoothcert.client.{name}" for name in ("Client", "AsyncClient", "ServedAnswer", "ServiceError")
)
VERONA = ("smoothcert.integrations.VeronaVerifier", "smoothcert.integrations.VeronaResult")
GROUPS = {
    "Certifying": (
        *(
            "SmoothedClassifier",
            "HoldingClassifier",
            "LevelledClassifier",
            "ConstantChooser",
            "StatisticChooser",
        ),
        *("Certification", "Certifications", "Evidence", "Prediction", "Predictions", "ABSTAIN"),
        *("CertifyPlan", "Numerics", "Execution"),
    ),
    "Noise": ("Gaussian", "Uniform", "DiagonalGaussian", "DiagonalUniform", "Hybrid", "Masks"),
    "Training": (
        *("train", "SmoothingLoss", "load_model"),
        *("fit_masked", "MaskedEstimator", "choose_masked", "MaskedChoice"),
    ),
    "Data sets and runs": (
        *(
            "Dataset",
            "load_dataset",
            "Choice",
            "certify_dataset",
            "Run",
            "load_run",
            "recertify",
            "verify_run",
        ),
        *("attack", "AttackPlan", "fit_noise", "FitPlan", "quantize"),
    ),
    "Figures": (
        *("radius", "certified_accuracy", "average_certified_radius", "compare", "table", "plot_curves"),
        *("report", "model_card"),
    ),
    "scikit-learn": (ESTIMATOR,),
    "Callers of a server": CLIENT,
    "Other libraries": VERONA,
    "Errors": ("SmoothcertError",),
}
# Methods and properties of classes that have others as well, for the rest of the package; fields are public anyway.
MEMBERS = {
    "SmoothedClassifier": (
        *("base_class", "certify", "certify_each", "certify_one", "certify_stream", "class_names", "classes"),
        *("predict", "predict_each", "predict_one", "prepare", "settle_seed"),
    ),
    "LevelledClassifier": (
        *("certify", "certify_each", "certify_one", "predict", "predict_each", "predict_one", "prepare"),
    ),
    "ConstantChooser": (),
    "StatisticChooser": ("levels", "text"),
    "HoldingClassifier": ("certify", "certify_one", "mask", "predict", "predict_one"),
    "CertifyPlan": ("as_json",),
    "AttackPlan": (),
    "Choice": ("indices",),
    "FitPlan": (),
    "Numerics": (),
    "Execution": ("worker_count",),
    "Gaussian": (),
    "Uniform": (),
    "DiagonalGaussian": ("sigma",),
    "DiagonalUniform": ("sigma",),
    "Hybrid": ("of", "sample"),
    "Masks": (),
    "MaskedEstimator": ("encoded", "predict", "predict_proba", "score"),
    "Dataset": ("input", "input_shape", "inputs", "levels"),
    "Run": ("complete", "name", "norm", "planned", "shortfall", "stateful"),
}


def found(name: str) -> Any:
    """The object behind a public name."""
    if "." not in name:
        return getattr(smoothcert, name)
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def signature_of(function: Any) -> str:
    """A signature as it is written; nothing for errors, which are caught and not made."""
    if inspect.isclass(function) and issubclass(function, Exception):
        return ""
    signature = inspect.signature(function)
    kept = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    words, starred = [], False
    for each in kept:
        if each.kind is each.KEYWORD_ONLY and not starred:
            words.append("*")
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        mark = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {_written(each.annotation)}"
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        words.append(f"{mark}{each.name}{kind}{default}")
    returned = signature.return_annotation
    end = "" if returned in (signature.empty, None, "None") else f" -> {_written(returned)}"
    return f"({', '.join(words)}){end}"


def members_of(cls: type) -> Iterator[tuple[str, str, str]]:
    """(kind, name, text) of each public member that this package declares: fields first, then by name."""
    own = {each.name: each for each in fields(cls)} if is_dataclass(cls) else {}
    for name, each in own.items():
        yield "field", name, f"{_written(each.type)}{_field_default(each)}"
    held: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] == "smoothcert":
            held |= vars(base)
    for name, member in sorted(held.items()):
        if name.startswith("_") or name in own or name not in MEMBERS.get(cls.__name__, held):
            continue
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(plain):
            yield "method", name, signature_of(plain)
        elif isinstance(member, property) or hasattr(member, "attrname"):
            yield "property", name, ""


def snapshot() -> str:
    """Every public name, its signature and its members, a line each."""
    lines = []
    for name in [*smoothcert.__all__, ESTIMATOR, *CLIENT, *VERONA]:
        one = found(name)
        if inspect.isclass(one):
            lines.append(f"class {name}{signature_of(one)}")
            lines += [
                f"  {kind} {member}{' ' if kind == 'field' else ''}{text}"
                for kind, member, text in members_of(one)
            ]
        elif callable(one):
            lines.append(f"def {name}{signature_of(one)}")
        else:
            lines.append(f"{name}: {type(one).__name__}")
    return "\n".join(lines) + "\n"


def doc_of_field(cls: type, name: str) -> str:
    """What is said of a field: the help of a knob, or the text that follows its declaration."""
    for each in fields(cls) if is_dataclass(cls) else ():
        if each.name == name and each.metadata.get("help"):
            return _sentence(each.metadata["help"])
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == "smoothcert":
            told = _field_docs(base).get(name)
            if told:
                return told
    return ""


def first_line(member: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    paragraph = inspect.cleandoc(getattr(member, "__doc__", "") or "").partition("\n\n")[0]
    return _plain(" ".join(paragraph.split()))


def _plain(text: str) -> str:
    """Markdown from the little markup that docstrings have."""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    return text.replace("``", "`")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _field_docs(cls: type) -> dict[str, str]:
    """The texts that stand below the declarations of fields."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(node, ast.ClassDef)
    docs = {}
    for before, after in zip(node.body, node.body[1:]):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            docs[ast.unparse(before.target)] = _plain(" ".join(after.value.value.split()))
    return docs


def _written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: Any) -> str:
    shown = repr(value)
    return "…" if "<factory>" in shown or " at 0x" in shown else shown


def _field_default(each: Field[Any]) -> str:
    if each.default is not MISSING:
        return f" = {_default(each.default)}"
    return "" if each.default_factory is MISSING else " = …"


if __name__ == "__main__":
    SNAPSHOT.write_text(snapshot(), encoding="utf-8")
