import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psflow.ps_runtime.data.idx_images import Idx, read_idx
from psflow.ps_runtime.errors import InputError
from psflow.ps_runtime.specs.schema import MATRIX, Scaling

IMAGES = np.arange(12, dtype=np.uint8).reshape(3, 2, 2) * 20


def packed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)  # the names of tests are those of their parameters: the same each time


def idx(array: object, dtype: type = np.uint8) -> bytes:
    values = np.asarray(array, dtype)
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return bytes([0, 0, 8, values.ndim]) + sizes + values.tobytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "images"


@pytest.fixture
def labels_path(tmp_path: Path) -> Path:
    (tmp_path / "labels").write_bytes(idx([7, 0, 9]))
    return tmp_path / "labels"


@pytest.mark.parametrize("pack", [bytes, packed])
def test_images_become_rows_of_pixels_in_0_to_1(path: Path, labels_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path.write_bytes(pack(idx(IMAGES)))
    data = read_idx(path, labels_path)
    pixels = data.features[MATRIX]
    assert (pixels.dtype, data.labels.dtype) == (np.float32, np.int64)
    np.testing.assert_array_equal(pixels, (IMAGES.reshape(3, 4) / 255).astype(np.float32))
    assert data.labels.tolist() == [7, 0, 9]
    assert data.columns == ("pixel_0_0", "pixel_0_1", "pixel_1_0", "pixel_1_1")
    assert data.batch_size == 3


@pytest.mark.parametrize(
    ("scale", "pixels"), [((0, 255), [0, 20, 40, 60]), ((-1, 1), [-1, -0.84313726, -0.6862745, -0.5294118])]
)
def test_pixels_are_scaled_to_a_range(path: Path, scale: tuple[float, float], pixels: list[float]) -> None:
    path.write_bytes(idx(IMAGES))
    data = Idx(path=path, scale=scale).read()
    np.testing.assert_allclose(data.read(0, 0, 1)[0][MATRIX][0], pixels, rtol=1e-6)
    assert data.scaling == Scaling(255, *scale)
    assert data.features[MATRIX].dtype == np.uint8, "replicas hold bytes"


@pytest.mark.parametrize(
    "scale", [(1, 0), (0, 0), (0,), (0, 1, 2), (0, float("inf")), (-3e38, 3e38), (0, 1e-40), (-1e31, 0)]
)
def test_a_range_is_two_numbers_the_lower_one_first(scale: tuple[float, ...]) -> None:
    with pytest.raises(
        InputError, match=r"scale: expected two numbers, the lower one first, such as \[0, 1\], or \[0, 255\]"
    ):
        Idx(path="images", scale=scale)


def test_labels_can_be_left_out_and_vectors_are_images_of_one_row(path: Path) -> None:
    path.write_bytes(idx([[0, 255], [255, 0]]))
    data = read_idx(path)
    assert data.labels is None
    assert data.columns == ("pixel_0", "pixel_1")
    assert data.features[MATRIX].tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is empty"),
        (b"\0\0\x08", r"is not an IDX file: expected it to begin with two bytes 0, got 00 00 08$"),
        (b"PK\3\4" + bytes(20), r"is not an IDX file: expected it to begin with two bytes 0, got 50 4b 03 04$"),
        (b"\0\0\x0d\3" + bytes(20), "byte 2 says type 0x0d: expected 0x08, unsigned bytes"),
        (idx([1, 2]), "byte 3 says 1 dimensions: expected 2 or more"),
        (b"\0\0\x08\3" + bytes(7), "ends in its header: expected 16 bytes, got 11"),
        (idx(np.zeros((3, 0, 2))), r"byte 8 says a size of 0: expected 1 or more in \[3, 0, 2\]"),
        (idx(IMAGES)[:-1], r"claims \[3, 2, 2\], 12 bytes from byte 16 on, but holds 11 bytes"),
        (idx(IMAGES) + b"\0", r"claims \[3, 2, 2\], 12 bytes from byte 16 on, but holds more"),
        (b"\0\0\x08\3" + b"\xff" * 12, r"claims \[4294967295, 4294967295, 4294967295\]: at most 4294967296 bytes"),
        (packed(b"\0\0\x08\2\0\0\xff\xff\0\0\xff\xff"), "4294836225 bytes from byte 12 on, but holds 0 bytes"),
        (packed(idx(IMAGES))[:-9], "the gzip data is damaged: "),
        (packed(idx(IMAGES)[:-1]) + b"garbage", "the gzip data is damaged: "),
        (packed(b""), "is not an IDX file: expected it to begin with two bytes 0, got $"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_the_place(path: Path, content: bytes, fault: str) -> None:
    path.write_bytes(content)
    with pytest.raises(InputError, match=fault) as caught:
        read_idx(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(("labels", "shape"), [([1, 2], r"\[2\]"), ([[1], [2], [3]], r"\[3, 1\]")])
def test_there_must_be_a_label_for_each_image(path: Path, labels_path: Path, labels: object, shape: str) -> None:
    path.write_bytes(idx(IMAGES))
    labels_path.write_bytes(idx(labels))
    fault = rf"^{labels_path}: expected 3 labels, one for each image of {path}, got an array {shape}$"
    with pytest.raises(InputError, match=fault):
        read_idx(path, labels_path)


FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


@pytest.mark.skipif(not FASHION_MNIST.exists(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_fashion_mnist_is_the_published_data_set() -> None:
    data = read_idx(FASHION_MNIST / "t10k-images-idx3-ubyte.gz", FASHION_MNIST / "t10k-labels-idx1-ubyte.gz")
    assert data.features[MATRIX].shape == (10_000, 784)
    assert np.bincount(data.labels).tolist() == [1000] * 10  # as its authors describe it


def test_a_missing_data_set_of_debian_names_its_package() -> None:
    fault = (
        r"^there is no file /usr/share/datasets/no-such-set/images\.gz; "
        r"install Debian's package dataset-no-such-set: apt install dataset-no-such-set$"
    )
    with pytest.raises(InputError, match=fault):
        read_idx("/usr/share/datasets/no-such-set/images.gz", "/usr/share/datasets/no-such-set/labels.gz")


def test_a_missing_file_of_a_data_set_that_is_there_names_no_package(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psflow.ps_runtime.data.idx_images.DEBIAN_DATASETS", path.parent.parent)
    with pytest.raises(InputError, match=rf"^there is no file {path}$"):
        read_idx(path)


def test_another_missing_file_names_no_package(path: Path) -> None:
    with pytest.raises(InputError, match=rf"^there is no file {path}$"):
        read_idx(path)


@given(st.data())
def test_a_damaged_file_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(packed(idx(IMAGES)) if data.draw(st.booleans()) else idx(IMAGES))
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "damaged-images"
    path.write_bytes(content)
    try:
        assert read_idx(path).features[MATRIX].size == IMAGES.size
    except InputError as error:
        assert "damaged-images" in str(error)  # noqa: PT017 - either end is right
