"""A checkpoint is whole or is none: flipped bits, cut files, full disks, kills in the middle."""

import errno
import json
import os
import random
import shutil

import pytest
import torch

from ordinate.training import checkpoint
from ordinate.training.checkpoint import MANIFEST, TENSORS, read, remove, replace, write

STATE = {"step": 12, "loss": 0.1 + 0.2, "small": 1e-05, "name": "é", "none": None, "curve": [{}]}


def tensors(seed=0):
    g = torch.Generator().manual_seed(seed)
    return {"theta": torch.randn(37, generator=g), "step": torch.tensor(3)}


def same(found, seed=0, state=STATE):
    return (
        found is not None
        and found[1] == state
        and {*found[0]} == {"theta", "step"}
        and all(torch.equal(found[0][k], t) for k, t in tensors(seed).items())
    )


def test_what_was_written_is_read(tmp_path):
    assert read(tmp_path / "none") is None
    write(tmp_path / "a", tensors(), STATE)
    assert same(read(tmp_path / "a"))
    write(tmp_path / "a", tensors(1), {"step": 13})
    assert same(read(tmp_path / "a"), 1, {"step": 13})
    # Of the old one nothing is left, and nothing of its making.
    assert len([*(tmp_path / "a").iterdir()]) == 2
    remove(tmp_path / "a")
    assert read(tmp_path / "a") is None and not [*(tmp_path / "a").iterdir()]


def test_every_flipped_bit_is_seen(tmp_path):
    write(tmp_path, tensors(), STATE)
    rng = random.Random(0)
    (large,) = tmp_path.glob(f"*.{TENSORS}")
    for path in (large, tmp_path / MANIFEST):
        content = path.read_bytes()
        bits = range(len(content) * 8)
        # All of the manifest: some of its bits change what is written and not what it means.
        for bit in bits if path.name == MANIFEST else rng.sample(bits, 200):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            assert read(tmp_path) is None, (path.name, bit)
        path.write_bytes(content)
        assert same(read(tmp_path))


def test_every_cut_is_seen(tmp_path):
    write(tmp_path, tensors(), STATE)
    (large,) = tmp_path.glob(f"*.{TENSORS}")
    for path in (large, tmp_path / MANIFEST):
        content = path.read_bytes()
        for size in range(len(content)):
            path.write_bytes(content[:size])
            assert read(tmp_path) is None, (path.name, size)
        path.write_bytes(content + b"\n")
        assert read(tmp_path) is None
        path.unlink()
        assert read(tmp_path) is None
        path.write_bytes(content)


@pytest.mark.parametrize("text", ["", "[]", "1", "null", "{}", '{"file": 1}', "\ud800"])
def test_what_is_no_manifest_is_no_checkpoint(tmp_path, text):
    (tmp_path / MANIFEST).write_bytes(text.encode(errors="surrogatepass"))
    assert read(tmp_path) is None


def test_a_manifest_never_meets_the_tensors_of_another(tmp_path):
    write(tmp_path / "a", tensors(0), STATE)
    write(tmp_path / "b", tensors(1), STATE)
    (a,), (b,) = ((tmp_path / x).glob(f"*.{TENSORS}") for x in "ab")
    shutil.copy(b, a)
    assert read(tmp_path / "a") is None


class Killed(BaseException):
    """The process is no more."""


@pytest.mark.parametrize("call", range(1, 9))
def test_a_write_that_is_killed_leaves_the_old_one_or_the_new_one(tmp_path, monkeypatch, call):
    """At each call to the system in turn, before it or after it."""
    write(tmp_path, tensors(0), {"step": 1})
    count = 0

    def dying(name):
        real = getattr(os, name)

        def once(*given):
            nonlocal count
            count += 1
            if count == (call + 1) // 2 and call % 2:
                raise Killed
            done = real(*given)
            if count == (call + 1) // 2:
                raise Killed
            return done

        return once

    with monkeypatch.context() as patch:
        for name in ("fsync", "replace"):
            patch.setattr(checkpoint.os, name, dying(name))
        with pytest.raises(Killed):
            write(tmp_path, tensors(1), {"step": 2})
    found = read(tmp_path)
    # The last call is the manifest's: only after it the new one counts.
    assert same(found, 1, {"step": 2}) if call == 8 else same(found, 0, {"step": 1})
    write(tmp_path, tensors(2), {"step": 3})
    assert same(read(tmp_path), 2, {"step": 3}) and len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize("full", [1, 2])
def test_a_full_disk_keeps_the_old_one_and_is_filled_no_further(tmp_path, monkeypatch, full):
    write(tmp_path, tensors(0), {"step": 1})
    before, count = {path.name for path in tmp_path.iterdir()}, 0

    def fsync(_):
        nonlocal count
        count += 1
        if count == full:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.os, "fsync", fsync)
        with pytest.raises(OSError, match="No space"):
            write(tmp_path, tensors(1), {"step": 2})
        count = 0
        with pytest.raises(OSError, match="No space"):
            # Of the same tensors: those that the manifest names stay.
            write(tmp_path, tensors(0), {"step": 2})
    assert same(read(tmp_path), 0, {"step": 1})
    assert {path.name for path in tmp_path.iterdir()} == before


def test_what_a_kill_left_is_cleared_away_with_the_checkpoint(tmp_path):
    write(tmp_path, tensors(), STATE)
    for name in (f"{MANIFEST}.99.part", f"ab.{TENSORS}.99.part", "result.json.99.part"):
        (tmp_path / name).write_text("half")
    (tmp_path / "result.json").write_text("whole")
    assert same(read(tmp_path))
    remove(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_nothing_in_it_is_a_pickle(tmp_path):
    write(tmp_path, tensors(), STATE)
    (large,) = tmp_path.glob(f"*.{TENSORS}")
    size = int.from_bytes(large.read_bytes()[:8], "little")
    header = json.loads(large.read_bytes()[8 : 8 + size])
    assert {*header} == {"theta", "step"} and header["theta"]["dtype"] == "F32"


def test_a_file_is_replaced_as_a_whole(tmp_path):
    replace(tmp_path / "deep" / "a", b"one")
    replace(tmp_path / "deep" / "a", b"two")
    assert (tmp_path / "deep" / "a").read_bytes() == b"two"
    assert len([*(tmp_path / "deep").iterdir()]) == 1
