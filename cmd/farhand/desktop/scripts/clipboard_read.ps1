# Prints the text on the clipboard.
[Console]::Out.Write([string](Get-Clipboard -Raw -Format Text))
