"""numpy-vit study."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli import train_options, train_task, training
from numpy_vit.cli.progress import Progress, counted, duration
from numpy_vit.cli.usage import UsageError, add_workers, cores, positive, usage

if TYPE_CHECKING:  # NumPy must not load before main has chosen the number of BLAS threads
    from numpy_vit.training.loop import State, Task
    from numpy_vit.training.studies import Run, Study
    from numpy_vit.training.study_folder import StudyFolder

_EXAMPLES = """examples:
  numpy-vit study                                 the studies and their questions
  numpy-vit study heads                           a few minutes; writes runs/study-heads-1
  numpy-vit study positions --seeds 5 --out runs/study-positions-1
  numpy-vit study distillation --teacher runs/digits-1 --train-images 200 --seeds 5
  numpy-vit study patch-size --data shapes --image-size 32 --epochs 10
"""
_SEEDS = 3
_OPTIONS = ("data", "image_size", "train_images", "test_images", "teacher", "seeds", "epochs", "out", "workers")


def add(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "study",
        help="answer a question about ViTs by training a few, with the spread over seeds",
        description="Train a small model in the few ways that a question asks about, each with the same seeds, and "
        "say which differences are larger than the spread. A study that was interrupted goes on in its folder. "
        "Without NAME: the studies.",
        epilog=_EXAMPLES,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="patch-size, heads, depth, positions, norm, ...")
    train_options.add_data(parser)
    parser.add_argument("--teacher", metavar="FILE", help="the checkpoint or run that taught arms learn from")
    parser.add_argument("--seeds", type=positive, metavar="N", help=f"runs of each arm (default: {_SEEDS})")
    parser.add_argument("--epochs", type=positive, metavar="N", help="of each run (default: 40 for the digits)")
    parser.add_argument(
        "--out", metavar="FOLDER", help="where it is written, or goes on (default: runs/study-NAME-1, -2, ...)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables; the rest to stderr")
    add_workers(parser)
    parser.set_defaults(run=run, one_blas_thread=True)


def run(args: argparse.Namespace) -> int:
    """Run a study, or list them; return the exit status."""
    from numpy_vit.training.studies import STUDIES
    from numpy_vit.training.study_folder import PICTURE
    from numpy_vit.views import study_table

    if args.name is None:
        if given := [_option(field) for field in _OPTIONS if getattr(args, field) is not None]:
            raise UsageError(f"{given[0]} needs the NAME of a study")
        print(_listed(STUDIES, args.json))
        return 0
    if args.name not in STUDIES:
        raise UsageError(f"no study is called {args.name!r}: choose one of {', '.join(STUDIES)}")
    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        found = _study(args, STUDIES[args.name])
    if found is None:
        return 130
    if args.json:
        print(json.dumps(found))
    else:
        print(f"\n{study_table.text(found)}\nlook at {Path(found['folder']) / PICTURE}")
    return 0


def _listed(studies: Mapping[str, Study], as_json: bool) -> str:
    if as_json:
        return json.dumps({name: {"question": s.question, "arms": list(s.arms)} for name, s in studies.items()})
    width = max(map(len, studies))
    lines = [f"{name:{width}}  {s.question}\n{'':{width}}  {'; '.join(s.arms)}" for name, s in studies.items()]
    return "\n".join([*lines, "run one with: numpy-vit study NAME"])


def _study(args: argparse.Namespace, study: Study) -> dict[str, Any] | None:
    """Run what has not been run yet, and return what the study says; None where Ctrl-C ended it."""
    from numpy_vit.training import studies
    from numpy_vit.training.study_folder import PICTURE, StudyFolder, settings
    from numpy_vit.views import study_plot

    selection = train_task.select(args, seed=0)
    data = train_task.load(selection)
    with usage():
        recipe = studies.recipe(selection.name, args.epochs)
        arms = studies.tasks(study, recipe, data, args.workers or cores(), args.teacher)
    path = Path(args.out) if args.out else training.new_folder(f"study-{args.name}")
    folder = StudyFolder(path, settings(args.name, selection, arms, args.teacher))
    seeds = args.seeds or _SEEDS
    runs = folder.read()
    if not runs:  # the name is taken from now on, and a folder that cannot be written to is not found out later
        folder.write(runs)
    print(_headline(args.name, study, folder, arms, seeds))
    if not _run_the_rest(args, folder, arms, seeds, runs):
        return None
    found = {
        "study": args.name,
        "question": study.question,
        "data": selection.name,
        "test_images": len(data.test),
        "folder": str(path),
        **studies.summary(arms, [run for run in runs if run.seed < seeds]),
    }
    folder.write(runs, found)
    accuracies = {arm["arm"]: arm["accuracies"] for arm in found["arms"]}
    study_plot.draw(accuracies, path / PICTURE, f"{args.name}, {selection.name}: {study.question}")
    return found


def _run_the_rest(
    args: argparse.Namespace, folder: StudyFolder, arms: Mapping[str, Task], seeds: int, runs: list[Run]
) -> bool:  # fmt: skip
    """Add the runs that are missing, and save each as it ends; False where Ctrl-C ended it."""
    from numpy_vit.training import studies

    progress, finished = Progress(), {(run.arm, run.seed) for run in runs}
    clock = _Clock(arms, seeds, runs)
    for run in runs:
        if run.seed < seeds:
            progress.print(f"{_run_line(clock, run)}  kept")

    def on_step(label: str, seed: int, state: State) -> None:
        recipe = arms[label].recipe
        progress.line(
            f"run {clock.number(label, seed)}/{clock.total}  {label}, seed {seed}  epoch {state.epoch + 1}/"
            f"{recipe.epochs}  loss {state.loss_sum / state.seen:.4f}  {duration(clock.left(label, state))} left"
        )

    try:
        for run in studies.run(arms, seeds, finished, on_step):
            runs.append(run)
            folder.write(runs)
            clock.add(run)
            progress.print(f"{_run_line(clock, run)}  {duration(clock.left())} left")
    except KeyboardInterrupt:
        progress.clear()
        folder.write(runs)  # the last one, too, if it had ended but was not written yet
        done = sum(run.seed < seeds for run in runs)
        print(f"stopped after {done} of {clock.total} runs; go on with: {_again(args, folder)}")
        return False
    progress.clear()
    return True


class _Clock:
    """Numbers the runs, and foresees how long those take that have not ended."""

    def __init__(self, arms: Mapping[str, Task], seeds: int, runs: list[Run]) -> None:
        from numpy_vit.views.costs import multiply_adds

        self._work = {label: sum(multiply_adds(task.config).values()) for label, task in arms.items()}
        self._arms = arms
        self._order = [(label, seed) for seed in range(seeds) for label in arms]
        self._seconds: dict[str, list[float]] = {label: [] for label in arms}
        self._open = set(self._order)
        self.total = len(self._order)
        for run in runs:
            self.add(run)

    def add(self, run: Run) -> None:
        """Learn from a run that has ended."""
        self._seconds[run.arm].append(run.seconds)
        self._open.discard((run.arm, run.seed))

    def number(self, label: str, seed: int) -> int:
        """Return which run of all it is, from 1."""
        return self._order.index((label, seed)) + 1

    def left(self, label: str | None = None, state: State | None = None) -> float:
        """Return the seconds that are left, given how far the present run is, if there is one."""
        spent = {name: (sum(seconds), float(len(seconds))) for name, seconds in self._seconds.items()}
        share, now = 0.0, 0.0  # of the present run: the part of it that is done, and its seconds
        if label is not None and state is not None:
            task, now = self._arms[label], state.seconds + state.epoch_seconds
            share = (state.epoch + state.batch / task.batches) / task.recipe.epochs
            spent[label] = spent[label][0] + now, spent[label][1] + share
        work = sum(self._work[name] * count for name, (_, count) in spent.items())
        pace = sum(seconds for seconds, _ in spent.values()) / work if work else 0.0
        each = {name: seconds / count if count else pace * self._work[name] for name, (seconds, count) in spent.items()}
        return sum(each[name] for name, _ in self._open) - (share * each[label] if label is not None else 0.0)


def _headline(
    name: str, study: Study, folder: StudyFolder, arms: Mapping[str, Task], seeds: int
) -> str:  # fmt: skip
    task = next(iter(arms.values()))
    train, test, epochs = task.data.train, task.data.test, task.recipe.epochs
    return (
        f"{name}: {study.question}\n"
        f"{folder.settings['data']['name']}: {len(train):,} training and {len(test):,} test images, "
        f"{'x'.join(map(str, train.shape))}\n"
        f"{counted(len(arms), 'arm')} x {counted(seeds, 'seed')} = {len(arms) * seeds} runs of "
        f"{counted(epochs, 'epoch')}; {counted(task.workers, 'worker')}; writing to {folder.path}"
    )


def _run_line(clock: _Clock, run: Run) -> str:
    ended = "" if run.not_finite is None else f"  stopped early: {run.not_finite}"
    width = len(str(clock.total))
    return (
        f"run {clock.number(run.arm, run.seed):{width}}/{clock.total}  {run.arm}, seed {run.seed}  "
        f"accuracy {run.accuracy:6.2%}  {run.seconds:.1f} s{ended}"
    )


def _again(args: argparse.Namespace, folder: StudyFolder) -> str:
    """Return the command that goes on."""
    given = {field: getattr(args, field) for field in _OPTIONS if field != "out"}
    options = [text for field, value in given.items() if value is not None for text in (_option(field), str(value))]
    return shlex.join(["numpy-vit", "study", args.name, *options, *["--json"] * args.json, "--out", str(folder.path)])


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"
