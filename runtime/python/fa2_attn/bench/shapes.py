"""Shapes to measure: reading them, the keys that their queries see, and their work."""

import csv
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

PASSES = ("forward", "backward", "both")
# The number of S x S x D products, as papers count them: 2 forward, 5 backward. Backward computes one of the 5 twice.
_PRODUCTS = {"forward": 2.0, "backward": 5.0, "both": 7.0}

# Keys of `fa2-tune --shape`, and columns of shape files.
_KEYS = {"B": "batch", "Hq": "heads_q", "Hkv": "heads_kv", "Sq": "seq_q", "Sk": "seq_k", "D": "head_dim",
         "dtype": "dtype", "causal": "causal", "softcap": "softcap", "window": "window", "Wl": "window_left",
         "Wr": "window_right"}
_REQUIRED = ("heads_q", "seq_q", "head_dim")
DTYPES = ("fp16", "bf16", "fp32")
CAP = 30.0  # of scores, if they are capped
# Columns of shape files that this module ignores: other options set them, they do not matter here, or they are notes.
_NOT_FEATURES = ("op", "deterministic", "calls", "origin", "preset")


@dataclass(frozen=True)
class Shape:
    """A problem without its operation. In window_left and window_right, -1 means all keys of that side."""

    batch: int
    heads_q: int
    heads_kv: int
    seq_q: int
    seq_k: int
    head_dim: int
    dtype: str = "fp16"
    causal: int = 0
    softcap: int = 0
    window: int = 0
    window_left: int = 0
    window_right: int = 0

    def bounds(self) -> Tuple[Optional[int], Optional[int]]:
        """Returns how many keys before and after its own position a query sees. None means all."""
        left, right = (bound if self.window and bound >= 0 else None for bound in (self.window_left, self.window_right))
        return left, 0 if self.causal else right

    def cap(self) -> Dict[str, float]:
        """Returns the argument of functions that cap scores, if the shape asks for it."""
        return {"softcap": CAP} if self.softcap else {}

    def seen_pairs(self) -> float:
        """Returns the number of query-key pairs that count as work.

        Causal problems count half of all pairs, as papers do. Problems with a window count the visible pairs.
        """
        if not self.window:
            return self.seq_q * self.seq_k * (0.5 if self.causal else 1.0)
        left, right = self.bounds()
        pairs = 0
        for place in range(self.seq_k - self.seq_q, self.seq_k):
            first = 0 if left is None else max(0, place - left)
            end = self.seq_k if right is None else min(self.seq_k, place + right + 1)
            pairs += max(0, end - first)
        return pairs

    def tflops(self, which: str, us: float) -> float:
        flop = 2.0 * _PRODUCTS[which] * self.batch * self.heads_q * self.seen_pairs() * self.head_dim
        return flop / us / 1e6

    def passes(self, wanted: List[str]) -> List[str]:
        """Returns the wanted passes that make sense. A single query is a decoding step, which needs no gradient."""
        return [name for name in wanted if name == "forward" or self.seq_q > 1]

    def kv_bytes(self) -> int:
        return 2 * (4 if self.dtype == "fp32" else 2) * self.batch * self.heads_kv * self.seq_k * self.head_dim

    def cells(self) -> List[str]:
        """Returns its cells in tables, under COLUMNS."""
        heads = f"{self.heads_q}" if self.heads_q == self.heads_kv else f"{self.heads_q}/{self.heads_kv}"
        length = f"{self.seq_q}" if self.seq_q == self.seq_k else f"{self.seq_q}×{self.seq_k}"
        masks = [name for name in ("causal", "softcap") if getattr(self, name)]
        if self.window:
            masks.append(f"window {self.window_left}, {self.window_right}")
        return [f"{self.batch}", heads, length, f"{self.head_dim}", self.dtype, ", ".join(masks)]

    def __str__(self) -> str:
        """Returns the shape as `fa2-tune --shape` takes it."""
        shown = {key: getattr(self, name) for key, name in _KEYS.items()}
        for key in ("softcap", "window", "Wl", "Wr"):
            if not shown[key] and not (self.window and key in ("Wl", "Wr")):
                del shown[key]
        return ",".join(f"{key}={value}" for key, value in shown.items())


COLUMNS = ["B", "H (q/kv)", "S (q×k)", "D", "dtype", "mask"]
FIELDS = tuple(field.name for field in fields(Shape))


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it must be a whole number") from None


def _of_words(words: Dict[str, str]) -> Shape:
    """words: texts by field name. Empty ones count as not given."""
    given = {name: text.strip() for name, text in words.items() if name in FIELDS and text and text.strip()}
    missing = [name for name in _REQUIRED if name not in given]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    values = {name: text if name == "dtype" else _number(name, text) for name, text in given.items()}
    values = {"batch": 1, "heads_kv": values["heads_q"], "seq_k": values["seq_q"], **values}
    return _checked(_with_window(values))


def _with_window(values: Dict[str, Any]) -> Shape:
    """A bound asks for a window. If only one bound of a window is given, the other is -1."""
    if {"window_left", "window_right"} & values.keys() and "window" not in values:
        values["window"] = 1
    if values.get("window"):
        values = {"window_left": -1, "window_right": -1, **values}
    return Shape(**values)


def _checked(shape: Shape) -> Shape:
    if shape.dtype not in DTYPES:
        raise ValueError(f"dtype is {shape.dtype!r}; it must be fp16, bf16 or fp32")
    for name in ("causal", "softcap", "window"):
        if getattr(shape, name) not in (0, 1):
            raise ValueError(f"{name} is {getattr(shape, name)}; it must be 0 or 1")
    for name in ("batch", "heads_q", "heads_kv", "seq_q", "seq_k", "head_dim"):
        if getattr(shape, name) < 1:
            raise ValueError(f"{name} is {getattr(shape, name)}; it must be at least 1")
    if shape.heads_q % shape.heads_kv != 0:
        raise ValueError(f"heads_q is {shape.heads_q}; it must be a multiple of heads_kv, {shape.heads_kv}")
    return shape


def _words_of_text(text: str) -> Dict[str, str]:
    words = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        name = _KEYS.get(key, key)
        if not equals or name not in FIELDS:
            raise ValueError(f"{part.strip()!r}: expected KEY=VALUE, keys {', '.join(_KEYS)}")
        words[name] = value
    return words


def of_text(text: str) -> Shape:
    """Parses "B=1,Hq=8,Hkv=8,Sq=512,Sk=512,D=64,dtype=fp16,causal=1". The defaults are fa2-tune's."""
    try:
        return _of_words(_words_of_text(text))
    except ValueError as error:
        raise ValueError(f"--shape {text}: {error}") from None


def changed(shape: Shape, text: str) -> Shape:
    """The shape with other values for the keys in the text: "dtype=bf16,causal=1,Wl=1024,Wr=0"."""
    try:
        words = _words_of_text(text)
        values: Dict[str, Any] = {name: value if name == "dtype" else _number(name, value)
                                  for name, value in words.items()}
        if {"window_left", "window_right"} & values.keys():
            values = {"window": 1, "window_left": -1, "window_right": -1, **values}
        return _checked(replace(shape, **values))
    except ValueError as error:
        raise ValueError(f"--set {text}: {error}") from None


def _rows(path: Path) -> Iterator[Tuple[int, Dict[str, str]]]:
    with open(path, newline="", encoding="utf-8") as source:
        lines = [(number, line) for number, line in enumerate(source, 1) if line.strip() and line[0] != "#"]
    reader = csv.DictReader(line for _, line in lines)
    for (number, _), row in zip(lines[1:], reader):
        yield number, {key: value for key, value in row.items() if isinstance(key, str) and isinstance(value, str)}


def _refuse_features(row: Dict[str, str]) -> None:
    """Raises ValueError if a row asks for a feature beyond FIELDS, because it would be missing from the timed work."""
    for name, value in row.items():
        if name not in (*FIELDS, *_NOT_FEATURES) and value.strip() not in ("", "0", "none"):
            raise ValueError(f"{name} is {value.strip()}; fa2_attn.bench does not measure that")


def _of_row(path: Path, number: int, row: Dict[str, str]) -> Shape:
    try:
        _refuse_features(row)
        if row.get("window", "").strip() == "0":  # its bounds have no meaning
            row = {key: value for key, value in row.items() if not key.startswith("window")}
        return _of_words(row)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from None


def of_file(path: Path) -> List[Shape]:
    """Reads a shape file (`fa2-tune --shapes`). Empty and 0 columns of other features are ignored."""
    return [_of_row(path, number, row) for number, row in _rows(path)]


def _presets_file() -> Path:
    """Returns the file beside this module if it is installed, else in the source tree."""
    installed = Path(__file__).with_name("presets.csv")
    return installed if installed.exists() else Path(__file__).parents[4] / "tuner" / "input" / "presets.csv"


def of_preset(name: str) -> List[Shape]:
    """Returns the shapes of a preset of `fa2-tune --preset`."""
    path = _presets_file()
    rows = list(_rows(path))
    found = [_of_row(path, number, row) for number, row in rows if row["preset"] == name]
    if not found:
        known = ", ".join(dict.fromkeys(row["preset"] for _, row in rows))
        raise ValueError(f"--preset {name}: there is no such preset; there are {known}")
    return found
