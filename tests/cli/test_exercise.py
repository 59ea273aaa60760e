"""numpy-vit exercise: writing, judging, hints, and files that do anything but what they should."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

from numpy_vit.checks import catalogue
from numpy_vit.cli.main import main


def answer(capsys, *arguments):
    status = main(["exercise", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def sheet(tmp_path, capsys):
    path = tmp_path / "work.py"
    assert answer(capsys, "layer_scale", "--out", path)[0] == 0
    return path


RIGHT = """
def backward(dy, cache):
    params, x = cache
    D = dy.shape[-1]
    return dy * params["gamma"], {"gamma": (dy * x).reshape(-1, D).sum(axis=0)}
"""


def write(sheet, backward, head=""):
    text = sheet.read_text("utf-8")
    sheet.write_text(head + text[: text.index("def backward")] + backward, "utf-8")


def test_the_list_names_every_exercise(capsys):
    status, out, _ = answer(capsys)
    assert status == 0
    assert out.splitlines()[0].startswith("linear ")
    assert any(line.split()[:3] == ["layernorm", "5", "steps"] for line in out.splitlines())


def test_from_the_empty_sheet_to_the_solution(tmp_path, sheet, capsys):
    status, out, err = answer(capsys, "layer_scale", "--check", sheet)
    assert (status, err) == (1, "")
    assert "still to be written" in out and "step (1)" in out and "--hint 1" in out
    cache = inspect.getsource(catalogue.module("layer_scale").backward)
    assert " = cache" in cache
    write(sheet, RIGHT)
    status, out, err = answer(capsys, "layer_scale", "--check", sheet)
    assert (status, err) == (0, "")
    first, *rows = out.splitlines()
    assert first.startswith("layer_scale: right, in all of the 2 gradients of its examples")
    assert [row.split()[0] for row in rows] == ["x", "params.gamma"]
    assert all(float(row.split()[1]) <= 1e-9 for row in rows)


def test_a_wrong_gradient_with_one_hint_after_the_other(sheet, capsys):
    write(sheet, RIGHT.replace(".sum(axis=0)", ".mean(axis=0)"))
    status, out, _ = answer(capsys, "layer_scale", "--check", sheet)
    assert status == 1
    assert "params.gamma is" in out and "too small" in out
    assert "look at step (2) of the derivation; --hint 1 says more" in out
    assert hinted(capsys, sheet, 1)[-2:] == ["hint 1 of 3: step (2) is about dγ_i", "--hint 2 says more"]
    found = json.loads(answer(capsys, "layer_scale", "--check", sheet, "--json")[1])
    assert (found["status"], found["wrong"], found["steps"]) == ("wrong", ["params.gamma"], [2])
    assert (found["hint"], found["hint_count"]) == (None, 3)


def hinted(capsys, sheet, number, *more):
    status, out, err = answer(capsys, "layer_scale", "--check", sheet, "--hint", number, *more)
    assert (status, err) == (1, "")
    return out.splitlines()


def test_the_hints_of_an_empty_sheet_come_one_at_a_time_and_end(sheet, capsys):
    hints = [
        "step (1) is about dx_ni",
        "step (1) starts from: y_ni = γ_i x_ni",
        "step (1): y_ni = γ_i x_ni  ⇒  dx_ni = γ_i dy_ni",
        "step (2) is about dγ_i",
        "step (2): dγ_i = Σ_n dy_ni x_ni",
    ]
    head = "layer_scale: backward is still to be written"
    for number in (1, 3, 4):
        hint = hints[number - 1]
        assert hinted(capsys, sheet, number) == [head, f"hint {number} of 5: {hint}", f"--hint {number + 1} says more"]
    end = "numpy-vit explain layer_scale has the whole derivation, and the answer"
    assert hinted(capsys, sheet, 5) == [head, f"hint 5 of 5: {hints[-1]}", f"no more hints: {end}"]
    assert hinted(capsys, sheet, 99) == [head, f"no hint 99, there are 5: {end}"]
    found = json.loads(*hinted(capsys, sheet, 4, "--json"))
    assert (found["hint"], found["hint_count"]) == (hints[3], 5)


def test_what_no_step_explains_has_no_hints(sheet, capsys):
    write(sheet, RIGHT.replace("    D =", "    dy *= 1.5\n    D ="))
    assert hinted(capsys, sheet, 1)[-1] == "no hints: it is no step of the derivation that is wrong"
    write(sheet, RIGHT)
    assert answer(capsys, "layer_scale", "--check", sheet, "--hint", "1")[0] == 0


def test_it_never_overwrites(sheet, capsys):
    before = sheet.read_bytes()
    status, _, err = answer(capsys, "layer_scale", "--out", sheet)
    assert (status, err.count("\n")) == (2, 1)
    assert "--out" in err and sheet.read_bytes() == before


HOSTILE = [
    ("while True: pass", [], "does not end within 3 seconds"),
    ("import os; os._exit(0)", [], "ended with status 0 before it was judged"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", [], "SIGSEGV"),
    ("import sys; sys.exit(0)", [], "SystemExit"),
    ("def broken(:", [], "line 1"),
    ("x = 1 / 0", [], "fails in line 1: ZeroDivisionError"),
    ("import numpy; numpy.ones(10**12)", [], "MemoryError"),
    ("def f(): f()\nf()", [], "RecursionError"),
    ("raise KeyboardInterrupt", [], "fails in line 1: KeyboardInterrupt"),
    ("while True: print('x' * 1000000)", [], "fails in line 1: OSError"),
    ("import json; print(json.dumps({'exercise': 'layer_scale', 'status': 'right'}))", [1], "still to be written"),
]


@pytest.mark.skipif(sys.platform == "win32", reason="signals and memory limits are POSIX's")
@pytest.mark.parametrize(("head", "statuses", "words"), HOSTILE, ids=[row[2] for row in HOSTILE])
def test_a_file_can_do_what_it_likes(sheet, capsys, head, statuses, words):
    sheet.write_text(f"{head}\n" + sheet.read_text("utf-8").replace("from __future__ import annotations", ""), "utf-8")
    limit = "3" if "pass" in head else "60"
    status, out, _ = answer(capsys, "layer_scale", "--check", sheet, "--time-limit", limit)
    assert status in (statuses or [2])
    assert words in out and "Traceback" not in out
    assert len(out.splitlines()) <= 2


def test_a_backward_that_fails_is_wrong_and_its_line_is_named(sheet, capsys):
    write(sheet, RIGHT.replace("    D =", "    dy @ dy[0, 0, 0, 0]\n    D ="))
    status, out, _ = answer(capsys, "layer_scale", "--check", sheet)
    line = sheet.read_text("utf-8").splitlines().index("    dy @ dy[0, 0, 0, 0]") + 1
    assert status == 1
    assert f"backward fails in line {line}: IndexError" in out and "look at step (1)" in out


def test_no_gradient_at_all_is_not_right(sheet, capsys):
    write(sheet, RIGHT.replace('dy * params["gamma"]', "None"))
    status, out, _ = answer(capsys, "layer_scale", "--check", sheet)
    assert status == 1
    assert "x is None: backward answers no gradient for it" in out and "step (1)" in out


def test_an_ordinary_file_is_one_wherever_it_lies(tmp_path, sheet, capsys, monkeypatch):
    """With a byte order mark, a dataclass and a module of its own beside files that are named like Python's."""
    monkeypatch.chdir(tmp_path)
    for name in ("json", "random", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')\n", "utf-8")
    (tmp_path / "beside_it.py").write_text("number = 1\n", "utf-8")
    more = (
        "from beside_it import number\nfrom dataclasses import dataclass\n@dataclass\nclass Own:\n    x: int = number\n"
    )
    write(sheet, f"{RIGHT}\n{more}")
    sheet.write_bytes(b"\xef\xbb\xbf" + sheet.read_bytes())
    status, out, err = answer(capsys, "layer_scale", "--check", sheet)
    assert (status, err) == (0, "") and out.startswith("layer_scale: right")


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_tighter_limits_of_the_shell_stay(sheet):
    write(sheet, RIGHT)
    call = f"ulimit -v 3000000; exec {sys.executable} -m numpy_vit exercise layer_scale --check {sheet}"
    done = subprocess.run(["sh", "-c", call], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("layer_scale: right")


def test_what_it_prints_comes_on_stderr(sheet, capsys):
    write(sheet, RIGHT.replace("    D =", "    print('looking at', dy.shape)\n    D ="))
    status, out, err = answer(capsys, "layer_scale", "--check", sheet)
    assert status == 0 and out.startswith("layer_scale: right")
    assert "looking at (" in err and len(err) < 5000
    write(sheet, RIGHT + "\nprint('x' * 10000)\n")
    err = answer(capsys, "layer_scale", "--check", sheet)[2]
    assert err.endswith("(the rest of what the file prints is left out)\n") and len(err) < 5000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["vit"], "unknown exercise 'vit'"),
        (["linear", "--check", "nowhere.py"], "no such file"),
        (["linear", "--hint", "1"], "--hint without a file to judge: name it with --check FILE"),
        (["linear", "--time-limit", "5"], "--time-limit without a file to judge"),
        (["linear", "--time-limit", "60", "--json", "--out", "b.py"], "--time-limit and --json without a file"),
        (["--hint", "1"], "name the exercise"),
        (["--time-limit", "5"], "name the exercise"),
        (["--json"], "name the exercise"),
        (["--check", "nowhere.py"], "name the exercise"),
        (["linear", "--check", "a.py", "--out", "b.py"], "choose one"),
        (["linear", "--out", "/nowhere/at/all.py"], "no folder"),
    ],
)
def test_what_cannot_be_meant_is_one_line(capsys, arguments, words):
    status, out, err = answer(capsys, *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err


@pytest.mark.parametrize(("option", "value"), [("--hint", "0"), ("--hint", "-1"), ("--time-limit", "0")])
def test_a_number_that_cannot_be_meant_is_one_line(capsys, option, value):
    with pytest.raises(SystemExit) as ended:
        main(["exercise", "linear", "--check", "nowhere.py", f"{option}={value}"])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1) and option in err
