"""The process in which a learner's file runs: python -m numpy_vit.checks.exercises.runner NAME FILE ANSWER."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

from numpy_vit.checks.exercises.judging import Verdict, judge, raised


def main(name: str, path: str, answer: str) -> None:
    """Judge a file, and write the verdict to the file `answer`."""
    Path(answer).write_text(json.dumps(verdict(name, path).to_json()), "utf-8")


def verdict(name: str, path: str) -> Verdict:
    """Run a learner's file and judge it; whatever it raises is a verdict."""
    learner = ModuleType("exercise")
    learner.__file__ = path
    try:
        source = Path(path).read_text("utf-8")
        exec(compile(source, path, "exec"), learner.__dict__)
        return judge(name, learner, path)
    except SyntaxError as error:
        return Verdict(name, "broken", f"the file is no Python: line {error.lineno}: {error.msg}")
    except SystemExit:
        return Verdict(name, "broken", "the file ends the program (SystemExit): leave that out")
    except (Exception, RecursionError) as error:
        return Verdict(name, "broken", raised(error, path))


if __name__ == "__main__":
    main(*sys.argv[1:4])
