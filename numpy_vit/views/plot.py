"""Line plots with Pillow alone: a canvas, axes with round ticks, lines with gaps and a legend.

A `Canvas` is the sheet, an `Axes` one coordinate system on it:

    canvas = Canvas(400, 300)
    loss = Series("train", [1, 2, 3], [2.3, math.nan, 0.4], BLUE, "0.4")
    axes = Axes(canvas, (0, 0, 400, 300), (1, 3), extent(loss.ys), "loss (nats)", "epoch")
    axes.draw([loss])
    image = canvas.finish()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont

from numpy_vit.views.scales import tick_labels, ticks

# Okabe & Ito's colours keep apart for every common kind of colour blindness.
BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, BLACK = "#56B4E9", "#CC79A7", "#000000"
INK, GREY, GRID, PAPER = "#222222", "#5A5A5A", "#E4E4E4", "#FFFFFF"

_OVERSAMPLING = 2  # Pillow's lines have hard edges; halving a picture of twice the size smooths them
_MARKED, _DENSE = 40, 200  # with more points, dots hide the line; with more still, a thick line hides itself


@dataclass(frozen=True)
class Series:
    """One line of a plot.

    Parameters
    ----------
    name : what the legend calls it.
    xs, ys : as long as each other; a point that is not finite is a gap.
    colour : "#RRGGBB".
    note : what the legend says behind the name, such as the last value.
    """

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    note: str = ""


class Canvas:
    """A white sheet measured in pixels from its top left corner; `finish` makes the picture.

    Parameters
    ----------
    width, height : of the finished picture.
    """

    def __init__(self, width: int, height: int) -> None:
        size = (width * _OVERSAMPLING, height * _OVERSAMPLING)
        self._image = Image.new("RGB", size, PAPER)
        self._pen = ImageDraw.Draw(self._image)
        self._texts: list[tuple[float, float, str, int, str, float]] = []

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.0) -> None:
        """Join points by straight lines."""
        scaled = [(x * _OVERSAMPLING, y * _OVERSAMPLING) for x, y in points]
        self._pen.line(scaled, fill=colour, width=round(width * _OVERSAMPLING), joint="curve")

    def dot(self, x: float, y: float, colour: str, radius: float = 2.5) -> None:
        """Fill a circle."""
        corners = [(c + r) * _OVERSAMPLING for r in (-radius, radius) for c in (x, y)]
        self._pen.ellipse(corners, fill=colour)

    def text(self, x: float, y: float, text: str, size: int = 12, colour: str = INK, align: float = 0.0) -> None:
        """Write one line centred on height y; x is its left end, middle or right end for align 0, 0.5 or 1."""
        self._texts.append((x, y, _one_line(text), size, colour, align))

    def finish(self) -> Image.Image:
        """Return the picture; the canvas can be drawn on further."""
        image = self._image.reduce(_OVERSAMPLING)
        pen = ImageDraw.Draw(image)
        # Text is set at its final size, where the font's hinting keeps small letters sharp.
        for x, y, text, size, colour, align in self._texts:
            font = _font(size)
            _, top, _, bottom = font.getbbox("0")
            corner = (round(x - align * font.getlength(text)), round(y - (top + bottom) / 2))
            pen.text(corner, text, fill=colour, font=font)
        return image


class Axes:
    """A coordinate system with ticks, a grid, a heading and a legend.

    Parameters
    ----------
    canvas : the sheet.
    box : left, top, right, bottom of all that belongs to the axes, words included.
    x_range, y_range : the values at the ends of the axes, low < high; points outside are left out.
    title : stands above and names what y is, with its unit.
    x_title : stands below.
    whole_x : x counts something, so that its ticks are whole numbers.
    """

    def __init__(
        self,
        canvas: Canvas,
        box: tuple[float, float, float, float],
        x_range: tuple[float, float],
        y_range: tuple[float, float],
        title: str,
        x_title: str,
        whole_x: bool = True,
    ) -> None:
        self.canvas, self.box, self.x_range, self.y_range = canvas, box, x_range, y_range
        self.title, self.x_title = title, x_title
        self._y_ticks = ticks(*y_range)
        self._y_labels = tick_labels(self._y_ticks)
        left, top, right, bottom = box
        margin = max((36.0, *(text_width(label, 12) for label in self._y_labels)))  # 36: neighbours look alike
        self.left, self.top, self.right, self.bottom = left + margin + 8, top + 56, right - 8, bottom - 44
        most = max(2, int((self.right - self.left) // 55))
        self._x_ticks = ticks(*x_range, most, whole_x)
        self._x_labels = tick_labels(self._x_ticks)

    def x(self, value: float) -> float:
        """Return the pixel column of a value."""
        low, high = self.x_range
        inset = 8  # keeps the first and the last dot off the edge
        return self.left + inset + (value - low) / (high - low) * (self.right - self.left - 2 * inset)

    def y(self, value: float) -> float:
        """Return the pixel row of a value."""
        low, high = self.y_range
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

    def draw(self, series: Sequence[Series]) -> None:
        """Draw grid, words, legend and lines; the first of the series comes to lie on top."""
        self._frame()
        self._legend(series)
        for line in reversed(series):
            self._line(line)
        if not any(self._inside(x, y) for line in series for x, y in zip(line.xs, line.ys, strict=True)):
            middle = (self.left + self.right) / 2, (self.top + self.bottom) / 2
            self.canvas.text(*middle, "nothing to show", colour=GREY, align=0.5)

    def _frame(self) -> None:
        canvas = self.canvas
        for value, label in zip(self._y_ticks, self._y_labels, strict=True):
            canvas.line([(self.left, self.y(value)), (self.right, self.y(value))], GRID)
            canvas.text(self.left - 8, self.y(value), label, colour=GREY, align=1.0)
        for value, label in zip(self._x_ticks, self._x_labels, strict=True):
            canvas.line([(self.x(value), self.top), (self.x(value), self.bottom + 4)], GRID)
            canvas.text(self.x(value), self.bottom + 14, label, colour=GREY, align=0.5)
        canvas.line([(self.left, self.bottom), (self.right, self.bottom)], GREY)
        canvas.text((self.left + self.right) / 2, self.bottom + 34, self.x_title, colour=INK, align=0.5)
        canvas.text(self.left, self.box[1] + 10, fit(self.title, self.right - self.left, 14), 14)

    def _legend(self, series: Sequence[Series]) -> None:
        x, y, share = self.left, self.box[1] + 34, (self.right - self.left) / max(1, len(series))
        for line in series:
            self.canvas.line([(x, y), (x + 14, y)], line.colour, 3)
            text = fit(f"{line.name} {line.note}".strip(), share - 20 - 8, 12)
            self.canvas.text(x + 20, y, text)
            x += 20 + text_width(text, 12) + 18 if share > 100 else share

    def _line(self, line: Series) -> None:
        runs: list[list[tuple[float, float]]] = [[]]
        for x, y in zip(line.xs, line.ys, strict=True):
            if self._inside(x, y):
                runs[-1].append((self.x(x), self.y(y)))
            elif runs[-1]:
                runs.append([])
        for run in runs:
            if len(run) > 1:
                self.canvas.line(run, line.colour, 2 if len(line.xs) <= _DENSE else 1.5)
            if len(run) == 1 or len(line.xs) <= _MARKED:  # a lone point would be invisible as a line
                for point in run:
                    self.canvas.dot(*point, line.colour)

    def _inside(self, x: float, y: float) -> bool:
        return self.x_range[0] <= x <= self.x_range[1] and self.y_range[0] <= y <= self.y_range[1]


def text_width(text: str, size: int) -> float:
    """Return the width in pixels of a line of text."""
    return _font(size).getlength(_one_line(text))


def fit(text: str, width: float, size: int) -> str:
    """Return `text`, cut short and ended with "..." where it is wider than `width` pixels."""
    text = _one_line(text)
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "...", size) > width:
        text = text[:-1]
    return text.rstrip() + "..." if text else ""


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    try:
        return ImageFont.load_default(size)
    except (TypeError, ImportError):  # Pillow below 10.1, or built without FreeType: a bitmap font of one size
        return ImageFont.load_default()


def _one_line(text: str) -> str:
    # The bitmap font knows Latin-1 only, and the scalable one hardly more.
    return " ".join(text.split()).encode("latin-1", "replace").decode("latin-1")
