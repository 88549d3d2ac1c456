# Asks a question in a window above all others, and prints the chosen answer. Closing the window is the first one. The
# text is in a box that breaks long words and can be scrolled, so that no part of it is hidden.
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
$box = New-Object Windows.Forms.TextBox
$box.Multiline = $true
$box.ReadOnly = $true
$box.TabStop = $false
$box.WordWrap = $true
$box.ScrollBars = 'Vertical'
$box.Size = New-Object Drawing.Size 560, 240
$box.Text = $a.Text.Replace("`n", "`r`n")
[void]$rows.Controls.Add($box)
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
$form.Add_FormClosing({ param($from, $e)
    if (-not $form.Tag -and $e.CloseReason -eq 'UserClosing') { $form.Tag = $a.Answers[0] }
})
[void]$form.ShowDialog()
[Console]::Out.Write([string]$form.Tag)
