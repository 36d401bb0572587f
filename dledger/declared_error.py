"""The root of the project's errors, which are declared by their fields and can be pickled.

An error class names its fields as a dataclass does, and its text by a template with their names,
or by a method `_text`. An error is pickled, copied and compared by its class and its fields, and
`args` are the arguments of its class, as for Python's own errors: pools of processes and queues of
tasks pass it on unchanged.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

_Made = TypeVar("_Made", bound="DeclaredError")

# A few lines. The fields have the rest: a text is for people, and lands in logs and notes.
TEXT_CHARACTERS = 1000
# A longer text keeps this much of its end, which holds the advice.
_END_CHARACTERS = 300


@dataclass_transform(eq_default=False)
class DeclaredError(Exception):
    """An error that is declared by its fields.

    Notes (`add_note`) are pickled with an error, and are not compared. Its cause, its context and
    its traceback are left behind, as for any exception of Python: a text that needs the cause names
    it.

    A class with an `__init__` of its own sets the fields there.
    """

    # The text, as for `str.format`, with names of fields. Without it the first field is the text.
    _template: ClassVar[str] = ""
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        own = [name for name, hint in cls.__annotations__.items() if "ClassVar" not in str(hint)]
        fields = (*cls.__match_args__, *own)
        cls.__match_args__ = fields  # type: ignore[misc]
        declared = own or (not fields and "_template" in cls.__dict__)
        if declared and "__init__" not in cls.__dict__:
            cls.__init__ = _initializer(cls, fields)  # type: ignore[method-assign]

    def _text(self) -> str:
        if self._template:
            return self._template.format_map(self.__dict__)
        fields = self.__match_args__
        return str(self.__dict__[fields[0]]) if fields else super().__str__()

    def __str__(self) -> str:
        text = self._text()
        if len(text) <= TEXT_CHARACTERS:
            return text
        begin_characters = TEXT_CHARACTERS - _END_CHARACTERS - len(" ... ")
        return f"{text[:begin_characters]} ... {text[-_END_CHARACTERS:]}"

    def __repr__(self) -> str:
        text = str(self)
        return f"{type(self).__name__}({text!r})" if text else f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, DeclaredError):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), self._text()))

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), *self.args), self.__dict__

    def again(self) -> Self:
        """Return a new error of the same class, text and fields, for one more caller.

        An exception keeps the frames of everyone it was raised to. So an error that ends many calls
        is raised to each of them as a copy.
        """
        other = _made(type(self), *self.args)
        other.__dict__.update(self.__dict__)
        other.__cause__ = self.__cause__
        return other

    def _compared(self) -> dict[str, object]:
        fields = {name: value for name, value in self.__dict__.items() if name != "__notes__"}
        return fields or {"args": self.args}


def _made(kind: type[_Made], *args: object) -> _Made:
    """Return an error without running its `__init__`: pickle sets the fields afterwards."""
    error = kind.__new__(kind, *args)
    error.args = args  # OSError leaves this to its `__init__`
    return error


def _initializer(cls: type[DeclaredError], fields: tuple[str, ...]) -> Any:
    """Make the `__init__` of a class, with its fields as parameters, as `dataclass` does."""
    names: dict[str, Any] = {"declared": _declared_initializer}
    parameters = ["self"]
    for name in fields:
        default = getattr(cls, name, names)
        parameters.append(name if default is names else f"{name}=_{name}")
        names[f"_{name}"] = default
    given = "".join(f"{name}, " for name in fields)
    # An `__init__` of a subclass that calls this one takes other arguments: `args` are those.
    exec(
        f"def __init__({', '.join(parameters)}):\n"
        f"    self.__dict__.update({', '.join(f'{name}={name}' for name in fields)})\n"
        f"    if declared(type(self)) is __init__: self.args = ({given})\n",
        names,
    )
    initializer = names["__init__"]
    hints = {name: hint for base in reversed(cls.__mro__) for name, hint in _hints(base).items()}
    initializer.__annotations__ = {name: hints[name] for name in fields}
    initializer.__module__ = cls.__module__
    initializer.__qualname__ = f"{cls.__qualname__}.__init__"
    return initializer


def _declared_initializer(cls: type[DeclaredError]) -> object:
    """The `__init__` of a class, which `renamed_fields` may have wrapped."""
    initializer: object = cls.__init__
    return getattr(initializer, "__wrapped__", initializer)


def _hints(base: type) -> dict[str, Any]:
    return base.__annotations__ if issubclass(base, DeclaredError) else {}
