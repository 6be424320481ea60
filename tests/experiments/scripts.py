"""A script of a study, which is in no package, as a module."""

import importlib.util
import sys


def loaded(path):
    """Loads a script; its additions to the path of modules are removed."""
    name = f"{path.parent.name}_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(specification)  # dataclasses look their module up
    before = list(sys.path)
    specification.loader.exec_module(module)
    sys.path[:] = before
    return module
