# Puts a text on the clipboard. Set-Clipboard does not take an empty one.
Add-Type -AssemblyName System.Windows.Forms
if ($a.Text -eq '') { [Windows.Forms.Clipboard]::Clear() } else { [Windows.Forms.Clipboard]::SetText($a.Text) }
