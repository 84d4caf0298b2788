"""JSON as bytes in UTF-8, fast: by orjson, and what that refuses by `json`, which takes all that there is."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import orjson


def encode(value: Any) -> bytes:
    """One line without spaces; a moment is written as ISO 8601.

    A number that is not finite has no form in JSON: it is null, or what `json` makes of it. Raises TypeError for
    whatever else has none, and what `json` raises for a value that holds itself or is very deep.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # half of a surrogate pair, an integer of more than 64 bits
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=datetime.isoformat)
        return text.encode("utf-8", "backslashreplace")  # JSON writes \ud800 for half a pair


def decode(text: bytes | str) -> Any:
    """What the JSON says, an integer of more than 64 bits as the nearest float.

    Raises ValueError for text that is none, in UTF-8 as bytes, RecursionError for a very deep one.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # NaN, half of a surrogate pair, or no JSON at all
        # `json` itself would take bytes in UTF-16 and UTF-32, too.
        return json.loads(text if isinstance(text, str) else text.decode("utf-8-sig", "surrogatepass"))
