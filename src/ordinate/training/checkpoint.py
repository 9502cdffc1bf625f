"""Where a trial stands, on disk: safetensors and a manifest with checksums, replaced as a whole."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

TENSORS, MANIFEST = "checkpoint.safetensors", "checkpoint.json"


def write(folder: Path, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Replaces the checkpoint in a folder: at every moment a whole one is there, old or new.

    The tensors' file carries its own checksum in its name, so that a manifest never meets the
    tensors of another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
    digest = hashlib.sha256(content).hexdigest()
    file = f"{digest[:16]}.{TENSORS}"
    there = (folder / file).exists()
    replace(folder / file, content)
    body = {"file": file, "sha256": digest, "state": state}
    text = json.dumps(body)
    whole = json.dumps({**body, "manifest_sha256": hashlib.sha256(text.encode()).hexdigest()})
    try:
        replace(folder / MANIFEST, whole.encode())
    except OSError:
        # A disk that is almost full would otherwise be filled with tensors that nobody reads.
        if not there:
            (folder / file).unlink()
        raise
    for old in folder.glob(f"*.{TENSORS}"):
        if old.name != file:
            old.unlink(missing_ok=True)


def read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The tensors and the state of a checkpoint; None if there is none, or a damaged one."""
    try:
        text = (folder / MANIFEST).read_bytes()
        body = json.loads(text)
        # Some other bytes mean the same: 1E-3 for 1e-3.
        if json.dumps(body).encode() != text:
            return None
        said = body.pop("manifest_sha256")
        if hashlib.sha256(json.dumps(body).encode()).hexdigest() != said:
            return None
        content = (folder / body["file"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != body["sha256"]:
            return None
        return load(content), body["state"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError):
        return None


def remove(folder: Path) -> None:
    """Deletes the checkpoint in a folder, and what an interrupted write left there."""
    for path in (*folder.glob(f"*.{TENSORS}"), folder / MANIFEST, *folder.glob("*.part")):
        path.unlink(missing_ok=True)


def replace(path: Path, content: bytes) -> None:
    """Writes a file so that there is the old or the new one, whole, whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(fresh, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
