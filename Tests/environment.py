"""Packages of the Python Package Index that tests require."""

import subprocess
import sys
import venv


def prepare(folder, requirements):
    """Installs the packages of a file, with hashes, into a virtual environment, unless the same Python has done so before.
    Returns the folder of its programs."""
    programs = folder / "bin"
    done = folder / "done"
    wanted = f"{sys.version}\n{requirements.read_text()}"
    if not done.exists() or done.read_text() != wanted:
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run(
            [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
             "--require-hashes", "--requirement", requirements], check=True)
        done.write_text(wanted)
    return programs
