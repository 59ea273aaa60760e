"""What a health check says about a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

Level: TypeAlias = Literal["wrong", "suspicious", "note"]
LEVELS: tuple[Level, ...] = ("wrong", "suspicious", "note")


@dataclass(frozen=True)
class Finding:
    """One thing that was noticed.

    `level` is "wrong" (no ViT works like this), "suspicious" (some do) or "note" (worth knowing); `tensor` is the name
    in the file, or "" for the file as a whole; `text` says what is the matter and what it usually comes from.
    """

    level: Level
    tensor: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.tensor + ': ' if self.tensor else ''}{self.text}"

    def to_json(self) -> dict[str, str]:
        """Return the fields as a plain dict."""
        return asdict(self)


def collected(findings: list[Finding]) -> list[Finding]:
    """Return the worst first, and what was said of more than three tensors once, with the first name and a count."""
    groups: dict[tuple[Level, str], list[str]] = {}
    for finding in findings:
        groups.setdefault((finding.level, finding.text), []).append(finding.tensor)
    result: list[Finding] = []
    for (level, text), names in groups.items():
        if len(names) <= 3:
            result += [Finding(level, name, text) for name in names]
        else:
            result.append(Finding(level, f"{names[0]} and {len(names) - 1} others", text))
    return sorted(result, key=lambda finding: LEVELS.index(finding.level))
