"""The confusion table as HTML has the counts, and of many classes the worst."""

from __future__ import annotations

import numpy as np

from numpy_vit.views.report import confusion
from numpy_vit.views.report.answers import Answers


def answers_of(counts, names):
    """Answers that give these counts."""
    K = len(counts)
    pairs = [(i, j) for i in range(K) for j in range(K) for _ in range(counts[i][j])]
    labels, predicted = np.array(pairs).T
    return Answers("pets test", np.eye(K)[predicted], labels, names)


def test_cells_are_the_counts(read):
    page = read(confusion.section(answers_of([[9, 1], [0, 4]], ("cat", "<dog>"))))
    rows = [[cell.words for cell in row.children] for row in page.named("tr")]
    assert rows == [
        ["true class", "cat", "<dog>", "correct"],
        ["cat", "9", "1", "90.0 %"],
        ["<dog>", "·", "4", "100 %"],
    ]
    kinds = [cell.attributes["class"] for cell in page.named("tr")[1].children[1:3]]
    assert kinds == ["number right s9", "number taken s1"]
    assert "13 of 14 images recognised, 92.9 %" in page.root.text()


def test_of_many_classes_the_worst_are_listed(read):
    counts = np.diag(np.full(25, 10))
    counts[3, 7], counts[4, 9], counts[4, 4] = 5, 2, 0
    counts[24] = 0
    page = read(confusion.section(answers_of(counts.tolist(), tuple(f"class {i}" for i in range(25)))))
    pairs, worst = page.named("table")
    cells = [[cell.words for cell in row.children] for row in pairs.children[2].children]
    assert cells == [["class 3", "class 7", "5", "33.3 %"], ["class 4", "class 9", "2", "100 %"]]
    assert [cell.words for cell in worst.children[2].children[0].children] == ["class 4", "2", "0 %"]
    assert "class 24" not in worst.text(), "a class without images is not recognised badly"
