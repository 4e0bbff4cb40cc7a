"""The command line as its users see it: in a terminal, in scripts, and when things go wrong."""

import json
import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time

import optuna
import pytest

from rmes import cli
from rmes.optuna import optimizer_of

SQUARE = """
direction = "minimize"
seed = 1

[parameters]
x = [-2.0, 2.0]
kind = ["a", "b"]
"""
MEASURE = """
import os, sys
x, kind, number = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if number % 5 == 2:
    print("the lamp is off", file=sys.stderr)
    sys.exit(3)
print("measured:", (x - 0.5) ** 2 + (kind == "b") + 0.01 * (number % 3))
"""


@pytest.fixture
def rmes(tmp_path, monkeypatch, capsys):
    """Run a command in an empty directory: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RMES_STUDY", raising=False)

    def run(*args):
        code = cli.main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A directory with a study that has just been made."""
    path = tmp_path_factory.mktemp("made")
    (path / "study.toml").write_text(SQUARE)
    (path / "measure.py").write_text(MEASURE)
    assert cli.main(["init", str(path / "study.toml")]) == 0
    return path


@pytest.fixture
def study(rmes, made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return rmes


def told(rmes, *args):
    """The JSON that a command prints."""
    code, out, err = rmes(*args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def command(*options):
    line = [sys.executable, "measure.py", "{x}", "{kind}", "{trial}"]
    return ["run", *options, "--", *line]


def process(tmp_path, *args, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.Popen([sys.executable, "-m", "rmes", *args], cwd=tmp_path, **options)


def states(tmp_path):
    """States of the trials as Optuna, and so its dashboard, sees them."""
    storage = f"sqlite:///{tmp_path}/study.db"
    trials = optuna.load_study(study_name="study", storage=storage).get_trials()
    return [trial.state.name for trial in trials]


def intact(tmp_path):
    with sqlite3.connect(tmp_path / "study.db") as database:
        return database.execute("pragma integrity_check").fetchall() == [("ok",)]


# ------------------------------------------------------------------ a study by hand


def test_a_whole_study_from_init_to_recommend(rmes, tmp_path):
    code, out, _ = rmes("init")
    assert code == 0
    assert "rmes init" in out  # what to do next
    example = (tmp_path / "study.toml").read_text()
    assert rmes("init")[0] == 0
    assert (tmp_path / "study.toml").read_text() == example
    for _ in range(4):
        trial = told(rmes, "ask")
        assert list(trial["params"]) == ["temperature_degC", "dose_mg", "cycles", "solvent"]
        value = -(((trial["params"]["temperature_degC"] - 60) / 20) ** 2)
        assert rmes("tell", trial["trial"], value)[0] == 0
    code, out, _ = rmes("recommend")
    assert code == 0
    for said in ("Use temperature_degC=", "90 % sure", "The true optimum is between", "solvent"):
        assert said in out
    code, out, _ = rmes("status")
    assert "4 measured" in out
    assert "whole number from 1 to 12" in out


def test_asked_trials_are_running_ones_of_optuna_with_their_distributions(study, tmp_path):
    asked = told(study, "ask", "-n", "3")
    assert len({json.dumps(each["params"]) for each in asked}) == 3
    storage = f"sqlite:///{tmp_path}/study.db"
    trials = optuna.load_study(study_name="study", storage=storage).get_trials()
    assert [trial.state.name for trial in trials] == ["RUNNING"] * 3
    assert trials[0].params == asked[0]["params"]
    assert trials[0].distributions == {
        "x": optuna.distributions.FloatDistribution(-2.0, 2.0),
        "kind": optuna.distributions.CategoricalDistribution(["a", "b"]),
    }


def test_a_negative_value_is_a_value(study):
    study("ask")
    assert told(study, "tell", 0, "-1.5e-3")[0]["value"] == -0.0015


def test_replicates_and_noise_are_kept(study):
    study("ask")
    entries = told(study, "tell", 0, 1.0, 1.2, "--noise-sd", 0.2)
    assert [(e["trial"], e["value"], e["noise_sd"]) for e in entries] == [
        (0, 1, 0.2),
        (1, 1.2, 0.2),
    ]
    assert entries[0]["params"] == entries[1]["params"]
    assert told(study, "tell", 0, 1.0, 1.2, "--noise-sd", 0.2) == entries  # again: nothing new
    assert len(told(study, "status")["trials"]) == 2


def test_noise_reaches_the_model_whoever_asked_for_the_trial(study, tmp_path):
    study("ask")
    study("tell", 0, 1.0, "--noise-sd", 0.2)
    line = 'import sys; print(\'{"value": 2.0, "noise_sd": 0.3}\')'
    study("run", "-n", 1, "--", sys.executable, "-c", line, "{x}", "{kind}")
    storage = f"sqlite:///{tmp_path}/study.db"
    trials = optimizer_of(optuna.load_study(study_name="study", storage=storage)).trials
    assert [trial["noise_sds"] for trial in trials] == [[0.2], [0.3]]


def test_points_of_ones_own_can_be_told(study):
    assert told(study, "tell", "x=0.25, kind=b", 3)[0]["params"] == {"x": 0.25, "kind": "b"}
    assert told(study, "tell", "kind=a,x=-1", "--failed")[0]["state"] == "failed"


def test_failed_and_skipped_trials_are_told_apart(study, tmp_path):
    study("ask", "-n", 2)
    study("tell", 0, "--failed")
    study("tell", 1, "--skipped")
    assert states(tmp_path) == ["FAIL", "PRUNED"]
    assert told(study, "tell", 0, "--failed")[0]["state"] == "failed"  # again: nothing new


def test_another_study_file_may_be_named(study, tmp_path, monkeypatch):
    (tmp_path / "other.toml").write_text("[parameters]\ny = [0, 1]\n")
    assert study("init", "other.toml")[0] == 0
    assert "y" in told(study, "ask", "--study", "other.toml")["params"]
    monkeypatch.setenv("RMES_STUDY", "other.toml")
    assert "y" in told(study, "ask")["params"]


def test_making_a_study_twice_keeps_its_trials(study):
    study("ask")
    study("tell", 0, 1.0)
    assert study("init")[0] == 0
    assert told(study, "status")["counts"]["measured"] == 1


def test_the_same_seed_asks_the_same(study, tmp_path):
    first = [told(study, "ask")["params"] for _ in range(3)]
    (tmp_path / "study.db").unlink()
    study("init")
    assert [told(study, "ask")["params"] for _ in range(3)] == first


# ------------------------------------------------------------------ tables and pictures


def test_what_is_exported_can_be_imported(study, tmp_path):
    (tmp_path / "old.csv").write_text(
        "x,kind,value,noise_sd,remark\n0.1,a,1.5,,first\n-1,b,,,broke\n0.3,a,-2e-3,0.1,\n"
    )
    assert told(study, "import", "old.csv") == {"added": 3, "already_there": 0}
    assert told(study, "import", "old.csv") == {"added": 0, "already_there": 3}
    assert states(tmp_path) == ["COMPLETE", "FAIL", "COMPLETE"]
    assert study("export", "-o", "new.csv")[0] == 0
    assert study("export")[1] == (tmp_path / "new.csv").read_text()
    (tmp_path / "study.db").unlink()
    study("init")
    assert told(study, "import", "new.csv")["added"] == 3
    entries = told(study, "export")
    assert [(e["params"]["x"], e["value"], e["noise_sd"]) for e in entries] == [
        (0.1, 1.5, None),
        (-1.0, None, None),
        (0.3, -0.002, 0.1),
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("x,value\n1,2\n", "old.csv has no column 'kind'; it has x, value"),
        ("", "has no column 'x'"),
        ("x,kind,value\n0,a,1\n9,a,1\n", "old.csv, line 3: x is 9"),
        ("x,kind,value\n0,c,1\n", "line 2: kind is 'c'; expected one of a, b"),
        ("x,kind,value\n0,a,1\n0,a,high\n", "line 3: value is 'high'; expected a number"),
        ("x,kind,value\n0,a,nan\n", "line 2: value is 'nan'"),
        ("x,kind,value\n0\n", "line 2: kind is ''"),
        ("x,kind,value,noise_sd\n0,a,1,-1\n", "line 2: noise_sd is -1"),
    ],
)
def test_a_table_with_an_error_adds_nothing(study, tmp_path, table, message):
    (tmp_path / "old.csv").write_text(table)
    code, _, err = study("import", "old.csv")
    assert code == 1
    assert message in err
    assert states(tmp_path) == []


def test_an_export_writes_into_a_pipe_and_leaves_it_one(study, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    assert study("export", "-o", pipe)[0] == 0
    reader.join(10.0)
    assert read[0].startswith("trial,state,x,kind,value")
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_pictures_are_drawn(study, tmp_path):
    for x in (-1.5, -0.5, 0.4, 1.2, 1.9):
        study("tell", f"x={x},kind=a", (x - 0.5) ** 2)
    for kind in (["posterior", "x"], ["information", "kind"], ["trials"]):
        assert study("plot", *kind)[0] == 0
        assert (tmp_path / f"study-{kind[0]}.png").read_bytes().startswith(b"\x89PNG")
    assert told(study, "plot", "-o", "all.pdf") == {"written": "all.pdf"}
    assert (tmp_path / "all.pdf").read_bytes().startswith(b"%PDF")


# ------------------------------------------------------------------ programs


def test_a_program_that_sometimes_fails_is_driven_to_the_optimum(study, tmp_path):
    code, out, err = study(*command("-n", 15, "--parallel", 2))
    assert (code, err) == (0, "")
    assert out.count("failed: exit code 3: the lamp is off") == 3  # one in five
    assert states(tmp_path).count("FAIL") == 3
    assert "RUNNING" not in states(tmp_path)
    answer = told(study, "recommend")
    assert answer["params"]["kind"] == "a"
    assert answer["params"]["x"] == pytest.approx(0.5, abs=0.35)


def test_failures_are_avoided(study, tmp_path):
    """Everything above 0.6 fails, and the optimum of the rest is at its edge."""
    (tmp_path / "edge.py").write_text(
        "import sys; x = float(sys.argv[1]); assert x < 0.6; print(-x)"
    )
    line = [sys.executable, "edge.py", "{x}", "{kind}"]
    study("run", "-n", 18, "--", *line)
    late = told(study, "export")[10:]
    assert sum(each["state"] == "failed" for each in late) <= 4


def test_runs_print_lines_of_json(study):
    code, out, _ = study(*command("-n", 3, "--json"))
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["state"] for line in lines] == ["measured", "measured", "failed"]


def test_a_run_that_takes_too_long_is_a_failure(study, tmp_path):
    slow = [sys.executable, "-c", "import time; time.sleep(60)", "{x}", "{kind}"]
    code, out, err = study("run", "-n", 2, "-p", 2, "--limit", 0.3, "--", *slow)
    assert code == 1
    assert "it took longer than 0.3 s" in out
    assert err == "rmes: no run gave a value; 'rmes status' shows why\n"
    assert states(tmp_path) == ["FAIL", "FAIL"]


def test_a_hopeless_program_is_given_up(study, tmp_path):
    line = [sys.executable, "-c", "raise SystemExit('no such lamp')", "{x}", "{kind}"]
    code, _, err = study("run", "-n", 50, "--", *line)
    assert code == 1
    assert err == "rmes: the first 5 runs failed, the last one so: exit code 1: no such lamp\n"
    assert states(tmp_path) == ["FAIL"] * 5


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing_running_and_goes_on(study, tmp_path, how):
    script = "import sys, time; open('started', 'a').write('x'); time.sleep(60)"
    line = [sys.executable, "-c", script, "{x}", "{kind}"]
    running = process(tmp_path, "run", "-n", "4", "-p", "2", "--", *line)
    mark = tmp_path / "started"
    until = time.monotonic() + 30.0
    while not (mark.exists() and len(mark.read_text()) == 2) and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(how)
    out, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert (out, err) == (
        "",
        "rmes: interrupted; what was told is kept, the same command goes on\n",
    )
    assert states(tmp_path) == ["PRUNED", "PRUNED"]
    assert intact(tmp_path)
    assert study(*command("-n", 2))[0] == 0
    assert states(tmp_path) == ["PRUNED", "PRUNED", "FAIL", "COMPLETE"]


def test_processes_share_a_study(study, tmp_path):
    several = [process(tmp_path, *command("-n", "5", "--parallel", "2")) for _ in range(2)]
    for one in several:
        _, err = one.communicate(timeout=60)
        assert (one.returncode, err) == (0, "")
    entries = told(study, "export")
    assert [each["trial"] for each in entries] == list(range(10))
    assert {each["state"] for each in entries} == {"measured", "failed"}
    assert intact(tmp_path)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("args", "message", "expected"),
    [
        (["tell", 0, "high"], "the value is 'high'; expected a number", 1),
        (["tell", 0, "nan"], "the value is 'nan'; expected a finite number", 1),
        (["tell", 0], "expected one of: a VALUE (or several), --failed, --skipped", 1),
        (["tell", 0, 1, "--failed"], "expected one of: a VALUE", 1),
        (["tell", 0, 1, "--noise-sd", -1], "noise_sd is -1.0; expected 0 or more", 1),
        (["tell", 99, 1], "there is no trial 99; the last one is 0", 1),
        (["tell", "one", 1], "'one' is no trial; expected its number", 1),
        (["tell", "x=9,kind=a", 1], "x is 9.0; expected it from -2.0 to 2.0", 1),
        (["tell", "x=1", 1], "no value for kind", 1),
        (["tell", "x=1,king=a", 1], "unknown parameter king", 1),
        (["ask", "--study", "none.toml"], "there is no study file none.toml; 'rmes init", 1),
        (["ask", "-n", "0"], "Invalid value for '--count'", 2),
        (["ask", "--nonsense"], "No such option: --nonsense; see rmes ask --help", 2),
        (["aks"], "No such command 'aks'", 2),
        (["import", "none.csv"], "none.csv: No such file or directory", 1),
        (["export", "-o", "no/where.csv"], "no/where.csv: No such file or directory", 1),
        (["recommend"], "nothing has been measured yet: 'rmes ask'", 1),
        (["plot"], "nothing has been measured yet", 1),
        (["plot", "pie"], "'pie' is no kind of plot; expected one of overview", 1),
        (["plot", "posterior"], "plot posterior takes one parameter; 0 were given", 1),
        (["run", "--", "./none", "{x}"], "there is no program './none' that can be run", 1),
        (["run", "--", sys.executable, "{x}"], "the command does not use {kind}", 1),
    ],
)
def test_errors_are_one_clear_line_and_change_nothing(study, tmp_path, args, message, expected):
    study("ask")
    code, out, err = study(*args)
    assert code == expected
    assert out == ""
    assert err.startswith("rmes: ")
    assert err.count("\n") == 1
    assert message in err
    assert states(tmp_path) == ["RUNNING"]


def test_a_trial_is_not_told_twice_differently(study):
    study("ask")
    study("tell", 0, 1.5)
    code, _, err = study("tell", 0, 2.5)
    assert code == 1
    assert "trial 0 was already told as 1.5" in err
    assert "already told as 1.5" in study("tell", 0, "--failed")[2]
    assert told(study, "tell", 0, 1.5)[0]["value"] == 1.5


def test_a_study_that_was_not_made_says_how(rmes, tmp_path):
    (tmp_path / "study.toml").write_text(SQUARE)
    code, _, err = rmes("ask")
    assert code == 1
    assert err == "rmes: the study 'study' has not been made yet: rmes init study.toml\n"
    assert not (tmp_path / "study.db").exists()


def test_a_changed_direction_is_refused(study, tmp_path):
    (tmp_path / "study.toml").write_text(SQUARE.replace("minimize", "maximize"))
    code, _, err = study("ask")
    assert code == 1
    assert "says 'maximize', but the study 'study' was made with 'minimize'" in err


def test_a_storage_that_is_none_is_said(rmes, tmp_path):
    (tmp_path / "study.toml").write_text(SQUARE)
    (tmp_path / "study.db").write_text("this is a shopping list\n" * 100)
    code, _, err = rmes("init")
    assert code == 1
    assert "the storage does not work: file is not a database" in err


def test_a_storage_that_is_read_only_is_read(study, tmp_path):
    study("tell", "x=0,kind=a", 1.0, 1.5)
    url = f"sqlite:///file:{tmp_path}/study.db?mode=ro&uri=true"
    (tmp_path / "read.toml").write_text(f'name = "study"\nstorage = "{url}"\n' + SQUARE)
    code, _, err = study("ask", "-s", "read.toml")
    assert code == 1
    assert "the storage does not work: attempt to write a readonly database" in err
    assert err.count("\n") == 1
    assert told(study, "recommend", "-s", "read.toml")["measurements"] == 2
    assert states(tmp_path) == ["COMPLETE", "COMPLETE"]


def test_a_full_disk_is_said_and_leaves_the_study_intact(study, tmp_path):
    size = (tmp_path / "study.db").stat().st_size
    limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))}
    full = process(tmp_path, "ask", "-n", "40", "--json", **limit)
    out, err = full.communicate(timeout=60)
    assert full.returncode == 1
    assert err.startswith("rmes: the storage does not work: ")
    assert err.count("\n") == 1
    assert intact(tmp_path)
    pending = [each["trial"] for each in told(study, "export") if each["state"] == "pending"]
    shown = [each["trial"] for each in json.loads(out)]
    assert pending[: len(shown)] == shown  # what was made has been shown
    study("tell", "x=0,kind=a", 1.0)
    assert told(study, "recommend")["measurements"] == 1


def test_an_output_that_takes_nothing_is_said(study, tmp_path):
    with open("/dev/full", "w") as full:
        done = process(tmp_path, "export", stdout=full)
        _, err = done.communicate(timeout=30)
    assert (done.returncode, err) == (1, "rmes: No space left on device\n")


def test_a_reader_that_leaves_early_is_no_error(study, tmp_path):
    for number in range(3):
        study("tell", f"x={number / 3},kind=a", number)
    with process(tmp_path, "status", "--json") as done:
        done.stdout.close()
        assert done.stderr.read() == ""
    assert done.returncode == 1


# ------------------------------------------------------------------ help


def test_without_arguments_the_way_to_begin_is_shown(rmes):
    code, out, err = rmes()
    assert code == 2
    assert err == ""
    for said in ("rmes init", "rmes ask", "rmes tell", "rmes recommend", "rmes run", "rmes demo"):
        assert said in out


COMMANDS = {each.name or each.callback.__name__ for each in cli.app.registered_commands}


@pytest.mark.parametrize("name", sorted(COMMANDS - {"reproduce"}))
def test_help_of_every_command_says_what_comes_next(rmes, name):
    code, out, _ = rmes(name, "--help")
    assert code == 0
    assert f"Usage: rmes {name}" in out
    assert "--help" in out
    assert "Next:" in out


def test_reproduce_hands_over_to_the_paper(rmes, capsys):
    with pytest.raises(SystemExit) as caught:  # of the help
        rmes("reproduce", "--help")
    assert caught.value.code == 0
    said = capsys.readouterr().out
    assert "usage: rmes reproduce" in said
    assert "Next: rmes reproduce --quick" in said
    code, out, _ = rmes("reproduce", "--list")
    assert code == 0
    assert "branin" in out.lower()
    code, _, err = rmes("reproduce", "no-such-problem")
    assert code == 2
    assert "no-such-problem" in err
    assert err.count("\n") == 1


def test_the_command_and_the_module_are_one(tmp_path):
    done = process(tmp_path, "--help")
    out, err = done.communicate(timeout=30)
    assert (done.returncode, err) == (0, "")
    assert "Usage: rmes" in out
