"""`whichrank` and `python -m whichrank`. Errors end here: one clear line, never a traceback for bad input."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    # Streams that were closed (`>&-`), and a width that is no number: as if nothing were there.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    if not os.environ.get("COLUMNS", "0").isascii():
        del os.environ["COLUMNS"]
    _encodable(sys.stdout, sys.stderr)
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """The exit code: 0 no problem, 1 a problem was diagnosed, 2 wrong usage or nothing readable."""
    try:
        return _run(args)
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(args: Sequence[str] | None) -> int:
    import click  # here, so that Ctrl-C during the imports is quiet too

    from whichrank.cli import main as commands
    from whichrank.errors import UsageProblem

    try:
        code = commands.main(args, prog_name="whichrank", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        with contextlib.suppress(OSError):
            error.show()
        return 2
    except SystemExit as exit_:  # click: whoever read this went away (`--help | head -1`)
        return 0 if exit_.code == 1 else 2
    except OSError as error:
        _complain(f"cannot write: {error.strerror or error}")
        return 2
    except UsageProblem as error:
        _complain(str(error))
        return 2
    except click.Abort as error:
        return INTERRUPTED if not isinstance(error.__cause__, EOFError) else _broken(error.__cause__)
    except Exception as error:
        return _broken(error)


def _broken(error: BaseException) -> int:
    if os.environ.get("WHICHRANK_DEBUG"):
        import traceback

        traceback.print_exception(error)
    else:
        _complain(
            f"internal error ({type(error).__name__}: {error}). Please report it, with what "
            "WHICHRANK_DEBUG=1 in the environment prints"
        )
    return 2


def _complain(text: str) -> None:
    from whichrank.cli import output
    from whichrank.report.printable import cut, printable

    output.complain(cut(printable(text), 500))


def _encodable(*streams: object) -> None:
    """Consoles of another encoding than UTF-8 show "?" for what they cannot, instead of an error."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and "utf" not in stream.encoding.lower():
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    main()
