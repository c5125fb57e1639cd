"""The compiled kernels, optional extensions: where they cannot be built, capture and apply do without, and are slow."""

from setuptools import Extension, setup

_FOLDER = "capture/transcode"
_PARTS = ("avro_out", "clock", "copy_in", "kernel", "kernel_batch", "kernel_record", "pgoutput_in", "value_text")

setup(
    ext_modules=[
        *(
            Extension(
                f"capture.transcode.{name}",
                [f"{_FOLDER}/{name}.pyx"],
                depends=[f"{_FOLDER}/{part}.pxd" for part in _PARTS],
                optional=True,
            )
            for name in ("kernel_batch", "kernel_record", "kernel", "kernel_pump", "kernel_sender")
        ),
        Extension("capture.read_ahead", ["capture/read_ahead.pyx"], optional=True),
        Extension(
            "apply_spark.avro_decoder",
            ["apply_spark/avro_decoder.pyx"],
            depends=["apply_spark/arrow_out.pxd", "apply_spark/avro_in.pxd"],
            optional=True,
        ),
    ],
)
