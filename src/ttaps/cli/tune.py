"""``ttaps tune``."""

from typing import Any

from ttaps.api import load
from ttaps.cli import commands, common
from ttaps.files import make_room
from ttaps.model.registry import folder_of
from ttaps.report.figures.charts import tuning_figure
from ttaps.report.figures.style import check_figure, save_figure
from ttaps.tuning.tune import tune as run


def tune(options: commands.Tune) -> None:
    """Tune, print the result, and draw it if requested."""
    if options.figure:
        check_figure(options.figure)
        make_room(options.figure)
    device = common.use(options.device, options.threads)
    model = load(options.model, backbone=options.backbone or None)
    out = options.out or folder_of(options.model)
    places: dict[str, Any] = {"out": out, "results": options.results, "data_root": options.data_root}
    limits: dict[str, Any] = {"images": options.images, "minutes": options.minutes, "seed": options.seed}
    found = run(model, options.data or None, device=device, **places, **limits)
    common.print_json(found.to_dict()) if options.json else print(found)
    if options.figure:
        save_figure(tuning_figure(found.effects), options.figure)
