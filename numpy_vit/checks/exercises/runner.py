"""What goes on in the process in which a learner's file runs, which `process` starts."""

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
    sys.modules["exercise"] = learner  # a dataclass looks its module up there
    sys.path.append(str(Path(path).parent))  # last, so that no file there takes the place of another's
    try:
        exec(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True), learner.__dict__)
        return judge(name, learner, path)
    except SyntaxError as error:
        place = f"line {error.lineno}: " if error.lineno else ""
        return Verdict(name, "broken", f"the file is no Python: {place}{error.msg}")
    except SystemExit:
        return Verdict(name, "broken", "the file ends the program (SystemExit): leave that out")
    except BaseException as error:  # a KeyboardInterrupt too: nobody but the file can have raised it
        return Verdict(name, "broken", raised(error, path))
