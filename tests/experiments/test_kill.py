import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from ordinate.experiments import Plan, compare
from ordinate.experiments.plan import changed
from ordinate.experiments.run import todo
from ordinate.experiments.store import Store
from ordinate.training import Recipe, Sizes, checkpoint, loop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

# A table, and a method without parameters; dropout is on.
PLAN = Plan(
    name="killed",
    task="pattern:length=21,train=256,validation=64,test=64",
    methods=("learned", "rope"),
    seeds=2,
    precision="float32",
    sizes=Sizes(layers=1, dim=16, heads=2, dropout=0.2),
    recipe=Recipe(epochs=6, batch=16, every=2, goal=None),
)
LONG = changed(PLAN, {"methods": ("learned", "rope", "relative"), "seeds": 3, "recipe.epochs": 16})
# A process that runs the plan, and says when a trial has begun.
DRIVER = """
import sys
from ordinate.experiments import Plan, compare
plan, folder, jobs, processes = sys.argv[1:]
compare(Plan.model_validate_json(plan), folder=folder, device="cpu", jobs=int(jobs),
        processes=int(processes),
        hear=lambda event: event.progress and print(event.progress.step, flush=True))
"""
LONGEST = 120


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Every trial's result, from one process that nobody disturbs."""
    return truth(PLAN, tmp_path_factory.mktemp("undisturbed"))


def truth(plan, folder):
    compare(plan, folder=folder, device="cpu", jobs=1)
    return results(folder)


def results(folder):
    with Store(folder) as store:
        assert not store.collect() and not store.refused
        return {o.trial.id: (o.status, o.reason, repr(o.result)) for o in store.outcomes()}


class Driver:
    """A process that runs the plan; all processes that come of it carry its mark."""

    def __init__(self, plan, folder, jobs, processes=1):
        self.mark = f"ORDINATE_TEST_MARK={uuid.uuid4()}"
        name, value = self.mark.split("=")
        # A checkpoint at every look.
        env = {**os.environ, "OMP_NUM_THREADS": "1", "ORDINATE_PAUSE": "0", name: value}
        self.errors = open(Path(folder).with_suffix(".errors"), "w+b")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, plan.model_dump_json(), str(folder), str(jobs),
             str(processes)],
            stdout=subprocess.PIPE, stderr=self.errors, env=env, start_new_session=True,
        )  # fmt: skip

    def begun(self):
        """Waits for the first words; False if it ended without any."""
        return bool(self.process.stdout.readline())

    def finished(self):
        """Waits for its end; what it said to the end is not lost in a full pipe."""
        with suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=LONGEST)
        return self.process.returncode

    def others(self):
        """The processes that came of it, but for itself."""
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode()


def marked(mark):
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def gone(mark, within=5.0):
    """Whether all processes with a mark end by themselves in that time."""
    until = time.monotonic() + within
    while marked(mark):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def kill(driver, kind, rng):
    """Kills as told; whether there was something to kill."""
    if kind == "worker":
        others = driver.others()
        with suppress(ProcessLookupError):
            os.kill(rng.choice(others), signal.SIGKILL) if others else None
        return bool(others)
    if driver.process.poll() is None:
        driver.process.send_signal(signal.SIGKILL if kind == "driver" else signal.SIGINT)
        return True
    return False


def quiet(driver):
    """Whether Ctrl-C made no words but Python's own."""
    return driver.said().count("Traceback") <= 1 and "distributed" not in driver.said()


def disturb(plan, folder, kinds, rng, undisturbed):
    """Runs the plan in a folder, killing by chance, until a run comes to its end.

    Returns how often what was killed.
    """
    killed, code = Counter(), None
    while code != 0:
        kind, jobs = next(kinds, (None, 1))
        driver = Driver(plan, folder, jobs)
        try:
            if kind is not None and driver.begun():
                time.sleep(rng.uniform(0, 2))
                killed[kind, jobs] += kill(driver, kind, rng)
            code = driver.finished()
            assert gone(driver.mark), f"processes live on after {kind} with {jobs} jobs"
            assert code == 0 or kind in ("driver", "interrupt"), driver.said()
            assert quiet(driver), driver.said()
            sound(folder, undisturbed)
        finally:
            with suppress(ProcessLookupError):
                driver.process.kill()
            driver.process.wait()
    return killed


def sound(folder, undisturbed):
    """The database is whole, and what it has is what an undisturbed run has."""
    records = Path(folder) / "records.sqlite"
    if records.exists():
        with sqlite3.connect(records) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        with Store(folder) as store:
            store.collect()
            assert not store.refused
            kept = {o.trial.id: (o.status, o.reason, repr(o.result)) for o in store.outcomes()}
        assert kept.items() <= undisturbed.items()


def whole(plan, folder, undisturbed):
    """Everything is there, bit for bit, and nothing else; how often trials were resumed."""
    assert results(folder) == undisturbed
    with Store(folder) as store:
        assert not todo(plan, store) and not store.unfinished()
        files = {path.name for path in store.trials.glob("*/*")}
        assert files == {"result.json", "looks.safetensors"}
        return sum(o.made.resumed for o in store.outcomes())


def checkpointed(driver, folder):
    """Waits until a trial has a checkpoint and no result, so that a kill must be seen."""
    while not (found := list(folder.glob("trials/*/checkpoint.json"))):
        assert driver.process.poll() is None, driver.said()
        time.sleep(0.001)
    return found[0]


def test_the_plan_is_done_and_its_results_differ(undisturbed):
    assert len(undisturbed) == 4 and {status for status, *_ in undisturbed.values()} == {"done"}
    assert len({result for *_, result in undisturbed.values()}) == 4


def test_a_killed_run_goes_on_from_its_checkpoint_to_the_same_bits(tmp_path, undisturbed):
    folder = tmp_path / "runs"
    driver = Driver(PLAN, folder, 1)
    checkpointed(driver, folder)
    driver.process.kill()
    driver.finished()
    assert gone(driver.mark)
    sound(folder, undisturbed)
    compare(PLAN, folder=folder, device="cpu", jobs=1)
    assert whole(PLAN, folder, undisturbed) == 1


def test_what_a_kill_left_beside_a_result_is_cleared_away(tmp_path, undisturbed):
    """Killed after its result was written, and before its checkpoint was removed."""
    folder = tmp_path / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "PAUSE", -1)
        patch.setattr(checkpoint, "remove", lambda _: None)
        compare(PLAN, folder=folder, device="cpu", jobs=1)
    for path in folder.glob("records.sqlite*"):
        path.unlink()
    assert len(list(folder.glob("trials/*/checkpoint.json"))) == 4
    (one, *_) = folder.glob("trials/*")
    (one / f"x.{checkpoint.TENSORS}.99.part").write_text("half")
    compare(PLAN, folder=folder, device="cpu", jobs=1)
    assert whole(PLAN, folder, undisturbed) == 0


def test_a_killed_driver_leaves_no_workers(tmp_path, undisturbed):
    folder = tmp_path / "runs"
    driver = Driver(PLAN, folder, 2)
    checkpointed(driver, folder)
    assert len(driver.others()) == 2
    driver.process.kill()
    driver.finished()
    assert gone(driver.mark)
    sound(folder, undisturbed)
    compare(PLAN, folder=folder, device="cpu", jobs=1)
    assert whole(PLAN, folder, undisturbed) >= 1


def test_a_killed_worker_is_replaced_and_ctrl_c_is_quiet(tmp_path, undisturbed):
    folder = tmp_path / "runs"
    driver = Driver(PLAN, folder, 2)
    checkpointed(driver, folder)
    one, two = driver.others()
    os.kill(one, signal.SIGKILL)
    while set(driver.others()) <= {one, two}:
        assert driver.process.poll() is None, driver.said()
        time.sleep(0.01)
    driver.process.send_signal(signal.SIGINT)
    assert driver.finished() != 0
    assert gone(driver.mark)
    assert quiet(driver) and "KeyboardInterrupt" in driver.said()
    compare(PLAN, folder=folder, device="cpu", jobs=1)
    whole(PLAN, folder, undisturbed)


@pytest.mark.slow
def test_fifty_kills(tmp_path):
    """Eleven minutes on two cores that others kept busy too, at a load of six."""
    seed = int(os.environ.get("ORDINATE_KILL_SEED", random.randrange(2**31)))
    rng, killed, resumed, rounds = random.Random(seed), Counter(), 0, 0
    pairs = [("driver", 1), ("interrupt", 1), ("driver", 2), ("interrupt", 2), ("worker", 2)]
    undisturbed = truth(LONG, tmp_path / "undisturbed")
    begun = time.monotonic()
    while killed.total() < 50:
        folder = tmp_path / f"runs{rounds}"
        kinds = (rng.choice(pairs) for _ in range(50))
        killed += disturb(LONG, folder, kinds, rng, undisturbed)
        resumed += whole(LONG, folder, undisturbed)
        rounds += 1
        print(f"round {rounds}: {killed.total()} kills, {resumed} resumed", flush=True)
    counts = {f"{kind}, jobs={jobs}": n for (kind, jobs), n in sorted(killed.items())}
    took = round(time.monotonic() - begun)
    print(json.dumps({"seed": seed, "killed": counts, "rounds": rounds, "resumed": resumed,
                      "seconds": took}))  # fmt: skip
    assert resumed > 0 and len(killed) == len(pairs)
