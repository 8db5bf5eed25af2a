# mypy: ignore-errors
# Starts whichrank's recorder as the interpreter starts, then gives way to the sitecustomize that would have come instead.
# Any Python may find this on its path, of any age: nothing here is newer than Python 2.
import os
import sys


def _without_this_folder():
    """Off the path, so that the next import of the name finds the other one. PYTHONPATH stays: children need it."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or ".") != here or not place]
    return os.path.dirname(here)


def _record(folder):
    import importlib.util

    name = "_whichrank_record"
    place = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location(name, place, submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
        module.begin()
    except BaseException:
        del sys.modules[name]
        raise


_folder = _without_this_folder()
if sys.version_info >= (3, 8) and os.environ.get("WHICHRANK_RUN"):
    try:
        _record(_folder)
    except Exception:  # nothing is recorded; the program is not to notice
        pass

_own = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # noqa: F401  the user's, the distribution's, or none
except ImportError as _error:
    if getattr(_error, "name", "sitecustomize") != "sitecustomize":
        raise
    if _own is not None:  # whoever imports this one expects to find it
        sys.modules["sitecustomize"] = _own
