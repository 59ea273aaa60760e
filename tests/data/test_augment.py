"""A batch's augmentation equals the samples' own, one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numpy_vit.data import augment
from numpy_vit.data.affine import random_affine
from numpy_vit.data.augment import Augmentation
from numpy_vit.data.colour_jitter import ColourJitter
from numpy_vit.data.pillow_augment import FILTERS, through_pillow
from numpy_vit.data.rand_augment import RandAugment
from numpy_vit.data.randomness import sample_rng
from numpy_vit.data.resized_crop import ResizedCrop
from numpy_vit.data.three_augment import ThreeAugment
from numpy_vit.data.transforms import horizontal_flip, random_crop


def pictures(n=23, channels=3, height=6, width=5):
    return np.random.default_rng(1).integers(0, 256, (n, channels, height, width), np.uint8)


@settings(max_examples=40)
@given(
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from(["constant", "reflect"]),
    st.sampled_from([0, 0.5, 2]),
    st.integers(0, 9),
)
def test_a_batch_equals_its_samples(padding, flip, mode, affine, seed):
    images, indices = pictures(), np.random.default_rng(seed).permutation(1000)[:23]
    repeat = seed % 3
    result = Augmentation(padding, flip, mode, affine).apply(images, seed, 4, indices, repeat)
    np.testing.assert_array_equal(images, pictures())
    assert result.dtype == np.uint8
    for image, index, augmented in zip(images, indices, result, strict=True):
        rng = sample_rng(seed, 4, int(index), repeat)
        expected = random_crop(image, padding, rng, mode) if padding else image
        expected = horizontal_flip(expected, rng) if flip else expected
        expected = random_affine(expected, affine, rng) if affine else expected
        np.testing.assert_array_equal(augmented, expected)


def test_batch_size_and_order_do_not_matter(monkeypatch):
    images, indices, both = pictures(), np.arange(100, 123), Augmentation(2, True)
    whole = both.apply(images, 7, 1, indices)
    for size in (1, 4, 10):
        parts = [both.apply(images[i : i + size], 7, 1, indices[i : i + size]) for i in range(0, 23, size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    shuffled = np.random.default_rng(0).permutation(23)
    np.testing.assert_array_equal(both.apply(images[shuffled], 7, 1, indices[shuffled]), whole[shuffled])
    monkeypatch.setattr(augment, "CHUNK", 200)  # two images at once
    np.testing.assert_array_equal(both.apply(images, 7, 1, indices), whole)


def test_seed_epoch_and_repeat_matter():
    images, indices, both = pictures(), np.arange(23), Augmentation(2, True)
    results = [both.apply(images, *arguments) for arguments in [(0, 0, indices), (1, 0, indices), (0, 1, indices)]]
    results.append(both.apply(images, 0, 0, indices, repeat=1))
    assert len({result.tobytes() for result in results}) == 4


def test_nothing_to_do_is_not_done():
    images = pictures()
    assert Augmentation().apply(images, 0, 0, np.arange(23)) is images


def test_wrong_arguments():
    with pytest.raises(ValueError, match="not -2"):
        Augmentation(padding=-2)
    with pytest.raises(ValueError, match="'wrap'"):
        Augmentation(mode="wrap")
    with pytest.raises(ValueError, match=r"\(23, 3, 6, 5\).*\(22,\)"):
        Augmentation(1).apply(pictures(), 0, 0, np.arange(22))
    with pytest.raises(ValueError, match="not -1"):
        Augmentation(1).apply(pictures(), 0, 0, np.arange(-1, 22))
    with pytest.raises(ValueError, match=r"\(6, 5\), not 5"):
        Augmentation(5, mode="reflect").apply(pictures(), 0, 0, np.arange(23))


EVERYTHING = {
    "flip": True,
    "affine": 0.5,
    "crop_scale": (0.3, 1.0),
    "auto_augment": "rand-m9-n2-mstd0.5-inc1",
    "color_jitter": 0.3,
}


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([1, 3]),
    st.sampled_from([{}, {"padding": 1}, {"crop_scale": (0.3, 0.9), "crop_ratio": (0.5, 2.0)}]),
    st.booleans(),
    st.sampled_from([0, 1.0]),
    st.sampled_from([None, "3a", "rand-m9-n2-mstd0.5-inc1", "rand-p1-n3"]),
    st.sampled_from([None, 0.4]),
    st.sampled_from(["random", "bilinear", "bicubic"]),
)
def test_a_batch_through_pillow_equals_its_samples(channels, crop, flip, affine, policy, jitter, interpolation):
    images, indices, repeats = pictures(9, channels, 12, 10), np.arange(40, 49), np.arange(9) % 3
    augmentation = Augmentation(
        flip=flip,
        affine=affine,
        auto_augment=policy,
        color_jitter=jitter,
        mean=(90,),
        interpolation=interpolation,
        **crop,
    )
    result = augmentation.apply(images, 5, 4, indices, repeats)
    np.testing.assert_array_equal(images, pictures(9, channels, 12, 10))
    filters = FILTERS[interpolation]
    for image, index, repeat, augmented in zip(images, indices, repeats, result, strict=True):
        rng = sample_rng(5, 4, int(index), int(repeat))
        # All is drawn before anything is done; no draw depends on pixels.
        expected = image
        if "padding" in crop:
            expected = random_crop(expected, 1, rng)
        if "crop_scale" in crop:
            change = ResizedCrop(crop["crop_scale"], crop["crop_ratio"], filters).draw((12, 10), rng)
            expected = through_pillow(expected[None], [[change]])[0]
        expected = horizontal_flip(expected, rng) if flip else expected
        expected = random_affine(expected, affine, rng) if affine else expected
        changes = []
        if policy == "3a":
            changes += ThreeAugment().draw(rng)
        elif policy:
            changes += RandAugment.parse(policy, (90,) * channels, filters).draw(rng)
        if jitter:
            changes += ColourJitter(jitter, jitter, jitter).draw(rng)
        expected = through_pillow(expected[None], [changes])[0]
        np.testing.assert_array_equal(augmented, expected)


@pytest.mark.parametrize("channels", [1, 3])
def test_with_everything_on_batches_and_order_do_not_matter(channels, monkeypatch):
    images, indices, repeats = pictures(23, channels, 16, 16), np.arange(100, 123), np.arange(23) % 3
    everything = Augmentation(**EVERYTHING)
    whole = everything.apply(images, 7, 1, indices, repeats)
    shuffled = np.random.default_rng(0).permutation(23)
    again = everything.apply(images[shuffled], 7, 1, indices[shuffled], repeats[shuffled])
    np.testing.assert_array_equal(again, whole[shuffled])
    for i in (0, 4, 22):
        np.testing.assert_array_equal(everything.apply(images[i : i + 1], 7, 1, [100 + i], i % 3)[0], whole[i])
    monkeypatch.setattr(augment, "CHUNK", 2000)  # a few images at once
    np.testing.assert_array_equal(everything.apply(images, 7, 1, indices, repeats), whole)
    others = [(8, 1, indices, repeats), (7, 2, indices, repeats), (7, 1, indices + 1, repeats), (7, 1, indices)]
    assert len({everything.apply(images, *other).tobytes() for other in others} | {whole.tobytes()}) == 5


def test_copies_of_a_sample_differ():
    images = np.repeat(pictures(1, 3, 16, 16), 3, axis=0)
    copies = Augmentation(**EVERYTHING).apply(images, 0, 0, [5, 5, 5], [0, 1, 2])
    assert len({copy.tobytes() for copy in copies}) == 3
    same = Augmentation(**EVERYTHING).apply(images, 0, 0, [5, 5, 5])
    assert len({copy.tobytes() for copy in same}) == 1


def test_the_mean_comes_in_from_outside():
    black = np.zeros((200, 3, 8, 8), np.uint8)
    seen = Augmentation(auto_augment="rand-p1-n1-m10", mean=(50, 60, 70)).apply(black, 0, 0, np.arange(200))
    corners = {tuple(image[:, y, x].tolist()) for image in seen for y in (0, -1) for x in (0, -1)}
    assert (50, 60, 70) in corners
    grey = Augmentation(auto_augment="rand-p1-n1-m10", mean=(50,)).apply(black[:, :1], 0, 0, np.arange(200))
    np.testing.assert_array_equal((grey == 50).any((1, 2, 3)), (seen[:, 0] == 50).any((1, 2)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"padding": 4, "crop_scale": (0.5, 1.0)}, "two kinds of crop"),
        ({"crop_scale": (0.0, 1.0)}, "crop_scale"),
        ({"crop_scale": (0.5, 1.0), "crop_ratio": (2.0, 1.0)}, "crop_ratio"),
        ({"auto_augment": "v0"}, "'v0'"),
        ({"auto_augment": "rand-w0"}, "'w0'"),
        ({"color_jitter": -0.1}, r"-0\.1"),
        ({"mean": ()}, r"mean .*\(\)"),
        ({"mean": (0.5, 0.5, 0.5)}, r"mean .*0\.5"),
        ({"mean": (256,)}, "mean .*256"),
        ({"interpolation": "nearest"}, "'nearest'"),
    ],
)
def test_fields_that_cannot_be(fields, words):
    with pytest.raises(ValueError, match=words):
        Augmentation(**fields)


def test_images_that_do_not_fit():
    two = pictures(2, 2)
    for fields in ({"crop_scale": (0.5, 1.0)}, {"auto_augment": "3a"}, {"color_jitter": 0.1}):
        with pytest.raises(ValueError, match="1 or 3 channels, not 2"):
            Augmentation(**fields).apply(two, 0, 0, [0, 1])
    with pytest.raises(ValueError, match=r"\(1, 2, 3\) .* 1 channel"):
        Augmentation(auto_augment="rand", mean=(1, 2, 3)).apply(pictures(2, 1), 0, 0, [0, 1])
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        Augmentation(flip=True).apply(two, 0, 0, [0, 1], [0, 1, 2])
