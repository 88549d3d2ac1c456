"""Farhand: AI agents call the tools of devices."""

from .version import VERSION as __version__

__all__ = ["__version__"]
