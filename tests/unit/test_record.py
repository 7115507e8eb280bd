"""Records of a cluster: private files, whole whatever writes them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainyard.backends.shared.record import made_from, made_with, write_made_from, write_private


def test_threads_that_write_one_file_at_once_leave_one_whole_private_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.hosts"
    texts = [str(number) * 50_000 for number in range(8)]

    def write_often(text: str) -> None:
        for _ in range(20):
            write_private(path, text)

    with ThreadPoolExecutor(len(texts)) as threads:
        list(threads.map(write_often, texts))

    assert path.read_text() in texts
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_cluster_s_file_and_flags_are_known_again(tmp_path: Path) -> None:
    assert (made_from(tmp_path), made_with(tmp_path)) == (None, None)
    write_made_from(tmp_path, Path("/lab/lab.yaml"), ("env.A=1\n2",))
    assert (made_from(tmp_path), made_with(tmp_path)) == (Path("/lab/lab.yaml"), ("env.A=1\n2",))
