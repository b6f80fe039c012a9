"""Text of unknown origin as it may be shown: control characters are seen, not obeyed."""

from __future__ import annotations

import re

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
