"""Methods for a panel: their settings as JSON schema, made of the dataclasses that the command line's help is made of."""

import dataclasses
import inspect
import sys
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ttaps.adaptation import METHODS, Method, missing_requirement
from ttaps.adaptation.method import LEAST_VALUES, PROBABILITIES
from ttaps.adaptation.spec import known_presets, parse_method
from ttaps.config import field_docs, flat
from ttaps.errors import UsageError
from ttaps.model.checkpoint import Model

DEFAULTS = ("ttaps:tuned", "augment:tuned", "source")
# The page is there to show steps: it takes several and adapts to images too that the model is sure of.
PAGE_SETTINGS = {"ttaps:tuned": {"steps": 6, "confidence_threshold": 1.0}}
# Bounds of one request's time and memory; ttaps adapt has none.
MOST = {"steps": 100, "num_pairs": 64, "num_views": 128, "view_pool": 2560, "width": 16, "depth": 16, "pad": 64}
MOST |= {"padding": 64, "batch_size": 1024, "patience": 100, "max_iterations": 1000, "fisher_images": 2000}
MOST |= {"num_supports": 10_000, "num_neighbors": 1000}
MOST_VIEWS = 2560  # of one image, over all steps: some 200 MB of features
LARGEST = 1e30  # torch refuses step sizes that float32 does not have
TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}


def choose(spec: str, presets: dict[str, Any] | None = None) -> Method:
    """Return the method of a spec, with the model's presets; refuse settings that would take too long or too much memory for a service."""
    try:
        method = parse_method(spec, presets=presets)
    except (OverflowError, RecursionError):
        raise UsageError(f"Method {spec}: a number is too large, or there are too many brackets.") from None
    settings = flat(dataclasses.asdict(method))
    bounds = [(name, value, MOST.get(name.split(".")[-1])) for name, value in settings.items()]
    if "num_pairs" in settings:
        views = settings.get("view_pool") or method.steps * 2 * settings["num_pairs"]
        bounds.append(("steps x 2 x num_pairs", views, MOST_VIEWS))
    for name, value, most in bounds:
        if isinstance(value, float) and not abs(value) <= LARGEST:
            raise UsageError(f"{name} must be a number up to {LARGEST:g}, not {value}.")
        if most is not None and value > most:
            raise UsageError(
                f"{name} may be at most {most} in this service, not {value}.\nttaps adapt has no such limit."
            )
    return method


def default_method(model: Model) -> str:
    """Return the first of the usual methods that a model supports."""
    return next(
        spec for spec in DEFAULTS if not missing_requirement(parse_method(spec), model.network, model.objective)
    )


def describe_methods(model: Model) -> list[dict[str, Any]]:
    """Return all methods; of those that the model does not support, what is missing."""
    found = []
    for name, kind in METHODS.items():
        missing = missing_requirement(kind(), model.network, model.objective)
        facts = {"name": name, "paper": kind.paper, "adapts": kind.adapts, "supported": missing is None}
        facts["summary"] = str(sys.modules[kind.__module__].__doc__).partition("\n")[0]
        presets = {preset: flat(values) for preset, values in known_presets(name, model.presets).items()}
        facts |= {"reason": missing and f"needs {missing}", "presets": list(presets), "preset_settings": presets}
        found.append({**facts, "default": default_method(model).startswith(name), "schema": settings_schema(kind())})
    return found


def settings_schema(settings: Any) -> dict[str, Any]:
    """Return the JSON schema of a dataclass, with the values of this one as defaults."""
    kind = type(settings)
    hints, texts, properties = get_type_hints(kind), field_docs(kind), {}
    for field in dataclasses.fields(kind):
        about = {"title": field.name, "description": texts.get(field.name, "")}
        properties[field.name] = about | _schema(field.name, hints[field.name], getattr(settings, field.name))
    return {"title": kind.__name__, "description": inspect.getdoc(kind), "type": "object", "properties": properties}


def _schema(name: str, hint: Any, value: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(value):
        return {"type": "object", "properties": settings_schema(value)["properties"]}
    if get_origin(hint) is Literal:
        return {"type": "string", "enum": list(get_args(hint)), "default": value}
    if get_origin(hint) is tuple:
        bounds = {"minItems": len(value), "maxItems": len(value)}
        return {"type": "array", "items": {"type": TYPES[get_args(hint)[0]]}, **bounds, "default": list(value)}
    found = {"type": TYPES[hint], "default": value}
    if name.endswith("_p") or name in PROBABILITIES:
        return {**found, "minimum": 0, "maximum": 1}
    limits = {"minimum": LEAST_VALUES.get(name), "maximum": MOST.get(name)}
    return found | {bound: limit for bound, limit in limits.items() if limit is not None}
