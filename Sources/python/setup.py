"""The C part: libstreamd (the link `libstreamd`, a folder in the sdist) and the extension module, for the stable ABI of Python 3.10."""

from glob import glob

from setuptools import Extension, setup

module = Extension(
    "streamd._streamd",
    sorted(glob("_streamd/*.c") + glob("libstreamd/*.c")),
    depends=sorted(glob("_streamd/*.h") + glob("libstreamd/*.h")),
    include_dirs=["libstreamd"],
    define_macros=[("_GNU_SOURCE", None)],
    extra_compile_args=["-std=c11", "-O2", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-cast-function-type"],
    extra_link_args=["-Wl,-Bsymbolic"],  # another libstreamd of the process is not called
    py_limited_api=True,
)
setup(ext_modules=[module], options={"bdist_wheel": {"py_limited_api": "cp310"}})
