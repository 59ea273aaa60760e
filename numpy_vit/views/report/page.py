"""The whole page: its sections, put into the template with the style sheet and the script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from string import Template
from typing import Any

from numpy_vit.models import deit
from numpy_vit.models.vit_config import Config
from numpy_vit.tree import Params
from numpy_vit.views.report import charts, confusion, explorer, learned, shape_rows
from numpy_vit.views.report.answers import Answers, Sample, samples
from numpy_vit.views.report.markup import escape, json_script, note, paragraph, tag

_TITLES = {
    "explorer": "Where it looks",
    "curves": "How it learned",
    "confusion": "What it confuses",
    "samples": "Samples",
    "shapes": "From image to logits",
    "positions": "Positions",
    "filters": "Patch filters",
}
_INTROS = {
    "explorer": "A token is a patch, or one of the few in front of them. In every block and head, each token shares "
    "100 % of its attention among all tokens: yellow is where most of it goes. The gradient says what the answer's "
    "logit would gain (vermilion) or lose (blue) if a weight were larger; as a token's weights always add up to "
    "100 %, only the differences within one map matter. Blocks, heads, rows and columns count from 0, as in the code.",
    "curves": "Training images are measured while the model learns from them, changed by augmentation; test images "
    "it never learns from. Where the test curve stays behind while the training curve goes on, it learns by heart.",
    "confusion": "What the test images of each class were taken for. Blue cells are right, vermilion ones are "
    "mistakes; the fuller the colour, the larger the share of the class.",
    "samples": "Test images, what the model says, and how sure it is. The second line of a mistake is the truth.",
    "shapes": "Every tensor that one image passes through. The names are those of timm's modules.",
    "positions": "Each tile is a patch and stands where the patch lies; it shows how alike its position is to that of "
    "every other patch (the cosine).",
    "filters": "The directions in which the filters of the patch projection differ most, the most important first.",
}


@dataclass(frozen=True)
class Contents:
    """What the page is made from.

    Parameters
    ----------
    title : the name of the run or the file
    facts : pairs of a word and what it is, for the top
    rows : one an epoch, as in metrics.jsonl
    answers : of the test part
    right, wrong : the samples to show
    explored : what `explorer.explore` returned, of so many `offered` images
    missing : for a section without content, what it lacks and how to get it; where there is content, a remark on it
    """

    title: str
    config: Config
    params: Params
    facts: Sequence[tuple[str, str]] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    answers: Answers | None = None
    right: Sequence[Sample] = ()
    wrong: Sequence[Sample] = ()
    explored: Sequence[tuple[explorer.Explored, dict[str, Any]]] = ()
    offered: int = 0
    missing: Mapping[str, str] = field(default_factory=dict)


def page(contents: Contents) -> bytes:
    """Return the page as one file of HTML in UTF-8; the same contents give the same bytes.

    Scripts and styles are allowed by their checksums: nothing that a file's names could smuggle in would run.
    """
    bodies = _bodies(contents)
    style, script = _file("page.css"), "".join(map(_file, ("maps.js", "overview.js", "page.js")))
    listed = "".join(tag("li", tag("a", escape(_TITLES[name]), href=f"#{name}")) for name in bodies)
    facts = "".join(tag("dt", escape(word)) + tag("dd", escape(value)) for word, value in contents.facts)
    entries = [entry for _, entry in contents.explored]
    data = json_script("explorer-data", explorer.script_data(contents.config, entries)) if entries else ""
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_checksum(style)}'; script-src '{_checksum(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    text = Template(_file("page.html")).substitute(
        policy=policy,
        title=escape(contents.title),
        style=style,
        facts=tag("dl", facts),
        contents=tag("ul", listed),
        sections="\n".join(_section(name, body, contents.missing.get(name)) for name, body in bodies.items()),
        data=data,
        script=script,
    )
    return text.encode("utf-8", "replace")  # a file name may hold bytes that are no text


def _bodies(contents: Contents) -> dict[str, str]:
    """Each section's content by its name; "" where there is none."""
    answers = contents.answers
    return {
        "explorer": _explorer(contents) if contents.explored else "",
        "curves": charts.curves(contents.rows) if contents.rows else "",
        "confusion": confusion.section(answers) if answers else "",
        "samples": samples(answers, contents.right, contents.wrong) if answers else "",
        "shapes": shape_rows.section(contents.config),
        "positions": learned.positions(contents.params, contents.config),
        "filters": learned.filters(contents.params),
    }


def _section(name: str, body: str, remark: str | None) -> str:
    heading = tag("h2", escape(_TITLES[name]), id=f"{name}-title")
    parts = [heading]
    if body:
        parts.append(paragraph(_INTROS[name], class_="intro"))
    if remark:
        parts.append(note(remark))
    return tag("section", "\n".join([*parts, body]), id=name, aria_labelledby=f"{name}-title")


def _explorer(contents: Contents) -> str:
    shown, offered, config = len(contents.explored), contents.offered, contents.config
    remarks = []
    if shown < offered:
        first = f"first {shown}" if shown > 1 else "first"
        remarks.append(
            f"The page has the {first} of {offered} images: the maps of more would make the file too large. "
            "Others come first with --images IMAGE."
        )
    if explorer.heads_shown(config) != config.num_heads:
        remarks.append(f"The {config.num_heads} heads are averaged: each by itself would make the file too large.")
    if isinstance(config, deit.Config):
        remarks.append("The model has two classifiers: its logit is the mean of theirs.")
    return "".join(map(note, remarks)) + _file("explorer.html")


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _checksum(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
