"""Running a task in its folder: progress, saving, and the stop by Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from numpy_vit.cli.progress import Progress, counted, duration

if TYPE_CHECKING:  # NumPy must not load before main has chosen the number of BLAS threads
    from numpy_vit.data import Split
    from numpy_vit.training.loop import Row, State, Task
    from numpy_vit.training.run_folder import RunFolder

_SAVE_EVERY = 300.0  # seconds; at the end of an epoch in any case
_FORESEE = 3, 2.0  # the run's time is foreseen after so many steps, or after the step that ends so many seconds later


def train(folder: RunFolder, task: Task, state: State) -> int:
    """Train to the end or to Ctrl-C, and return the exit status; all is saved in the folder."""
    from numpy_vit.training import loop
    from numpy_vit.views import curves

    progress = Progress()
    print(_headline(folder, task, state))
    show = _Steps(task, state, progress)
    saved = [state.seconds]

    def on_step(state: State, loss: float) -> None:
        show(state, loss)
        spent = state.seconds + state.epoch_seconds
        if spent - saved[0] > _SAVE_EVERY:
            folder.save(task, state)
            saved[0] = spent

    def on_epoch(state: State, row: Row) -> None:
        folder.add_row(row)
        folder.save(task, state)
        saved[0] = state.seconds
        progress.print(_epoch_line(task, row, show.left(state)))

    with _stop_on_signal() as stopped:
        finished = loop.train(task, state, on_step, on_epoch, stopped)
    progress.clear()
    if not finished:
        folder.save(task, state)
        print(f"stopped in epoch {state.epoch + 1}; go on with: numpy-vit {command(task)} --resume {folder.path}")
        return 130
    rows = folder.rows()
    curves.draw(rows, folder.path / "curves.png", f"{folder.data.name}: {folder.path.name}")
    say_skipped(task.data)  # files on disk may have turned out broken since the run began
    print(_summary(folder, rows))
    return 0


def say_skipped(data: Split) -> None:
    """Name the files that cannot be read, where there are any, on standard error: what is asked for stays plain."""
    from numpy_vit.data import describe_skipped

    for part in (data.train, data.test):
        if part.skipped:
            print(f"{part.name}: {describe_skipped(part.skipped)}", file=sys.stderr)


class _Steps:
    """Shows each step, and knows from the speed so far how much time is left."""

    def __init__(self, task: Task, state: State, progress: Progress) -> None:
        self._task, self._progress = task, progress
        self._from = self._before = self._now(state)
        self._steps = 0

    def __call__(self, state: State, loss: float) -> None:
        self._steps += 1
        if self._steps == 2:
            self._from = self._before  # the first step, in which memory is found, says little about the others
        self._before = self._now(state)
        steps, seconds = _FORESEE
        if self._steps == steps or (self._steps < steps and self._now(state)[1] - self._from[1] > seconds):
            self._steps = steps
            self._progress.print(_outlook(self._task, state, self.left(state)))
        self._progress.line(
            f"epoch {state.epoch + 1}/{self._task.recipe.epochs}  batch {state.batch}/{self._task.batches}  "
            f"loss {state.loss_sum / state.seen:.4f}{_so_far(self._task, state)}  "
            f"{self._speed(state):.0f} images/s  {duration(self.left(state))} left"
        )

    def left(self, state: State) -> float:
        """Return the seconds that the rest of the run will take, with the evaluation after each epoch."""
        epochs, data = self._task.recipe.epochs, self._task.data
        training = epochs * len(data.train) - self._now(state)[0]
        evaluation = (epochs - state.epoch) * len(data.test) / 3  # a forward is a third of a step
        return (training + evaluation) / self._speed(state)

    def _speed(self, state: State) -> float:
        """Images a second."""
        images, seconds = (now - then for now, then in zip(self._now(state), self._from, strict=True))
        return max(1, images) / max(seconds, 1e-9)

    def _now(self, state: State) -> tuple[int, float]:
        """Images and seconds of the run up to here."""
        return len(self._task.data.train) * state.epoch + state.seen, state.seconds + state.epoch_seconds


def _so_far(task: Task, state: State) -> str:
    rates = task.goal.rates(state.correct, state.seen)
    return f"  accuracy {rates['train_accuracy']:.2%}" if rates else ""


def _outlook(task: Task, state: State, seconds: float) -> str:
    """Say what the run will take: the time by its first steps, the memory by formula."""
    from numpy_vit.cli import estimates
    from numpy_vit.data import Dataset

    lasting = [*state.optimizer.values(), *([] if state.average is None else [state.average])]
    averages = sum(array.shape == state.flat.shape for array in lasting)
    images = sum(part.images.nbytes for part in (task.data.train, task.data.test) if isinstance(part, Dataset))
    config = getattr(task.config, "encoder", task.config)  # a masked autoencoder takes less: it sees few patches
    step = estimates.step_memory(config, task.recipe.batch_size, task.workers, averages)
    size = estimates.about_bytes(sum(step.values()) + images + estimates.PROCESS)
    left = task.recipe.epochs - state.epoch
    return f"about {estimates.about_seconds(seconds)} and {size}: {counted(left, 'epoch')} of {task.batches} steps"


def _headline(folder: RunFolder, task: Task, state: State) -> str:
    config, recipe, train = getattr(task.config, "encoder", task.config), task.recipe, task.data.train
    channels, height, width = train.shape
    return (
        f"{folder.data.name}: {len(train):,} training and {len(task.data.test):,} test images, "
        f"{channels}x{height}x{width}, {len(train.class_names)} classes\n"
        f"{type_of(task)}: patch {config.patch[0]}x{config.patch[1]}, {config.num_patches} patches, "
        f"width {config.embed_dim}, depth {config.depth}, {config.num_heads} heads, {state.flat.size:,} parameters; "
        f"{counted(task.workers, 'worker')}\n"
        f"{recipe.optimizer}, rate {recipe.lr:g}, {counted(recipe.epochs, 'epoch')} of {task.batches} batches of "
        f"{recipe.batch_size}, seed {recipe.seed}{_frozen(state)}; writing to {folder.path}"
    )


def _frozen(state: State) -> str:
    """How many parameters stay as they are, where some do: the optimizer has no state for them."""
    learning = max(array.size for array in state.optimizer.values())
    return f"; {state.flat.size - learning:,} parameters frozen" if learning not in (1, state.flat.size) else ""


def type_of(task: Task) -> str:
    """Return what kind of model is trained."""
    kinds = {"vit": "ViT", "deit": "DeiT", "mae": "MAE, encoder"}
    return kinds[task.model.__name__.rpartition(".")[2]]


def command(task: Task) -> str:
    """Return the command that trains such a task."""
    from numpy_vit.training import reconstruction

    return "pretrain" if task.goal is reconstruction else "train"


def _epoch_line(task: Task, row: Row, left: float) -> str:
    epochs = task.recipe.epochs
    return (
        f"epoch {row['epoch']:{len(str(epochs))}}/{epochs}  "
        f"train loss {row['train_loss']:.4f}{_accuracy(row, 'train')}  "
        f"{_tested(row)}"
        f"{row['images_per_second']:.0f} images/s  {duration(left)} left"
    )


def _tested(row: Row) -> str:
    """What the test part said, in an epoch that looked at it."""
    return f"test loss {row['test_loss']:.4f}{_accuracy(row, 'test')}  " if "test_loss" in row else ""


def _accuracy(row: Row, part: str) -> str:
    """An epoch's accuracy; nothing where nothing is classified."""
    return f" accuracy {row[f'{part}_accuracy']:6.2%}" if f"{part}_accuracy" in row else ""


def _summary(folder: RunFolder, rows: list[Row]) -> str:
    last = rows[-1]
    classified = "test_accuracy" in last
    reached = f"test accuracy {last['test_accuracy']:.2%}, loss" if classified else "test loss"
    following = "evaluate with: numpy-vit eval" if classified else "probe the features with: numpy-vit probe"
    return (
        f"data loading took {_data_share(rows):.1%} of the time\n"
        f"{reached} {last['test_loss']:.4f} after {last['seconds']:.1f} s "
        f"of training (last epoch, nothing was selected on the test part)\n"
        f"look at {folder.path / 'curves.png'}; {following} {folder.path}"
    )


def _data_share(rows: list[Row]) -> float:
    """The epochs' mean, by their time; rows that earlier versions wrote do not have it."""
    known = [row for row in rows if "data_share" in row]
    seconds = [1 / row["images_per_second"] for row in known]  # an image; every epoch has the same images
    return float(sum(time * row["data_share"] for time, row in zip(seconds, known, strict=True)) / sum(seconds))


def new_folder(name: str) -> Path:
    """Return runs/NAME-1, or the first number that is not taken."""
    number = 1
    while (Path("runs") / f"{name}-{number}").exists():
        number += 1
    return Path("runs") / f"{name}-{number}"


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a stop between two steps; a second one interrupts at once."""
    received: list[int] = []

    def note(number: int, _: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
