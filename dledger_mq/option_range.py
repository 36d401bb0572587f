"""Checks numbers that users give."""

from dledger_mq.errors import InvalidOptions


def check_number(
    options: str, name: str, value: object, least: float, most: float, *, whole: bool = False
) -> None:
    """Check an option by its type and range. Raises InvalidOptions, also for "not a number"."""
    is_number = isinstance(value, int) or (isinstance(value, float) and not whole)
    if not is_number or not least <= value <= most:  # type: ignore[operator]
        raise InvalidOptions(name, value, least, most, options)


def check_limit_s(options: str, name: str, value: object) -> None:
    """Check a time limit; one below zero is over at once. Raises InvalidOptions."""
    if not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - not a number
        raise InvalidOptions(name, value, 0, float("inf"), options)
