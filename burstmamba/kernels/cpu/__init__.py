"""Kernels in C++ for the CPU: built when the package is installed, loaded by ctypes, none of them required."""
