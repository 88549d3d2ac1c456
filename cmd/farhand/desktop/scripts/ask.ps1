# Asks a question in a window above all others, and prints the chosen answer. Closing the window prints nothing.
Add-Type -AssemblyName System.Windows.Forms
$form = New-Object Windows.Forms.Form
$form.Text = $a.Title
$form.TopMost = $true
$form.StartPosition = 'CenterScreen'
$form.AutoSize = $true
$form.FormBorderStyle = 'FixedDialog'
$form.MinimizeBox = $false
$form.MaximizeBox = $false
$rows = New-Object Windows.Forms.FlowLayoutPanel
$rows.FlowDirection = 'TopDown'
$rows.AutoSize = $true
$rows.Padding = New-Object Windows.Forms.Padding 12
$label = New-Object Windows.Forms.Label
$label.UseMnemonic = $false
$label.MaximumSize = New-Object Drawing.Size 560, 400
$label.AutoSize = $true
$label.Text = $a.Text
[void]$rows.Controls.Add($label)
$buttons = New-Object Windows.Forms.FlowLayoutPanel
$buttons.AutoSize = $true
foreach ($word in $a.Answers) {
    $button = New-Object Windows.Forms.Button
    $button.Text = $word
    $button.AutoSize = $true
    $button.Add_Click({ param($from) $form.Tag = $from.Text; $form.Close() })
    [void]$buttons.Controls.Add($button)
}
[void]$rows.Controls.Add($buttons)
[void]$form.Controls.Add($rows)
[void]$form.ShowDialog()
[Console]::Out.Write([string]$form.Tag)
