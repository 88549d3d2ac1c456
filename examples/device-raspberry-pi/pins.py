"""The pins of the board, behind an interface that is easy to replace."""

from typing import Protocol

from gpiozero import DigitalInputDevice, DigitalOutputDevice


class Pins(Protocol):
    """What the device needs of a board. Pins have their BCM numbers."""

    def set(self, pin: int, on: bool) -> None:
        """Switches an output."""

    def get(self, pin: int) -> bool:
        """Returns whether an input, or an output, is on."""


class BoardPins:
    """The pins of a Raspberry Pi. GPIOZERO_PIN_FACTORY=mock tries the program on another machine."""

    def __init__(self, inputs: list[int]) -> None:
        self._outputs: dict[int, DigitalOutputDevice] = {}
        self._inputs = {pin: DigitalInputDevice(pin, pull_up=True) for pin in inputs}

    def set(self, pin: int, on: bool) -> None:
        self._output(pin).value = on

    def get(self, pin: int) -> bool:
        return bool((self._inputs.get(pin) or self._output(pin)).value)

    def _output(self, pin: int) -> DigitalOutputDevice:
        if pin not in self._outputs:
            self._outputs[pin] = DigitalOutputDevice(pin)
        return self._outputs[pin]
