"""The model card: what a person must know before using a model."""

from __future__ import annotations

import dataclasses
from typing import Any

from ttaps.config import flat
from ttaps.training.config import TrainConfig
from ttaps.training.run_dir import ONLY_WATCHED

ELSEWHERE = ("objective", "data", "seed", "init_from", "model.num_classes")  # in the first lines of the card
CARD = """\
# {{ config.objective }} on {{ info.data }}, seed {{ config.seed }}

ResNet-{{ model.depth }}, {{ model.width }} filters, {{ model.norm }} norm, \
{{ model.num_prototypes }} prototypes, {{ model.num_classes }} classes.
Trained with `ttaps train` on {{ "{:,}".format(images) }} images for {{ "{:g}".format(config.epochs) }} epochs \
({% if info.step < info.steps %}unfinished: step {{ info.step }} of {{ info.steps }}{% else %}finished{% endif %}):
{{ "{:g}".format(info.hours) }} hours on {{ info.hardware }}.
{% if info.init_from %}
It started from the weights of `{{ info.init_from.model }}` ({{ info.init_from.fingerprint }}), \
{{ "{:g}".format(info.init_from.hours) }} hours.
{% endif %}
Clean accuracy: {% if info.validation_accuracy is defined -%}
{{ "{:.2f}".format(100 * info.validation_accuracy) }} % of the validation images{% else %}not measured yet{% endif %}.

Settings that differ from the paper's for JT+ENT:
{% for name, value in changed.items() %}
- `{{ name }}` = `{{ value }}`
{% else %}
- none
{% endfor %}

All settings are in `train.toml`; the same file as `--config` trains this model again.
"""


def model_card(config: TrainConfig, info: dict[str, Any], images: int) -> str:
    """Write the README of a model folder."""
    import jinja2

    paper = flat(dataclasses.asdict(TrainConfig()))
    changed = {
        name: value
        for name, value in flat(dataclasses.asdict(config)).items()
        if value != paper[name] and name not in (*ELSEWHERE, *ONLY_WATCHED)
    }
    template = jinja2.Template(CARD, trim_blocks=True, keep_trailing_newline=True)
    return template.render(config=config, model=config.model, info=info, images=images, changed=changed)
