"""Tables line up, and their cells read back are what went in."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.views.table import confusion, most_confused, printable, table

CIFAR = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def test_a_table_by_hand():
    text = table([["tiny", "192", "5.7"], ["a long name", "1024", "-"]], ["model", "D", "millions"])
    assert text.split("\n") == [
        "model           D  millions",
        "-----------  ----  --------",
        "tiny          192       5.7",
        "a long name  1024         -",
    ]


def test_alignment_can_be_given():
    assert table([["a", "1"]], ["xx", "yy"], "r l") == "xx  yy\n--  --\n a  1"


def test_a_table_without_rows_or_columns():
    assert table([], ["a", "b"]) == "a  b\n-  -"
    assert table([], []) == "\n"


@pytest.mark.parametrize("arguments", [([["a"]], ["x", "y"]), ([], ["x"], "l l"), ([], ["x"], "c")])
def test_a_misfit_is_refused(arguments):
    with pytest.raises(ValueError, match=r"columns|align"):
        table(*arguments)


def test_words_give_way_and_numbers_do_not():
    rows = [["blocks.0.attn.qkv.weight", "(576, 192)", "110592"], ["norm.bias", "(192,)", "192"]]
    text = table(rows, ["name", "shape", "parameters"], width=36)
    assert max(map(len, text.split("\n"))) <= 36
    assert "blocks.0" in text and "..." in text and "110592" in text
    narrow = table(rows, ["name", "shape", "parameters"], width=1)
    assert "110592" in narrow and "parameters" in narrow


@given(st.lists(st.lists(st.text(max_size=12), min_size=3, max_size=3), max_size=5))
def test_any_text_gives_ascii_lines_that_line_up(rows):
    lines = table(rows, ["one", "two", "three"]).split("\n")
    assert len(lines) == len(rows) + 2
    assert all(line.isascii() and line.isprintable() and line == line.rstrip() for line in lines)
    assert max(map(len, lines)) == len(lines[1])


def test_names_cannot_drive_the_terminal():
    assert printable("a\x1b[31m\nß") == "a\\x1b[31m\\n\\xdf"


def cells(text, k):
    """Read the counts of a confusion table back."""
    rows = [line.split()[-k - 1 : -1] for line in text.split("\n")[2 : 2 + k]]
    return np.array([[0 if cell == "." else int(cell) for cell in row] for row in rows])


@settings(max_examples=150)
@given(st.integers(1, 20), st.sampled_from([1, 9, 500]), st.integers(0, 2**32 - 1), st.sampled_from(["", "class no. "]))
def test_the_cells_are_the_counts(k, largest, seed, prefix):
    counts = np.random.default_rng(seed).integers(0, largest + 1, (k, k))
    text = confusion(counts, [f"{prefix}{i}" for i in range(k)])
    np.testing.assert_array_equal(cells(text, k), counts)
    assert all(len(line) <= 100 and line == line.rstrip() for line in text.split("\n"))


def test_cifar_fits_and_reads_well():
    counts = np.eye(10, dtype=int) * 900
    counts[3, 5] = 100
    lines = confusion(counts, CIFAR).split("\n")
    assert lines[1].split() == ["true", "airpla", "automo", *CIFAR[2:], "correct"]
    assert lines[5].split() == ["cat", ".", ".", ".", "900", ".", "100", ".", ".", ".", ".", "90.0%"]
    assert lines[-1] == "correct: 9000 of 9100 (98.9%)"
    assert max(map(len, lines)) <= 100
    ends = {line.index(word) + len(word) for line, word in ((lines[1], "cat"), (lines[5], "900"))}
    assert len(ends) == 1  # the count stands below the head


def test_rows_are_true_classes():
    lines = confusion([[3, 1], [0, 4]], ["cat", "dog"]).split("\n")
    assert lines == [
        "rows: true class; columns: predicted class",
        "true  cat  dog  correct",
        "cat     3    1    75.0%",
        "dog     .    4   100.0%",
        "correct: 7 of 8 (87.5%)",
    ]


def test_names_that_cut_to_the_same_become_numbers():
    names = [f"class number {i}" for i in range(10)]
    lines = confusion(np.ones((10, 10), int), names).split("\n")
    assert lines[1].split() == ["true", *map(str, range(10)), "correct"]
    assert lines[4].startswith("2 class number 2")


def test_twenty_classes_of_three_digits_still_fit():
    counts = np.full((20, 20), 500)
    text = confusion(counts, [f"class number {i}" for i in range(20)])
    np.testing.assert_array_equal(cells(text, 20), counts)
    assert max(map(len, text.split("\n"))) <= 100
    assert text.split("\n")[21].startswith("19 class...")


def test_shares_are_not_rounded_to_all_or_none():
    lines = confusion([[9999, 1], [99999, 1]], ["a", "b"]).split("\n")
    assert lines[2].endswith("99.9%") and lines[3].endswith("0.1%")
    assert confusion([[0, 0], [0, 5]], ["a", "b"]).split("\n")[2].endswith("-")


def test_the_most_confused_pairs_come_first():
    counts = np.diag(np.full(30, 10))
    counts[4, 7], counts[7, 4], counts[29, 0] = 5, 2, 6
    names = [f"c{i}" for i in range(30)]
    lines = most_confused(counts, names, most=2).split("\n")
    assert [line.split() for line in lines[2:4]] == [["c29", "c0", "6", "37.5%"], ["c4", "c7", "5", "33.3%"]]
    assert lines[4] == "correct: 300 of 313 (95.8%)"
    assert confusion(counts, names) == most_confused(counts, names)


def test_too_wide_a_table_becomes_pairs():
    counts = np.full((20, 20), 10**6)
    assert confusion(counts, list(map(str, range(20)))) == most_confused(counts, list(map(str, range(20))))


def test_without_confusions_only_the_summary_is_left():
    assert most_confused(np.eye(3, dtype=np.uint8), ["a", "b", "c"]) == "correct: 3 of 3 (100.0%)"
    assert most_confused(np.zeros((2, 2), int), ["a", "b"]) == "correct: 0 of 0"


def test_unsigned_counts_do_not_wrap():
    text = most_confused(np.array([[0, 200], [100, 0]], np.uint8), ["a", "b"])
    assert [line.split()[2] for line in text.split("\n")[2:4]] == ["200", "100"]


@pytest.mark.parametrize(
    ("counts", "names"),
    [([[1, 2]], "a"), ([1, 2], "ab"), ([[0.5]], "a"), ([[-1]], "a"), ([[1]], "ab"), ([[True]], "a")],
)
def test_what_is_no_confusion_table_is_refused(counts, names):
    for function in (confusion, most_confused):
        with pytest.raises(ValueError, match=r"counts|classes"):
            function(counts, names)
