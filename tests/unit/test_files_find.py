"""Patterns of `find_files`: what fits, and that no pattern takes long."""

import pytest

from chalicelib.engine.run_files import fits

FITS: list[tuple[str, str, str]] = [
    ("/a.txt", "/", "*.txt"),
    ("/deep/er/a.txt", "/", "*.txt"),
    ("/deep/a.txt", "/deep", "a.???"),
    ("/deep/a.txt", "/", "deep/*.txt"),
    ("/deep/a.txt", "/", "/deep/*.txt"),
    ("/deep/er/a.txt", "/", "deep/**/*.txt"),
    ("/deep/a.txt", "/", "deep/**/*.txt"),
    ("/a.txt", "/", "**/a.txt"),
    ("/x/y/z", "/", "**/**/z"),
    ("/x/y/z", "/", "x/**"),
    ("/[a].txt", "/", "[[]a].txt"),
    ("/b.txt", "/", "[!a].txt"),
]
FITS_NOT: list[tuple[str, str, str]] = [
    ("/a.txt", "/", "*.md"),
    ("/A.txt", "/", "a.txt"),
    ("/deep/er/a.txt", "/", "deep/*.txt"),
    ("/deep/a.txt", "/", "er/*.txt"),
    ("/deep/a.txt", "/", "deep"),
    ("/x/y/z", "/", "**/y"),
    ("/x/y/z", "/", "x/y/z/**/w"),
]


@pytest.mark.parametrize(("path", "folder", "pattern"), FITS)
def test_a_path_that_fits(path: str, folder: str, pattern: str) -> None:
    assert fits(path, folder, pattern)


@pytest.mark.parametrize(("path", "folder", "pattern"), FITS_NOT)
def test_a_path_that_does_not_fit(path: str, folder: str, pattern: str) -> None:
    assert not fits(path, folder, pattern)


@pytest.mark.parametrize("pattern", ["*a" * 500, "**/" * 340 + "b", "*?" * 500, "**/*a" * 200, "[" * 1_000])
def test_a_pattern_that_is_made_to_take_long_does_not(pattern: str) -> None:
    """A matcher that tries every way would not come back from these."""
    assert not fits("/" + "a" * 400 + "/" + "a/" * 300 + "c", "/", pattern)
