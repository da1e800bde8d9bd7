"""Messages about resources that can't be parsed or carried out."""

from pydantic import ValidationError

from delayed_topics_operator.errors import SpecInvalid

SHOWN = 5


def in_words(error: ValidationError | SpecInvalid) -> str:
    if isinstance(error, SpecInvalid):
        return str(error)
    return f"this resource is invalid: {problems(error)}"


def problems(error: ValidationError) -> str:
    every = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors(include_url=False)]
    more = f"; and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"{'; '.join(every[:SHOWN])}{more}"
