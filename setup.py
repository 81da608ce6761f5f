"""Builds the CPU kernels; the rest is in pyproject.toml. Without a C++ compiler the package installs all the same."""

import os
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FOLDER = "burstmamba/kernels/cpu"
GNU_FLAGS = ["-O3", "-std=c++17", "-ffp-contract=fast", "-fvisibility=hidden", "-Wno-psabi"]


class BuildKernels(build_ext):
    """Adds the flags that this compiler understands, OpenMP among them where it works.

    Puts the library into a checkout whole, so that a build does not meet another, nor a process that loads the library.
    """

    def copy_file(self, infile, outfile, *args, **options):
        temporary = f"{outfile}.{os.getpid()}"
        copied = super().copy_file(infile, temporary, *args, **options)
        os.replace(temporary, outfile)
        return copied

    def build_extensions(self) -> None:
        if self.compiler.compiler_type == "unix":
            for extension in self.extensions:
                extension.extra_compile_args = list(GNU_FLAGS)
                if self.links_with("-fopenmp"):
                    extension.extra_compile_args.append("-fopenmp")
                    extension.extra_link_args = ["-fopenmp"]
        super().build_extensions()

    def links_with(self, flag: str) -> bool:
        """Whether a small OpenMP program compiles and links with this flag."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "try.cpp"
            source.write_text("#include <omp.h>\nint main() { return omp_get_max_threads() < 1; }\n")
            try:
                objects = self.compiler.compile([str(source)], output_dir=folder, extra_postargs=[flag])
                self.compiler.link_executable(objects, "try", output_dir=folder, extra_postargs=[flag])
            except Exception as reason:  # setuptools' compile and link errors share no public base class
                self.announce(f"building the kernels without {flag}: {reason}", level=3)
                return False
        return True

    def get_export_symbols(self, ext):
        """The library is loaded by ctypes; there is no Python module to initialise."""
        return ext.export_symbols


# A folder of its own for every build: two installations from one checkout at once share nothing that is written.
with tempfile.TemporaryDirectory() as scratch:
    setup(
        options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
        ext_modules=[
            Extension(
                "burstmamba.kernels.cpu._kernels_cpu",
                sources=[f"{FOLDER}/kernels.cpp"],
                depends=[f"{FOLDER}/{name}.h" for name in ("lanes", "rows_lanes", "scan_lanes")],
                language="c++",
                optional=True,
            )
        ],
        cmdclass={"build_ext": BuildKernels},
    )
