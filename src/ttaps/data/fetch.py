"""Downloads that go on where they stopped, and are not believed before their md5 is right."""

from __future__ import annotations

import errno
import http.client
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ttaps.data.checksums import CHUNK, file_md5
from ttaps.errors import DataError
from ttaps.progress import bar

TIMEOUT = 10.0  # seconds without an answer or a byte
MB = 1_000_000


def fetch(url: str, part: Path, md5: str) -> None:
    """Download ``url`` into the file ``part``, adding to what is already there; return only if its md5 is right.

    A broken connection leaves the file for the next try; a whole file with a wrong md5 is removed.
    """
    if part.is_file() and file_md5(part) == md5:
        return
    try:
        _download(url, part)
    except HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # longer than the file it should become a part of
        raise DataError(f"Cannot download {url}: the server says {error.code} {error.reason}.") from error
    except (OSError, http.client.HTTPException) as error:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            raise  # no other source would fit either
        raise DataError(f"Cannot download {url}: {getattr(error, 'reason', None) or error}.") from error
    found = file_md5(part)
    if found != md5:
        part.unlink()
        raise DataError(f"{url} came damaged: its md5 is {found}, expected {md5}.")


def _download(url: str, part: Path) -> None:
    """Ask for the bytes that are still missing and append them; begin again if the server can only send everything."""
    have = part.stat().st_size if part.is_file() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urlopen(request, timeout=TIMEOUT) as response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0
        total = have + int(response.headers.get("Content-Length", 0))
        with part.open("ab" if have else "wb") as file, bar() as progress:
            task = progress.add_task(f"Downloading {url.rpartition('/')[2]}", total=total // MB or None, note="MB")
            while chunk := response.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress.update(task, completed=have // MB)
    if have < total:
        raise ConnectionError(f"the connection broke after {have // MB} of {total // MB} MB; run again to go on")
