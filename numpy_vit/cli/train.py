"""numpy-vit train."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy_vit.cli import train_options, train_task, training
from numpy_vit.cli.progress import Progress, reading
from numpy_vit.cli.usage import UsageError, cores, usage

if TYPE_CHECKING:  # NumPy must not load before main has chosen the number of BLAS threads
    from numpy_vit.data.selection import Selection
    from numpy_vit.training.loop import Task
    from numpy_vit.tree import Params


def add(commands: Any) -> None:
    """Add the command to the parser."""
    train_options.add(commands).set_defaults(run=run, one_blas_thread=True)


def run(args: argparse.Namespace) -> int:
    """Train, resume, or learn a few images by heart; return the exit status."""
    from numpy_vit.training.finite import NotFiniteError

    if args.print_recipe:
        print(json.dumps(train_task.describe(args), indent=2))
        return 0
    workers = args.workers or cores()
    try:
        if args.resume:
            return _resume(args, workers)
        task, data, params = train_task.task(args, workers)
        return _overfit(task, args.overfit) if args.overfit else _begin(args, task, data, params)
    except NotFiniteError as error:
        print(f"numpy-vit train: {error}", file=sys.stderr)
        return 1


def _begin(args: argparse.Namespace, task: Task, data: Selection, params: Params | None) -> int:
    from numpy_vit.training import loop
    from numpy_vit.training.run_folder import RunFolder

    path = Path(args.out) if args.out else training.new_folder(data.name.partition(":")[0])
    folder = RunFolder(path, data, args.init, args.teacher)
    with usage():  # --freeze names parameters, which only the model knows
        state = loop.start(task) if params is None else loop.begin(task, params)
    folder.create(task)
    folder.save(task, state)  # so that a run killed in its first epoch can be resumed, too
    return training.train(folder, task, state)


def _resume(args: argparse.Namespace, workers: int) -> int:
    from numpy_vit.training import classification
    from numpy_vit.training.run_folder import resume

    if given := train_options.given(args):
        raise UsageError(f"--resume goes on with the run's own options: leave out {', '.join(given)}")
    progress = Progress()
    folder, task, state = resume(Path(args.resume), workers, reading(progress))
    progress.clear()
    if task.goal is not classification:
        raise UsageError(f"{args.resume} is a pre-training: go on with numpy-vit pretrain --resume {args.resume}")
    if state.epoch >= task.recipe.epochs:
        print(f"{folder.path} is finished: {task.recipe.epochs} epochs; begin another run to train longer")
        return 0
    return training.train(folder, task, state)


def _overfit(task: Task, count: int) -> int:
    from numpy_vit.training.overfit import LOSS, Outcome, overfit

    progress = Progress()

    def on_step(now: Outcome) -> None:
        progress.line(f"step {now.steps}  loss {now.loss:.4f}  accuracy {now.accuracy:.1%}")

    with usage():
        outcome = overfit(task, count, on_step)
    progress.clear()
    print(
        f"{count} images: {outcome.accuracy:.0%} correct, loss {outcome.loss:.5f} after {outcome.steps} steps, "
        + ("the model can learn" if outcome.learned else f"not below {LOSS}: the model or its rate is wrong")
    )
    return 0 if outcome.learned else 1
