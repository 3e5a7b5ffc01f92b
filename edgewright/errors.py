"""Every error Edgewright raises.

::

    EdgewrightError
    ├── FileAccessError        the file cannot be opened or written
    ├── FormatError            the file violates its format (names field and offset)
    │   └── VersionError       a valid file of a release that this one cannot read
    ├── LimitError             the file or call exceeds a limit
    │   └── ContextLengthError   a prompt has more tokens than the language model's context
    ├── MissingError           the file needs something that is not installed
    │   ├── MissingOperatorError
    │   ├── MissingDelegateError
    │   ├── MissingDataError   external weights (.ptd) are missing or do not match
    │   └── MissingCounterpartError   an ExecuTorch import without a counterpart in Edgewright
    ├── ExportError            torch.export cannot capture the model (names the user's line)
    ├── UnsupportedOperatorError   the target runtime has no kernel, and no decomposition exists
    ├── CoverageError          less of the model is delegated than required
    ├── AccuracyError          the compiled model is less accurate than required
    ├── MiscompileError        the program and its source graph give different results (names the layer)
    ├── HalfOverflowError      a layer exceeds the device's half-precision range (names the layer)
    ├── VendorError            a vendor's compiler or simulator failed or dropped part of its input
    ├── UsageError             an invalid call, option or name
    ├── InputError             inputs do not match the method's signature
    ├── ExecutionError         an instruction failed while the method ran
    └── MismatchError          outputs differ from the expected outputs

An error reads ``stage: subject: rule; got value`` and, on a second line, what to do next.
``exit_code`` is what the command line returns for it.
"""

from __future__ import annotations

from typing import Any, ClassVar

_NOTHING: Any = object()


class EdgewrightError(Exception):
    """Base class of all errors; ``except EdgewrightError`` catches every error that Edgewright raises.

    >>> print(EdgewrightError("conv2d 'stem'", "stride must be 1..3", value=4, remedy="Use stride 2."))
    edgewright: conv2d 'stem': stride must be 1..3; got 4
      Use stride 2.
    """

    stage: ClassVar[str] = "edgewright"
    exit_code: ClassVar[int] = 1
    usual_remedy: ClassVar[str] = ""  # printed by the command line if an error has no remedy of its own

    def __init__(self, subject: str, rule: str, *, value: object = _NOTHING, remedy: str = "") -> None:
        super().__init__(subject, rule)
        self.subject = subject
        self.rule = rule
        self.value = None if value is _NOTHING else value
        self.remedy = remedy
        self._has_value = value is not _NOTHING

    def __str__(self) -> str:
        got = f"; got {_short(self.value)}" if self._has_value else ""
        remedy = f"\n  {self.remedy}" if self.remedy else ""
        return _printable(f"{self.stage}: {self.subject}: {self.rule}{got}{remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.__dict__.copy()))


def _rebuild(cls: type[EdgewrightError], state: dict[str, Any]) -> EdgewrightError:
    error = cls.__new__(cls)
    Exception.__init__(error, state["subject"], state["rule"])
    error.__dict__.update(state)
    return error


def _printable(text: str) -> str:
    """Escape control characters: names come from files and must not steer a terminal."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


class FileAccessError(EdgewrightError):
    stage = "file"
    exit_code = 3
    usual_remedy = "Check the path and its permissions."


class FormatError(EdgewrightError):
    """``where`` is the path of the field (``execution_plan[0].values[3].sizes``) and ``offset`` the byte at which the
    field, or the table that contains it, starts. The readers fill in both while the error propagates.
    """

    stage = "format"
    exit_code = 4
    usual_remedy = "The file is damaged, truncated or of another format. Get a new copy; nothing in it was used."

    def __init__(
        self,
        rule: str,
        *,
        value: object = _NOTHING,
        remedy: str = "",
        where: str = "",
        offset: int | None = None,
        file: str = "",
    ) -> None:
        super().__init__("", rule, value=value, remedy=remedy)
        self.where = where
        self.offset = offset
        self.file = file

    def inside(self, outer: str) -> FormatError:
        """Prefix the field path with the name of its container."""
        joint = "" if not self.where or self.where.startswith("[") else "."
        self.where = f"{outer}{joint}{self.where}"
        return self

    def __str__(self) -> str:
        at = "" if self.offset is None else f" at byte {self.offset:#x}"
        parts = [p for p in (self.file, f"{self.where}{at}".strip()) if p]
        self.subject = ": ".join(parts) or "file"
        return super().__str__()


class VersionError(FormatError):
    stage = "version"
    usual_remedy = "Compile the model again with this release, or load the file with the release that wrote it."


class LimitError(EdgewrightError):
    stage = "limit"
    exit_code = 5


class ContextLengthError(LimitError):
    pass


class MissingError(EdgewrightError):
    stage = "load"
    exit_code = 6


class MissingOperatorError(MissingError):
    """``operators`` lists every operator without a kernel."""

    operators: tuple[str, ...] = ()


class MissingDelegateError(MissingError):
    """``backends`` lists every delegate id that is not registered."""

    backends: tuple[str, ...] = ()


class MissingDataError(MissingError):
    pass


class MissingTwinError(MissingDataError):
    """``alternative``: another remedy than to find the host twin; may be empty."""

    alternative: str = ""


class MissingCounterpartError(MissingError, ImportError):
    """Also an ``ImportError``, as scripts expect."""

    stage = "import"


class ExportError(EdgewrightError):
    stage = "export"
    exit_code = 10


class UnsupportedOperatorError(EdgewrightError):
    stage = "compile"
    exit_code = 11


class CoverageError(EdgewrightError):
    stage = "partition"
    exit_code = 12


class AccuracyError(EdgewrightError):
    stage = "accuracy"
    exit_code = 14


class MiscompileError(EdgewrightError):
    """``layer`` and ``module`` name where the difference starts (empty if no single layer differs); ``sqnr`` compares
    the file with the graph it was lowered from, at the worst output."""

    stage = "check"
    exit_code = 15
    layer: str = ""
    module: str = ""
    sqnr: float | None = None


class HalfOverflowError(EdgewrightError):
    """A value of the model exceeds the range of the device's half-precision floats. ``layer`` and ``module`` name the
    first layer whose result, or a value on the way to it, does."""

    stage = "check"
    exit_code = 16
    layer: str = ""
    module: str = ""


class VendorError(EdgewrightError):
    stage = "vendor"
    exit_code = 13


class UsageError(EdgewrightError):
    stage = "usage"
    exit_code = 2


class InputError(EdgewrightError):
    stage = "input"
    exit_code = 7


class ExecutionError(EdgewrightError):
    stage = "execute"
    exit_code = 8


class MismatchError(EdgewrightError):
    stage = "verify"
    exit_code = 9
