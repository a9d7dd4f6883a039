"""What requests may say and what the main answers look like: the source of the OpenAPI document."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=0, lt=2**31)]
Name = Annotated[str, Field(max_length=100)]
Severity = Annotated[int, Field(ge=0, le=5)]
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
MethodSpec = Annotated[str, Field(min_length=1, max_length=500, examples=["ttaps:tuned[steps=6]"])]
Outcome = Literal["fixed", "broken", "changed", "unchanged"]


class Request(BaseModel):
    """A request, which may have no other fields."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ResultImage(Request):
    """An image of a stored experiment."""

    experiment: Count
    corruption: Name
    severity: Severity
    image: Count


class RowFilter(Request):
    """Which rows of the results folder to list."""

    experiment: Count | None = None
    corruption: Name | None = None
    severity: Severity | None = None
    outcome: Outcome | None = None
    offset: Count = 0
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class Subject(Request):
    """One image: an embedded one, one's own, or one of the results folder; and how to damage it."""

    sample: Count | None = None
    """Number of an embedded image, as /api/samples lists them."""
    image: str | None = None
    """An image file in base64."""
    result: ResultImage | None = None
    """An image of the results folder."""
    corruption: Annotated[Name, Field(examples=["fog"])] | None = None
    """A corruption, as /api/corruptions lists them."""
    severity: Severity | None = None
    """From 1 to 5, which is taken if none is given; 0 is no corruption."""
    seed: Seed | None = None
    """Seed of the corruption and of the views; 0 if none is given."""
    label: Name | None = None
    """The true class, where it is known."""

    @model_validator(mode="after")
    def _one_image(self) -> Self:
        if [self.sample, self.image, self.result].count(None) != 2:
            raise ValueError("give one of sample, image and result")
        return self


class AdaptRequest(Subject):
    """One image, and how to adapt to it."""

    method: MethodSpec | None = None
    """A method with its settings, as on the command line; the model's default_method if none is given."""


class BatchRequest(Request):
    """Several images, each adapted to by itself."""

    subjects: Annotated[list[Subject], Field(min_length=1, max_length=64)]
    method: MethodSpec | None = None
    seed: Seed = 0


class Problem(BaseModel):
    """What is wrong, RFC 9457, in the words of the command line."""

    type: str
    title: str
    status: int
    detail: str


class Adapted(BaseModel):
    """The labels before and after, class probabilities before and after every step, and how to do the same without this service."""

    label: str | None
    label_before: str
    probability: float | None
    probability_before: float | None
    adapted: bool
    outcome: Outcome | None
    true_label: str | None
    probabilities: dict[str, float | None]
    trace: list[list[float | None]]
    losses: list[float | None]
    path: list[dict[str, float]] | None
    nearest: list[list[int]] | None
    views: list[str] = []
    image: str
    seconds: float
    spec: str
    command: str
    python: str


class Batch(BaseModel):
    """As many results as subjects, in their order."""

    results: list[Adapted | dict[Literal["problem"], Problem]]
