"""Every method by name, without torch: ``ttaps info`` says which of them a model supports before torch is imported."""

from typing import NamedTuple


class MethodEntry(NamedTuple):
    """Where a method's class is, and what it needs of our own network; its ``missing_requirement`` says so for any network."""

    place: str  # module in ttaps.adaptation, and class
    part: str = ""  # a head, or "batch" for BatchNorm; empty: nothing that not all have
    trained_by: tuple[str, ...] = ()  # training objectives that it works with; empty: all


METHOD_TABLE = {
    "source": MethodEntry("source:Source"),
    "augment": MethodEntry("augment:Augment"),
    "bn": MethodEntry("bn:Bn", part="batch"),
    "t3a": MethodEntry("t3a:T3a"),
    "lame": MethodEntry("lame:Lame"),
    "tent": MethodEntry("tent:Tent"),
    "eata": MethodEntry("eata:Eata"),
    "sar": MethodEntry("sar:Sar"),
    "cotta": MethodEntry("cotta:Cotta"),
    "memo": MethodEntry("memo:Memo"),
    "ttt": MethodEntry("ttt:Ttt", part="rotation", trained_by=("ttt",)),
    "mt3": MethodEntry("mt3:Mt3", part="predictor", trained_by=("mt3",)),
    "ttaps": MethodEntry("ttaps:Ttaps", trained_by=("jt", "jt+ent")),
}
"""To add a method, add its line."""
