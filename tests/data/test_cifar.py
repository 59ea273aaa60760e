"""CIFAR in both distributions and every place, and files that were made to do harm."""

from __future__ import annotations

import gzip
import hashlib
import os
import pickle
import struct
import tarfile
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from numpy_vit.data import cifar, cifar_pickles, load
from numpy_vit.errors import DataError

TEN, FINE, COARSE = (
    names.split()
    for names in (
        "airplane automobile bird cat deer dog frog horse ship truck",
        "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly "
        "camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup "
        "dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower "
        "leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid "
        "otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray "
        "road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar "
        "sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle "
        "wardrobe whale willow_tree wolf woman worm",
        "aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices "
        "household_furniture insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes "
        "large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles small_mammals trees "
        "vehicles_1 vehicles_2",
    )
)


# The checksums of the published meta files, as torchvision has them.
META = ("5ff9c542aee3614f3951f8cda6e48888", "7973b15100ade9c7d40fb424638fde48")


class Python2:
    """Pickles as Python 2's cPickle writes them in protocol 2: objects other than numbers are counted into the memo."""

    def __init__(self):
        self.count = 0

    @classmethod
    def dump(cls, value):
        return b"\x80\x02" + cls().value(value) + b"."

    def value(self, value):
        match value:
            case dict():
                parts = [part for pair in value.items() for part in pair]
                return b"}" + self.put() + b"(" + b"".join(map(self.value, parts)) + b"u"
            case list():
                return b"]" + self.put() + b"(" + b"".join(map(self.value, value)) + b"e"
            case str():
                return self.text(value.encode("latin1"))
            case np.ndarray():
                return self.array(value)
        return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)

    def put(self):
        self.count += 1
        return b"q" + bytes([self.count]) if self.count < 256 else b"r" + struct.pack("<I", self.count)

    def text(self, data):
        short = len(data) < 256
        return (b"U" + bytes([len(data)]) if short else b"T" + struct.pack("<i", len(data))) + data + self.put()

    def array(self, array):
        """numpy.core.multiarray._reconstruct(ndarray, (0,), "b"), then its state."""
        begin = b"cnumpy.core.multiarray\n_reconstruct\n" + self.put() + b"cnumpy\nndarray\n" + self.put()
        begin += b"K\x00\x85" + self.text(b"b") + b"\x87R" + self.put()
        shape = b"".join(map(self.value, array.shape)) + b"\x86"
        dtype = b"cnumpy\ndtype\n" + self.put() + self.text(b"u1") + b"K\x00K\x01\x87R" + self.put()
        dtype += b"(K\x03" + self.text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        return begin + b"(K\x01" + shape + dtype + b"\x89" + self.text(array.tobytes()) + b"tb"


def as_bytes(value):
    """The dict as pickle.load(file, encoding="bytes") gives it: every text is bytes."""
    if isinstance(value, dict):
        return {key.encode(): as_bytes(item) for key, item in value.items()}
    if isinstance(value, list):
        return [item.encode() if isinstance(item, str) else item for item in value]
    return value


WRITERS = {
    "Python 2": Python2.dump,
    **{f"Python 3, {n}": lambda value, n=n: pickle.dumps(value, n) for n in (2, 3, 4, 5)},
    **{f"Python 3, bytes, {n}": lambda value, n=n: pickle.dumps(as_bytes(value), n) for n in (2, 3, 4, 5)},
}
RELEASES = {
    "cifar10": SimpleNamespace(
        load=cifar.load_cifar10,
        names=TEN,
        python="cifar-10-batches-py",
        binary="cifar-10-batches-bin",
        batches={**{f"data_batch_{n}": n for n in range(1, 6)}, "test_batch": 3},
        label_keys=["labels"],
        meta={"num_cases_per_batch": 10000, "label_names": TEN, "num_vis": 3072},
        metas=("batches.meta", "batches.meta.txt"),
    ),
    "cifar100": SimpleNamespace(
        load=cifar.load_cifar100,
        names=FINE,
        python="cifar-100-python",
        binary="cifar-100-binary",
        batches={"train": 7, "test": 4},
        label_keys=["coarse_labels", "fine_labels"],
        meta={"fine_label_names": FINE, "coarse_label_names": COARSE},
        metas=("meta", "fine_label_names.txt"),
    ),
}


def rows(release):
    """Random rows (n, 3072) and the columns of labels of each batch."""
    rng = np.random.default_rng(0)
    return {
        name: (
            rng.integers(0, 256, (n, 3072), np.uint8),
            [rng.integers(0, 20 if key == "coarse_labels" else len(release.names), n) for key in release.label_keys],
        )
        for name, n in release.batches.items()
    }


def write_python(parent, release, dump=Python2.dump):
    folder = parent / release.python
    folder.mkdir()
    for name, (pixels, labels) in rows(release).items():
        columns = {key: column.tolist() for key, column in zip(release.label_keys, labels, strict=True)}
        names = [f"{name}_{n}.png" for n in range(len(pixels))]
        (folder / name).write_bytes(dump({"batch_label": name, **columns, "data": pixels, "filenames": names}))
    (folder / release.metas[0]).write_bytes(dump(release.meta))
    return folder


def write_binary(parent, release):
    folder = parent / release.binary
    folder.mkdir()
    for name, (pixels, labels) in rows(release).items():
        table = np.concatenate([*(column[:, None].astype(np.uint8) for column in labels), pixels], axis=1)
        (folder / f"{name}.bin").write_bytes(table.tobytes())
    (folder / release.metas[1]).write_text("\n".join(release.names) + "\n\n")
    return folder


def pack(folder, path, mode="w:gz", members=None):
    with tarfile.open(path, mode) as archive:
        archive.add(folder, folder.name, recursive=False)
        for file in members or sorted(folder.iterdir(), reverse=True):
            archive.add(file, f"{folder.name}/{file.name}")
    return path


def check(split, release):
    """The rows in the release's order, red, green and blue planes of 32x32, with the last column of labels."""
    expected = rows(release)
    *train, test = expected
    for part, names in ((split.train, train), (split.test, [test])):
        pixels = np.concatenate([expected[name][0] for name in names])
        assert part.images.shape == (len(pixels), 3, 32, 32)
        for channel in range(3):
            for row in (0, 31):
                start = channel * 1024 + row * 32
                np.testing.assert_array_equal(part.images[:, channel, row], pixels[:, start : start + 32])
        np.testing.assert_array_equal(part.images.reshape(len(pixels), -1), pixels)
        np.testing.assert_array_equal(part.labels, np.concatenate([expected[name][1][-1] for name in names]))
        assert part.labels.dtype == np.int64
        assert part.class_names == tuple(release.names)


@pytest.mark.parametrize("name", RELEASES)
def test_the_metas_of_these_tests_are_the_published_ones(name):
    data = Python2.dump(RELEASES[name].meta)
    assert hashlib.md5(data, usedforsecurity=False).hexdigest() in META


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", RELEASES)
def test_pickles_of_every_python(tmp_path, name, writer):
    release = RELEASES[name]
    check(release.load(write_python(tmp_path, release, WRITERS[writer])), release)


@pytest.mark.parametrize("kind", ["python", "binary"])
@pytest.mark.parametrize("name", RELEASES)
def test_every_place(tmp_path, name, kind):
    release = RELEASES[name]
    folder = (write_python if kind == "python" else write_binary)(tmp_path, release)
    check(release.load(folder), release)
    check(release.load(tmp_path), release)
    check(load(f"{name}:{folder}"), release)
    there = tmp_path / "archive"
    there.mkdir()
    archive = pack(folder, there / f"cifar-{name[5:]}-{kind}.tar.gz")
    check(release.load(archive), release)
    check(release.load(there), release)
    check(release.load(str(pack(folder, tmp_path / "unpacked by a browser.tar.gz", "w"))), release)
    assert {path.name for path in there.iterdir()} == {archive.name}  # nothing was extracted


@pytest.mark.parametrize("name", RELEASES)
def test_the_default_is_where_fetch_puts_it(tmp_path, monkeypatch, name):
    monkeypatch.setenv("NUMPY_VIT_DATA", str(tmp_path))
    (tmp_path / name).mkdir()
    write_binary(tmp_path / name, RELEASES[name])
    check(RELEASES[name].load(), RELEASES[name])


@pytest.mark.framework
@pytest.mark.parametrize("name", RELEASES)
def test_torchvision_reads_the_same(tmp_path, monkeypatch, name):
    datasets = pytest.importorskip("torchvision.datasets")
    write_python(tmp_path, RELEASES[name])
    split = RELEASES[name].load(tmp_path)
    theirs = {"cifar10": datasets.CIFAR10, "cifar100": datasets.CIFAR100}[name]
    monkeypatch.setattr(theirs, "_check_integrity", lambda self: True)  # of the batches; the meta file is checked
    for part, train in ((split.train, True), (split.test, False)):
        found = theirs(tmp_path, train=train)
        np.testing.assert_array_equal(part.images, found.data.transpose(0, 3, 1, 2))
        assert part.labels.tolist() == found.targets
        assert list(part.class_names) == found.classes


def message(release, place):
    """The error's text; nothing may take more than 100 MB on the way to it."""
    tracemalloc.start()
    with pytest.raises(DataError) as caught:
        release.load(place)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6
    text = str(caught.value)
    assert text.isprintable()
    return text


TEN_RELEASE = RELEASES["cifar10"]


def test_what_is_missing_is_named_with_the_remedy(tmp_path):
    text = message(TEN_RELEASE, tmp_path / "nowhere")
    assert "nowhere has none of cifar-10-python.tar.gz, cifar-10-batches-py, cifar-10-binary.tar.gz" in text
    assert "numpy-vit data fetch cifar10" in text
    assert "cifar10:FOLDER" in text
    for write, names in ((write_python, ("data_batch_3", "batches.meta")), (write_binary, ("test_batch.bin",))):
        folder = write(tmp_path, TEN_RELEASE)
        for name in names:
            content = (folder / name).read_bytes()
            (folder / name).unlink()
            for place in (folder, pack(folder, tmp_path / "a.tar.gz")):
                assert f"{place} lacks {name} of {folder.name}; get it again" in message(TEN_RELEASE, place)
            (folder / name).write_bytes(content)
    assert "has none of cifar-100-python.tar.gz" in message(RELEASES["cifar100"], tmp_path)
    assert "has no files of cifar100" in message(RELEASES["cifar100"], tmp_path / "a.tar.gz")


@pytest.mark.parametrize("label", [10, 255])
def test_a_label_that_names_no_class(tmp_path, label):
    folder = write_binary(tmp_path, TEN_RELEASE)
    content = bytearray((folder / "data_batch_2.bin").read_bytes())
    content[3073] = label
    (folder / "data_batch_2.bin").write_bytes(content)
    assert f"data_batch_2.bin has the label {label}; cifar10 has 0 to 9" in message(TEN_RELEASE, folder)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 10], "has the label 10; cifar10 has 0 to 9"),
        ([0, -1], "has the label -1"),
        ([0, 2**200], "has a label that is no such number"),
        ([0, True], "has a label that is no such number"),
        ([0, "one"], "has a label that is no such number"),
        ([0], "has no list of 2 numbers under 'labels'"),
        ((0, 1), "has no list of 2 numbers under 'labels'"),
        (None, "has no list of 2 numbers under 'labels'"),
    ],
)
def test_labels_that_are_none(tmp_path, labels, words):
    folder = write_python(tmp_path, TEN_RELEASE)
    batch = {"data": np.zeros((2, 3072), np.uint8), "labels": labels}
    (folder / "data_batch_2").write_bytes(pickle.dumps(batch, 2))
    assert f"data_batch_2 {words}" in message(TEN_RELEASE, folder)


@pytest.mark.parametrize(
    "names", [TEN[:9], [*TEN, "x"], [*TEN[:9], "\x1b[2J"], [*TEN[:9], 1], [*TEN[:9], "x" * 300], "no"]
)
def test_names_that_are_none(tmp_path, names):
    folder = write_python(tmp_path, TEN_RELEASE)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": names}, 2))
    assert f"{folder / 'batches.meta'} has no" in message(TEN_RELEASE, folder)


def test_truncated_files(tmp_path):
    for write, name in ((write_python, "data_batch_4"), (write_binary, "data_batch_4.bin")):
        folder = write(tmp_path, TEN_RELEASE)
        content = (folder / name).read_bytes()
        for length in (0, 1, 100, len(content) // 3, len(content) - 1):
            (folder / name).write_bytes(content[:length])
            assert f"{folder / name} " in message(TEN_RELEASE, folder)
        (folder / name).write_bytes(content)
        TEN_RELEASE.load(folder)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    for write, names in ((write_python, ("test_batch", "batches.meta")), (write_binary, ("data_batch_1.bin",))):
        folder = write(tmp_path, TEN_RELEASE)
        for name in names:
            content = (folder / name).read_bytes()
            os.truncate(folder / name, 1 << 40)  # a hole
            text = message(TEN_RELEASE, folder)
            assert f"{folder / name} has {1 << 40} bytes, more than the" in text
            (folder / name).write_bytes(content)


def test_damaged_archives(tmp_path):
    whole = pack(write_python(tmp_path, TEN_RELEASE), tmp_path / "whole.tar.gz").read_bytes()
    path = tmp_path / "broken.tar.gz"
    for length in (0, 1, 10, 1000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert str(path) in message(TEN_RELEASE, path)
    wrong_sum = whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:]
    path.write_bytes(wrong_sum)
    assert "is a damaged archive" in message(TEN_RELEASE, path)
    rng = np.random.default_rng(0)
    for _ in range(40):
        content = bytearray(whole)
        content[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        try:
            check(TEN_RELEASE.load(path), TEN_RELEASE)  # a bit of gzip's header that says nothing
        except DataError as error:
            assert str(path) in str(error)


def member(name, content=b"", size=None, kind=tarfile.REGTYPE, **fields):
    info = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
    info.size, info.type = len(content) if size is None else size, kind
    for field, value in fields.items():
        setattr(info, field, value)
    padding = -len(content) % 512
    return info.tobuf(format=tarfile.GNU_FORMAT) + content + b"\0" * padding


def test_archives_that_were_made_to_do_harm(tmp_path):
    path = tmp_path / "a.tar.gz"

    def said(content):
        path.write_bytes(gzip.compress(content, 1))
        return message(TEN_RELEASE, path)

    end = b"\0" * 1024
    assert "has 1099511627776 bytes, more than" in said(member("data_batch_1", size=1 << 40) + end)
    assert "is a damaged archive" in said(member("data_batch_1", size=1 << 20) + end)
    assert "no files of cifar10" in said(member("data_batch_1", kind=tarfile.SYMTYPE, linkname="/etc/passwd") + end)
    assert "no files of cifar10" in said(member("data_batch_1", kind=tarfile.LNKTYPE, linkname="x") + end)
    assert "no files of cifar10" in said(member("data_batch_1", kind=tarfile.FIFOTYPE) + end)
    assert "no files of cifar10" in said(member("../data_batch_1", b"x") + end)
    assert "more than 64 members" in said(member("x") * 1000 + end)
    said(member("pax", b"", size=1 << 40, kind=tarfile.XHDTYPE) + b"\0" * 1_000_000)
    said(member("long", b"x" * 512, size=512, kind=tarfile.GNUTYPE_LONGNAME) * 2000 + end)
    assert not [file for file in tmp_path.iterdir() if file != path]


@pytest.mark.slow
def test_an_archive_that_unpacks_to_any_size(tmp_path):
    path = tmp_path / "a.tar.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(member("of no interest", size=8 << 30))
        for _ in range(500):
            file.write(bytes(1 << 20))
    assert "unpacks to more than CIFAR has" in message(TEN_RELEASE, path)


def test_a_pickle_in_an_archive_runs_nothing(tmp_path):
    folder = write_python(tmp_path, TEN_RELEASE)
    marker = tmp_path / "ran"
    system = b"\x80\x02cos\nsystem\nU" + bytes([len(f"touch {marker}")]) + f"touch {marker}".encode() + b"\x85R."
    (folder / "batches.meta").write_bytes(system)
    for place in (folder, pack(folder, tmp_path / "a.tar.gz")):
        assert "batches.meta" in message(TEN_RELEASE, place)
        assert "wants 'os.system', which no CIFAR file needs" in message(TEN_RELEASE, place)
    assert not marker.exists()
    pickle.loads(system)  # the control: Python's own reader runs it
    assert marker.exists()


def test_reading_does_not_depend_on_the_limit_of_opcodes(tmp_path, monkeypatch):
    folder = write_python(tmp_path, TEN_RELEASE)
    monkeypatch.setattr(cifar_pickles, "MAX_OPCODES", 30)
    assert "has more than 30 opcodes" in message(TEN_RELEASE, folder)
