"""``ttaps data download|build|corrupt|verify``."""

from dataclasses import asdict
from pathlib import Path

from ttaps.cli import commands, common
from ttaps.data import CORRUPTIONS, build, corrupted, data_root, download, verify
from ttaps.data.corruptions import SEVERITIES
from ttaps.errors import UsageError


def data(options: commands.Download | commands.Build | commands.Corrupt | commands.Verify) -> None:
    """Download, build or corrupt a data set and print where it is, or verify data sets."""
    if isinstance(options, commands.Build | commands.Corrupt) and options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers must be at least 1, not {options.workers}.")
    if isinstance(options, commands.Corrupt):
        print(corrupt(options))
        return
    root = data_root(options.data_root)
    if isinstance(options, commands.Download):
        print(download.download(options.name, root))
    elif isinstance(options, commands.Build):
        chosen = common.listed(options.corruptions) or None
        print(build.build(options.name, root, options.seed, chosen, options.workers))
    else:
        rows = verify.verify(root, options.names)
        if options.json:
            common.print_json([asdict(row) for row in rows])
        else:
            for row in rows:
                remedy = f"  ->  {row.remedy}" if row.remedy else ""
                print(f"{row.name:<11} {row.file:<22} {row.state:<11} {row.detail}{remedy}")
        right = [row.ok for row in rows if not row.file]
        if any(row.state == "damaged" for row in rows) or not (all(right) if options.names else any(right)):
            raise SystemExit(1)


def corrupt(options: commands.Corrupt) -> Path:
    """Write a folder of images under corruptions."""
    names, levels = common.listed(options.corruptions), common.severities(options.severity)
    chosen = CORRUPTIONS if names in ([], ["all"]) else names
    numbers = SEVERITIES if levels == "all" or not levels else levels
    size, seed, workers = options.size, options.seed, options.workers
    return corrupted.corrupt_folder(options.folder, options.out, chosen, numbers, size=size, seed=seed, workers=workers)
