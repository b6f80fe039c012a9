"""What messages say: text of unknown origin, whose control characters are seen and not obeyed, and commands to run."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

# C0 and C1 controls, marks that reorder or hide text, line separators, halves of surrogate pairs (bytes of a file's
# name that are no text), tags.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_CONTROLS = re.compile(f"[{_UNSEEN}]")
_CONTROLS_OF_A_NAME = re.compile(f"[{_UNSEEN}\t\n]")


def shown(text: str) -> str:
    r"""``text`` with control characters as ``\u001b``; tabs and ends of lines stay.

    The form is JSON's, so that JSON stays JSON.
    """
    return _CONTROLS.sub(_escaped, text)


def shown_name(text: str) -> str:
    """The same for a name, which has neither tabs nor several lines."""
    return _CONTROLS_OF_A_NAME.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = ord(match[0])
    if character <= 0xFFFF:
        return f"\\u{character:04x}"
    beyond = character - 0x10000
    return f"\\u{0xD800 + (beyond >> 10):04x}\\u{0xDC00 + (beyond & 0x3FF):04x}"


_NORMS = {"l0": "ℓ0", "l2/sigma": "ℓ2/σ"}


def norm_name(norm: str) -> str:
    """``ℓ2`` for ``l2``, whatever is said of it in brackets; names of other norms are as they are."""
    if norm in _NORMS:
        return _NORMS[norm]
    return f"ℓ{norm[1:]}" if norm.partition(" ")[0] in ("l1", "l2") else norm


def only_numbers(norm: str) -> str:
    """What a radius in this norm leaves out: it moves the numbers of a table, and no category."""
    return ", all categories unchanged," if norm == "l2/sigma" else ""


_SOME_SIGMA = 0.25  # the papers' smallest

SPELLINGS = {
    "outputs": "model-returns",
    "output": "model-output",
    "levels": "grid",
    "skip": "every",
    "address": "ray-address",
    "like": "plan-from",
}
"""Options that are called otherwise than what they fill; the first names were the options' earlier ones."""


def option(field: str) -> str:
    """What the option is called that fills a field: ``data_dir`` → ``--data-dir``."""
    return f"--{SPELLINGS.get(field, field.replace('_', '-'))}"


def command(name: str, /, *arguments: object, **options: object) -> str:
    """``smoothcert NAME ARGUMENTS --OPTION VALUE …`` as a shell takes it; an option that is None is left out.

    True is a switch, a tuple several values. Names may come from a run of unknown origin: control characters are
    shown, and so don't reach a terminal.
    """
    words = [*name.split(), *map(_word, arguments)]
    for field, value in options.items():
        if value is not None and value is not False:
            values = () if value is True else value if isinstance(value, tuple) else (value,)
            words += [option(field), *map(_word, values)]
    return shlex.join(["smoothcert", *words])


def typed(options: Any) -> dict[str, object]:
    """The options of a group that have other values than by default, as :func:`command` takes them."""
    found: dict[str, object] = {}
    for field in fields(options):
        value = getattr(options, field.name)
        if value != field.default:
            found |= {f"no_{field.name}": True} if value is False else {field.name: value}
    return found


def usage(name: str) -> str:
    """The command that explains another."""
    return command(name, "--help")


def certify_trained(
    model: Path,
    dataset: str | None,
    data_dir: str | Path | None = None,
    split: str | None = None,
    *,
    noisy: bool = True,
) -> str:
    """Certifies the model of a training run; ``dataset`` None: the registered one that it was trained on.

    A model that was trained without noise (not ``noisy``) doesn't say which to certify with, and the command has to.
    """
    return command(
        "certify",
        model,
        dataset=dataset,
        sigma=None if noisy else _SOME_SIGMA,
        data_dir=data_dir,
        split=split,
        out=beside(model, "certified"),
    )


def beside(path: Path, what: str) -> Path:
    """``runs/a-certified`` for ``runs/a``, also where the path ends in dots."""
    whole = path if path.name and path.name != ".." else path.resolve()
    return whole.with_name(f"{whole.name}-{what}")


def _word(value: object) -> str:
    """A path that begins with a dash isn't an option."""
    text = shown_name(str(value))
    return f"./{text}" if isinstance(value, Path) and text.startswith("-") else text
