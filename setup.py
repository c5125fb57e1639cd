"""The compiled kernel, an optional extension: where it cannot be built, capture runs on the reference path."""

from setuptools import Extension, setup

_FOLDER = "capture/transcode"
_PARTS = ("avro_out", "clock", "copy_in", "pgoutput_in", "value_text")

setup(
    ext_modules=[
        Extension(
            "capture.transcode.kernel",
            [f"{_FOLDER}/kernel.pyx"],
            depends=[f"{_FOLDER}/{name}.pxd" for name in _PARTS],
            optional=True,
        )
    ],
)
