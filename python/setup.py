"""The package takes ebb.h with it, which says what is in libebb."""
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HEADER = Path(__file__).resolve().parent.parent / "include" / "ebb.h"


class WithHeader(build_py):
    def run(self):
        super().run()
        shutil.copy(HEADER, Path(self.build_lib) / "ebb" / "ebb.h")


setup(cmdclass={"build_py": WithHeader})
