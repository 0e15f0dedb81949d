# SPDX-License-Identifier: Apache-2.0
"""Names the wheel: it carries compiled files, but none that depends on a version of Python."""

import platform

import setuptools
from setuptools.command.bdist_wheel import bdist_wheel


class Distribution(setuptools.Distribution):
    def has_ext_modules(self):
        return True


class Wheel(bdist_wheel):
    def get_tag(self):
        # The glibc version that tests/abi/hygiene.py allows every shipped file.
        return "py3", "none", f"manylinux_2_34_{platform.machine()}"


setuptools.setup(distclass=Distribution, cmdclass={"bdist_wheel": Wheel})
