# Writes a picture of all screens into a file.
Add-Type -AssemblyName System.Windows.Forms, System.Drawing
Add-Type -Namespace Farhand -Name Display -MemberDefinition '[DllImport("user32.dll")] public static extern bool SetProcessDPIAware();'
[void][Farhand.Display]::SetProcessDPIAware()
$all = [Windows.Forms.SystemInformation]::VirtualScreen
$picture = New-Object Drawing.Bitmap $all.Width, $all.Height
$canvas = [Drawing.Graphics]::FromImage($picture)
$canvas.CopyFromScreen($all.Location, [Drawing.Point]::Empty, $all.Size)
$picture.Save($a.File, [Drawing.Imaging.ImageFormat]::Png)
