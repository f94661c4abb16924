"""`pip install ./python` as somebody does it: in a fresh environment, and then the sample, which has numpy from there.

    tests/python/install.py LIBRARY         exits with 77 where there is no venv or no network to fetch numpy
"""
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = Path(__file__).resolve().parents[2]


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def main(library):
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "EBB_LIBRARY")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if subprocess.run([sys.executable, "-m", "venv", folder / "fresh"], capture_output=True).returncode != 0:
            skip("this Python makes no environments (Debian: python3-venv)")
        python = folder / "fresh" / "bin" / "python"
        pip = [python, "-m", "pip", "--disable-pip-version-check", "-q"]
        fetched = subprocess.run([*pip, "install", "--no-compile", "numpy"], env=clean, capture_output=True, text=True)
        if fetched.returncode != 0:
            skip("numpy cannot be fetched: " + (fetched.stderr.strip().splitlines() or ["?"])[-1])
        for part in ("python", "include"):  # a build leaves files beside what it is built of
            shutil.copytree(SOURCE / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run([*pip, "install", folder / "python"], env=clean, check=True)
        os.symlink(SOURCE / "samples", folder / "samples")
        said = subprocess.run([python, "samples/python/digits.py"], cwd=folder, env={**clean, "EBB_LIBRARY": library},
                              capture_output=True, text=True, check=False)
        assert said.returncode == 0, said.stderr
        losses = [float(loss) for loss in re.findall(r"epoch \d: loss ([\d.]+)", said.stdout)]
        assert len(losses) == 3 and losses[2] < losses[0] / 2, said.stdout
        where = subprocess.run([python, "-c", "import ebb; print(ebb.__file__)"], cwd=folder / "fresh", text=True,
                               env={**clean, "EBB_LIBRARY": library}, capture_output=True, check=True).stdout
        assert where.startswith(str(folder / "fresh")), where
        subprocess.run([*pip, "uninstall", "-y", "ebb"], env=clean, check=True)
        left = list((folder / "fresh").rglob("*ebb*"))
        assert not left, left
    print(f"installed, learned ({losses[0]} to {losses[2]}), uninstalled")


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()))
