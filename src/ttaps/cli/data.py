"""``ttaps data download|build|verify``."""

from dataclasses import asdict

from ttaps.cli import commands, common
from ttaps.data import build, data_root, download, verify
from ttaps.errors import UsageError


def data(options: commands.Download | commands.Build | commands.Verify) -> None:
    """Download or build a data set and print where it is, or verify data sets."""
    root = data_root(options.data_root)
    if isinstance(options, commands.Download):
        print(download.download(options.name, root))
    elif isinstance(options, commands.Build):
        if options.workers is not None and options.workers < 1:
            raise UsageError(f"--workers must be at least 1, not {options.workers}.")
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
