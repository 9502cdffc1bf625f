import errno
import json
import math
import os
import signal
import sys
import time
from contextlib import suppress

import pytest
import torch

from ordinate.experiments import work as module
from ordinate.experiments.engines import dask as dask_module
from ordinate.experiments.engines.dask import Dask
from ordinate.experiments.engines.process import InProcess
from ordinate.experiments.engines.torchrun import Torchrun
from ordinate.experiments.store import Store
from ordinate.experiments.work import failed, work
from ordinate.training import Outcome, Score, checkpoint
from training.small import COPY, close, trial

MINE = """
import os, signal
import torch
from ordinate.methods.bias.alibi import ALiBi

class Mine(ALiBi):
    pass

class Raises(ALiBi):
    def attend(self, a):
        return a.q + a.nothing

class Refuses(ALiBi):
    def attend(self, a):
        raise ValueError("not today")

class Dies(ALiBi):
    def attend(self, a):
        os.kill(os.getpid(), signal.SIGKILL)

class Large(ALiBi):
    def attend(self, a):
        torch.empty(2**42)

class Parts(ALiBi):
    def attend(self, a):
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().attend(a)
"""


@pytest.fixture(autouse=True)
def one_thread():
    """Sums over a batch are cut into as many parts as there are threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with a file of one's own, which is the current one."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    (home / "mine.py").write_text(MINE)
    return home / "mine.py"


def ran(engine, trials):
    """Outcomes by method and what was heard, in the order it came."""
    heard, outcomes = [], {}
    try:
        for outcome in engine.run(trials, heard.append):
            outcomes[outcome.trial.position] = outcome
    finally:
        engine.close()
    return outcomes, heard


def test_dask_has_the_bits_of_one_process_and_says_how_it_goes(tmp_path, mine):
    fine = [trial("learned"), trial("rope", lengths=(24,)), trial("mine.py:Mine", task=COPY)]
    bad = [
        trial("alibi", rate=1e30),
        trial("mine.py:Raises"),
        trial("mine.py:Dies"),
        trial("none", batch=1000),
    ]
    outcomes, heard = ran(Dask(tmp_path / "dask", jobs=2), [*bad, *fine])
    alone, _ = ran(InProcess(tmp_path / "alone"), fine)
    assert len(outcomes) == 7
    ids = [one.id for one in fine]
    for one in fine:
        there, here = outcomes[one.position], alone[one.position]
        assert there.status == here.status == "done"
        assert repr(there.result) == repr(here.result)
        assert (there.made.engine, here.made.engine) == ("dask", "in process")
        steps = [p.step for p in heard if p.trial == one.id]
        assert steps == [0, 4, 8, 12, 16]
        assert (tmp_path / "dask" / one.id / "result.json").exists()
    assert all((p.loss is None) == (p.step == 0) for p in heard if p.trial in ids)
    said = {name: (o.status, o.reason) for name, o in outcomes.items() if o.status != "done"}
    assert said == {
        "alibi": ("failed", "the loss was no longer a number by step 4"),
        "mine.py:Raises": (
            "failed", "mine.py, line 11: AttributeError: 'Attend' object has no attribute 'nothing'"
        ),
        "mine.py:Dies": (
            "lost", "3 worker processes were killed over it; perhaps there is too little memory"
        ),
        "none": ("failed", "a batch of 1000 is more than 128 samples"),
    }  # fmt: skip
    assert not (tmp_path / "dask" / trial("mine.py:Dies").id / "result.json").exists()


def test_a_cluster_by_its_address_has_other_threads_and_another_folder(tmp_path, mine, monkeypatch):
    from distributed import LocalCluster

    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "protocol": "tcp"}
    trials = [trial(name, seed=seed) for name in ("learned", "rope") for seed in (0, 1)]
    with LocalCluster(n_workers=1, threads_per_worker=4, **options) as cluster:
        engine = Dask(tmp_path / "dask", address=cluster.scheduler_address)
        there = {o.trial.id: o for o in engine.run(trials, lambda _: None)}
        engine.close()
        assert cluster.status.name == "running"
    for one in trials:
        (here,) = work([one], tmp_path / "alone", engine="alone")
        assert here.status == "done"
        assert repr(there[one.id].result) == repr(here.result)


def test_who_does_not_answer_is_one_sentence(tmp_path, monkeypatch):
    from distributed import LocalCluster

    monkeypatch.setattr(dask_module, "PATIENCE", 0.5)
    with pytest.raises(ValueError, match=r"^no dask scheduler answers at tcp://127.0.0.1:9: start"):
        Dask(tmp_path, address="tcp://127.0.0.1:9")
    with pytest.raises(ValueError, match=r"^no dask scheduler answers at nowhere: start"):
        Dask(tmp_path, address="nowhere")
    options = {"processes": False, "dashboard_address": "127.0.0.1:0", "protocol": "tcp"}
    with (
        LocalCluster(n_workers=0, **options) as cluster,
        pytest.raises(ValueError, match="has no workers: start"),
    ):
        Dask(tmp_path, address=cluster.scheduler_address)


def test_workers_that_cannot_start_are_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", sys.executable + "-that-is-none")
    said = "no worker process could be started: No such file"
    with pytest.raises(RuntimeError, match=said):
        Dask(tmp_path, jobs=1)
    monkeypatch.undo()
    import distributed  # noqa: F401

    (tmp_path / "distributed.py").write_text("raise ImportError('half installed')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    said = "no worker process could be started: ImportError: half installed"
    with pytest.raises(RuntimeError, match=said):
        Dask(tmp_path, jobs=2)


def test_workers_that_cannot_start_again_lose_what_is_left(tmp_path, mine, monkeypatch):
    engine = Dask(tmp_path / "dask", jobs=1)
    (tmp_path / "distributed.py").write_text("raise ImportError('half installed')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    outcomes, _ = ran(engine, [trial("mine.py:Dies"), trial("rope")])
    said = {(o.status, o.reason) for o in outcomes.values()}
    why = "no worker process could be started again: ImportError: half installed"
    assert len(outcomes) == 2 and said == {("lost", why)}


def test_torchrun_agrees_with_one_process_and_says_what_went_wrong(tmp_path, mine):
    trials = [trial("learned", lengths=(24,), epochs=1), trial("rope", task=COPY, epochs=1)]
    # Two of its processes share a batch: of the last one, a part is on each.
    outcomes, heard = ran(Torchrun(tmp_path / "two", processes=2), trials)
    for one in trials:
        (alone,) = work([one], tmp_path / "one", engine="alone")
        two = outcomes[one.position]
        assert two.status == "done" and close(two, alone)
        assert (two.made.engine, two.made.note, two.made.stacked) == ("torchrun", "2 processes", 1)
        assert [p.step for p in heard if p.trial == one.id] == [0, 4, 8]
        with Store(tmp_path) as store:
            store.trials.rmdir()
            store.trials = tmp_path / "two"
            assert store.collect() == 1 or store.get(one.id) is not None
            assert repr(store.get(one.id)) == repr(two)


@pytest.mark.slow
def test_torchrun_goes_on_where_it_was_killed(tmp_path, mine):
    one = trial("learned", epochs=4)
    ((undisturbed,), _) = ran_list(tmp_path / "undisturbed", one)
    folder = tmp_path / "killed"
    engine = Torchrun(folder, processes=2)

    def stop(progress):
        if progress.step == 12:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ORDINATE_PAUSE", "0")
        with pytest.raises(KeyboardInterrupt):
            list(engine.run([one], stop))
        assert engine.child is None
    kept = checkpoint.read(folder / one.id)
    assert kept is not None and kept[1]["step"] >= 8
    ((again,), steps) = ran_list(folder, one)
    assert steps[0] == kept[1]["step"] and again.made.resumed == 1
    assert repr(again.result) == repr(undisturbed.result)


def ran_list(folder, one):
    heard = []
    return list(Torchrun(folder, processes=2).run([one], heard.append)), [p.step for p in heard]


@pytest.mark.slow
def test_a_process_of_torchrun_that_dies_or_fails_ends_the_others(tmp_path, mine):
    names = ["mine.py:Parts", "mine.py:Raises", "learned"]
    trials = [trial(name, rate=1e30 if name == "learned" else 1e-3) for name in names]
    outcomes, _ = ran(Torchrun(tmp_path, processes=2), trials)
    said = {name: (o.status, o.reason) for name, o in outcomes.items()}
    assert said == {
        "mine.py:Parts": (
            "lost", "its processes ended: one was killed by Signal 9 (SIGKILL)"
        ),
        "mine.py:Raises": (
            "failed", "mine.py, line 11: AttributeError: 'Attend' object has no attribute 'nothing'"
        ),
        "learned": ("failed", "the loss was no longer a number by step 4"),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("whom", ["driver", "torchrun"])
def test_no_process_of_torchrun_outlives_another(tmp_path, whom):
    from experiments.test_kill import PLAN, Driver, changed, gone, marked

    plan = changed(PLAN, {"recipe.epochs": 1000})
    driver = Driver(plan, tmp_path / "runs", 1, processes=2)
    try:
        assert driver.begun()
        # The driver, torchrun, and two that train.
        every = sorted(marked(driver.mark))
        assert len(every) == 4 and every[0] == driver.process.pid
        if whom == "torchrun":
            (agent,) = [p for p in every[1:] if parent(p) == every[0]]
            os.kill(agent, signal.SIGKILL)
            until = time.monotonic() + 5
            while any(alive(p) for p in every[1:]):
                assert time.monotonic() < until
                time.sleep(0.05)
        driver.process.kill()
        driver.finished()
        assert gone(driver.mark)
    finally:
        with suppress(ProcessLookupError):
            driver.process.kill()
        driver.process.wait()


def parent(pid):
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_what_torchrun_cannot_split_is_refused_before_it_starts(tmp_path, monkeypatch):
    engine = Torchrun(tmp_path, processes=3)
    with pytest.raises(ValueError, match="a batch of 16 does not split evenly over 3 processes"):
        list(engine.run([trial("learned")], lambda _: None))
    assert engine.child is None and not list(tmp_path.iterdir())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="2 processes need a GPU each, and this machine has 1"):
        Torchrun(tmp_path, processes=2, device="cuda")


def test_stacked_trials_agree_with_those_alone_and_others_say_why_not(tmp_path):
    names = ["learned", "randomized(alibi)"]
    trials = [trial(name, seed=s, rate=r) for name in names for s, r in ((0, 1e-3), (1, 3e-3))]
    engine = InProcess(tmp_path / "stacked", stack=8)
    stacked = {o.trial.id: o for o in engine.run(trials, lambda _: None)}
    engine.close()
    for one in trials:
        (alone,) = work([one], tmp_path / "alone", engine="alone")
        o = stacked[one.id]
        assert close(o, alone)
        if one.position == "learned":
            assert (o.made.stacked, o.made.note) == (2, "")
        else:
            why = "trained alone: randomized(alibi) draws anew at every step"
            assert (o.made.stacked, o.made.note) == (1, why)
            assert repr(o.result) == repr(alone.result)
        kept = json.loads((tmp_path / "stacked" / one.id / "result.json").read_text())
        assert kept["outcome"]["made"]["note"] == o.made.note


def test_a_group_has_one_shape_and_stands_at_one_step(tmp_path):
    trials = [trial(seed=0), trial(seed=1, rate=3e-3), trial("rope"), trial(seed=2), trial(seed=3)]
    checkpoint.write(tmp_path / trials[3].id, {}, {"step": 4})
    groups = list(InProcess(tmp_path, stack=2).groups(trials))
    assert [[trials.index(t) for t in group] for group in groups] == [[0, 1], [4], [2], [3]]
    assert [len(group) for group in InProcess(tmp_path, stack=1).groups(trials)] == [1] * 5


def test_too_little_memory_for_a_stack_halves_it(tmp_path, monkeypatch):
    sizes = []

    def train(trials, **how):
        sizes.append(len(trials))
        if len(trials) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0")
        return real(trials, **how)

    real = module.train
    monkeypatch.setattr(module, "train", train)
    trials = [trial(seed=seed, epochs=1) for seed in range(5)]
    outcomes = work(trials, tmp_path, engine="in process")
    assert sizes == [5, 2, 2, 1] and [o.trial for o in outcomes] == trials
    note = (
        "2 trained at once: out of memory when it wanted 20.00 MiB more: "
        "give smaller batches, or fewer jobs at once"
    )
    assert {o.made.note for o in outcomes} == {note} and {o.status for o in outcomes} == {"done"}


def test_what_fails_stacked_and_alone_fails_with_its_own_words(tmp_path, mine):
    trials = [trial("mine.py:Refuses", seed=seed) for seed in (0, 1)]
    outcomes = work(trials, tmp_path, engine="in process")
    assert {(o.status, o.reason) for o in outcomes} == {("failed", "mine.py, line 15: not today")}


def test_too_little_memory_is_lost(tmp_path, mine):
    (outcome,) = work([trial("mine.py:Large")], tmp_path, engine="in process")
    reason = (
        "out of memory when it wanted 1.64e+04 GiB more: "
        "give smaller batches, or fewer jobs at once"
    )
    assert (outcome.status, outcome.reason) == ("lost", reason)
    assert not list(tmp_path.glob("*/result.json"))


def test_a_full_disk_loses_a_trial_and_stops_no_other(tmp_path, monkeypatch):
    trials = [trial("learned"), trial("rope"), trial("alibi")]

    def write(folder, outcome):
        if outcome.trial.position == "rope":
            raise OSError(errno.ENOSPC, "No space left on device", "result.json")
        real(folder, outcome)

    real = module.write_result
    monkeypatch.setattr(module, "write_result", write)
    outcomes, _ = ran(InProcess(tmp_path / "trials"), trials)
    assert [o.status for o in outcomes.values()] == ["done", "lost", "done"]
    assert outcomes["rope"].reason == "result.json: No space left on device"
    with Store(tmp_path) as store:
        assert store.collect() == 2


def test_a_file_that_changed_or_is_missing_is_not_trained(tmp_path, mine):
    one = trial("mine.py:Mine")
    mine.write_text(MINE + "\n")
    (outcome,) = work([one], tmp_path, engine="in process")
    said = "a file of pattern:length=21,train=128,validation=32,test=32 or mine.py:Mine changed"
    assert (outcome.status, outcome.reason) == ("lost", f"{said} since the run began")
    mine.unlink()
    (outcome,) = work([one], tmp_path, engine="in process")
    said = f"mine.py: No such file or directory, looked for in {mine.parent}"
    assert (outcome.status, outcome.reason) == ("lost", said)
    mine.write_text(MINE)
    (outcome,) = work([one], tmp_path, engine="in process")
    assert outcome.status == "done"


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (ValueError("two heads\nmore"), "failed", "two heads"),
        (TypeError("no"), "failed", "TypeError: no"),
        (AssertionError(), "failed", "AssertionError"),
        (MemoryError(), "lost", "out of memory: give smaller batches, or fewer jobs at once"),
        (OSError(28, "No space left on device", "/x"), "lost", "/x: No space left on device"),
        (OSError("odd"), "lost", "odd"),
        (torch.AcceleratorError("CUDA error: assert"), "lost", "AcceleratorError: CUDA error: assert"),
        (
            RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:5] Connection closed"),
            "lost", "another process of the trial ended",
        ),
    ],
)  # fmt: skip
def test_an_error_is_final_or_around_the_trial_and_one_sentence(error, status, reason):
    outcome = failed(trial(), error)
    assert (outcome.status, outcome.reason, outcome.result) == (status, reason, None)


def test_numbers_that_are_none_survive_the_wire(tmp_path):
    (outcome,) = work([trial(epochs=1)], tmp_path, engine="x")
    odd = {24: Score(loss=math.nan, accuracy=0.1 + 0.2, targets=1), 30: Score(loss=math.inf)}
    result = outcome.result.model_copy(update={"test": odd})
    odd = outcome.model_copy(update={"result": result})
    assert repr(Outcome.model_validate(json.loads(odd.text()))) == repr(odd)
    assert math.isnan(json.loads(odd.text())["result"]["test"]["24"]["loss"])


def test_the_program_that_called_keeps_its_threads(tmp_path):
    torch.set_num_threads(3)
    engine = InProcess(tmp_path)
    assert torch.get_num_threads() == 1
    engine.close()
    assert torch.get_num_threads() == 3
