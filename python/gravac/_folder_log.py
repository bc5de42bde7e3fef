"""The files that `gravac report` reads, as `gravac train --out` writes them."""

from __future__ import annotations

import json
import math
import os
import re
import time
from typing import Any, Dict, Mapping, Optional, TextIO

_STEP = re.compile(r'"step": *(\d+)')


class FolderLog:
    """Writes steps.jsonl, evals.jsonl and config.toml into a folder. For one rank: the others have the same steps.

    The clock stands still between a step and the evaluation that follows it.
    """

    def __init__(self, path: "str | os.PathLike[str]") -> None:
        self._path = os.fspath(path)
        self._steps: Optional[TextIO] = None  # opened by the first step, which says where the run goes on
        self._evaluations: Optional[TextIO] = None
        self._seconds = 0.0  # of training
        self._bytes_sent = 0
        self._since: Optional[float] = None  # when the last step or evaluation ended

    def step(self, line: str, report: Mapping[str, Any], loss: Optional[float], config: Mapping[str, Any]) -> None:
        """Appends a step: `line` is the report as the engine wrote it."""
        if self._steps is None:
            self._open(int(report["step"]), config)
        now = time.monotonic()
        phases = ("compute", "compress", "agree", "exchange", "decode")
        self._seconds += sum(report[f"{p}_seconds"] for p in phases) if self._since is None else now - self._since
        self._since = now
        self._bytes_sent += report["bytes_sent"]
        more = {"loss": _number(loss), "train_seconds": round(self._seconds, 6)}
        assert self._steps is not None
        self._steps.write(f"{line.rstrip()[:-1]}, {json.dumps(more)[1:]}\n")

    def evaluation(self, steps: int, values: Mapping[str, float]) -> None:
        """Appends an evaluation after so many steps. Requires a step before it."""
        assert self._evaluations is not None
        line: Dict[str, Any] = {
            "schema": 1,
            "step": steps,
            "train_seconds": round(self._seconds, 6),
            "bytes_sent": self._bytes_sent,
        }
        line.update((name, _number(value)) for name, value in values.items())
        self._evaluations.write(json.dumps(line) + "\n")
        self.pause()

    def pause(self) -> None:
        """What was done since the last step was not training."""
        if self._since is not None:
            self._since = time.monotonic()

    def close(self) -> None:
        """Closes the files; nothing can be written any more."""
        for file in (self._steps, self._evaluations):
            if file is not None:
                file.close()

    def _open(self, step: int, config: Mapping[str, Any]) -> None:
        """A run that goes on from a state keeps the lines up to there; one that starts at step 0 keeps none."""
        os.makedirs(self._path, exist_ok=True)
        with open(os.path.join(self._path, "config.toml"), "w") as file:
            file.writelines(f"{name} = {json.dumps(value)}\n" for name, value in config.items())
        kept = _cut(os.path.join(self._path, "steps.jsonl"), step)
        _cut(os.path.join(self._path, "evals.jsonl"), step + 1 if step > 0 else 0)
        if kept:
            self._seconds = float(kept.get("train_seconds") or 0)
        self._steps = open(os.path.join(self._path, "steps.jsonl"), "a", buffering=1)
        self._evaluations = open(os.path.join(self._path, "evals.jsonl"), "a", buffering=1)


def _number(value: Optional[float]) -> Optional[float]:
    """JSON has no NaN and no infinity."""
    return float(value) if value is not None and math.isfinite(value) else None


def _cut(path: str, step: int) -> Dict[str, Any]:
    """Removes the lines of `step` and later ones, and half a line at the end. Returns the last line that is left."""
    try:
        with open(path) as file:
            lines = file.readlines()
    except FileNotFoundError:
        return {}
    kept = []
    for line in lines:
        found = _STEP.search(line)
        if not line.endswith("\n") or found is None or int(found[1]) >= step:
            break
        kept.append(line)
    with open(path, "w") as file:
        file.writelines(kept)
    try:
        return json.loads(kept[-1]) if kept else {}
    except ValueError:
        return {}
