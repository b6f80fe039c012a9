"""The device path: noise is drawn, seen and counted where the model is, and only counts come back.

The plan's ``generator`` decides it: with ``philox`` votes are cast here, on an accelerator or on the CPU.
"""

from smoothcert.sampling.device.passes import DevicePasses, Pending

__all__ = ["DevicePasses", "Pending"]
